package rest

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/packages"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// TestCubbysOwnProgramsAreNotShown is about commands whose program is cubby's:
// histories show what was asked.
func TestCubbysOwnProgramsAreNotShown(t *testing.T) {
	install := func(runtime string, dependencies map[string]string) sandbox.ExecSpec {
		c, err := packages.Make(packages.Request{Runtime: runtime, Dependencies: dependencies})
		if err != nil {
			t.Fatal(err)
		}
		return sandbox.ExecSpec{Kind: packages.Kind, Argv: c.Argv, Detail: c.Detail}
	}
	for _, tt := range []struct {
		spec      sandbox.ExecSpec
		cmd       string // of /v1
		kind, ecs string // of the ecs dialect's history
	}{
		{install("", map[string]string{"six": ""}), `"install six (pip)"`, "packages_install", `{"runtime":"python","dependencies":{"six":""}}`},
		{install("node", map[string]string{"b": "1.0.0", "a": ""}), `"install a, b 1.0.0 (npm)"`, "packages_install", `{"runtime":"node","dependencies":{"a":"","b":"1.0.0"}}`},
		{sandbox.ExecSpec{Terminal: "main", Argv: []string{"/bin/sh", "-c", "exec bash --rcfile x"}}, `"terminal main"`, "terminal_open", `{"name":"main"}`},
		{sandbox.ExecSpec{Terminal: "top", Shell: "htop"}, `"htop"`, "terminal_open", `{"name":"top","cmd":"htop"}`},
		{sandbox.ExecSpec{Kind: "git.commit", Argv: []string{"sh", "-c", "git add"}, Detail: []byte(`{"message":"m"}`)}, `"git commit"`, "git_commit", `{"message":"m"}`},
		{sandbox.ExecSpec{Shell: "ls"}, `"ls"`, "exec_submit", `{"cmd":"ls","timeout_seconds":0}`},
	} {
		x := sandbox.Exec{Seq: 1, Spec: tt.spec}
		cmd, err := json.Marshal(execJSON(x, time.Time{}).Cmd)
		if err != nil || string(cmd) != tt.cmd {
			t.Errorf("%+v: cmd = %s, %v, want %s", tt.spec, cmd, err, tt.cmd)
		}
		event := ecsEvent(t.Context(), core.Result{Exec: x}, nil)
		payload, err := json.Marshal(event.Payload)
		if err != nil || event.Kind != tt.kind || string(payload) != tt.ecs {
			t.Errorf("%+v: ecs event %s %s, %v, want %s %s", tt.spec, event.Kind, payload, err, tt.kind, tt.ecs)
		}
	}
}
