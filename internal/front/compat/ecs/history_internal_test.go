package ecs

import (
	"encoding/json"
	"testing"

	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/packages"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// TestHistoryHidesCubbysOwnPrograms is about commands whose program is cubby's:
// histories show what was asked.
func TestHistoryHidesCubbysOwnPrograms(t *testing.T) {
	install := func(runtime string, dependencies map[string]string) sandbox.ExecSpec {
		c, err := packages.Make(packages.Request{Runtime: runtime, Dependencies: dependencies})
		if err != nil {
			t.Fatal(err)
		}
		return c.Spec()
	}
	for _, tt := range []struct {
		spec          sandbox.ExecSpec
		kind, payload string
	}{
		{install("", map[string]string{"six": ""}), "packages_install", `{"runtime":"python","dependencies":{"six":""}}`},
		{install("node", map[string]string{"b": "1.0.0", "a": ""}), "packages_install", `{"runtime":"node","dependencies":{"a":"","b":"1.0.0"}}`},
		{sandbox.ExecSpec{Terminal: "main", Argv: []string{"/bin/sh", "-c", "exec bash --rcfile x"}}, "terminal_open", `{"name":"main"}`},
		{sandbox.ExecSpec{Terminal: "top", Shell: "htop"}, "terminal_open", `{"name":"top","cmd":"htop"}`},
		{sandbox.ExecSpec{Kind: "git.commit", Argv: []string{"sh", "-c", "git add"}, Detail: []byte(`{"message":"m"}`)}, "git_commit", `{"message":"m"}`},
		{sandbox.ExecSpec{Shell: "ls"}, "exec_submit", `{"cmd":"ls","timeout_seconds":0}`},
	} {
		x := sandbox.Exec{Seq: 1, Spec: tt.spec}
		event := eventOf(t.Context(), live.Result{Exec: x}, nil)
		payload, err := json.Marshal(event.Payload)
		if err != nil || event.Kind != tt.kind || string(payload) != tt.payload {
			t.Errorf("%+v: event %s %s, %v, want %s %s", tt.spec, event.Kind, payload, err, tt.kind, tt.payload)
		}
	}
}
