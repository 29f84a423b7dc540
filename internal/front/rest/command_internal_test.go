package rest

import (
	"encoding/json"
	"testing"
	"time"

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
		return c.Spec()
	}
	for _, tt := range []struct {
		spec sandbox.ExecSpec
		cmd  string
	}{
		{install("", map[string]string{"six": ""}), `"install six (pip)"`},
		{install("node", map[string]string{"b": "1.0.0", "a": ""}), `"install a, b 1.0.0 (npm)"`},
		{sandbox.ExecSpec{Terminal: "main", Argv: []string{"/bin/sh", "-c", "exec bash --rcfile x"}}, `"terminal main"`},
		{sandbox.ExecSpec{Terminal: "top", Shell: "htop"}, `"htop"`},
		{sandbox.ExecSpec{Kind: "git.commit", Argv: []string{"sh", "-c", "git add"}, Detail: []byte(`{"message":"m"}`)}, `"git commit"`},
		{sandbox.ExecSpec{Shell: "ls"}, `"ls"`},
	} {
		x := sandbox.Exec{Seq: 1, Spec: tt.spec}
		cmd, err := json.Marshal(execJSON(x, time.Time{}).Cmd)
		if err != nil || string(cmd) != tt.cmd {
			t.Errorf("%+v: cmd = %s, %v, want %s", tt.spec, cmd, err, tt.cmd)
		}
	}
}
