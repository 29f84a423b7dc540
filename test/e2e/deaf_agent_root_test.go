//go:build root

package e2e_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cubbyhq/cubby/test/harness"
)

// TestACommandEndsThatADeafAgentNeverBegan: its time limit began to count when the agent
// said that it runs, so who asked for it waited for as long as a request can.
func TestACommandEndsThatADeafAgentNeverBegan(t *testing.T) {
	t.Parallel()
	h := newReal(t, harness.Options{})
	h.MustStart()
	asks(t, http.StatusCreated, "POST", h.URL+"/v1/sandboxes", `{"id":"a","isolation":"container"}`)
	runs, err := filepath.Glob(filepath.Join(h.Dir, "run/oci/*/run.json"))
	if err != nil || len(runs) != 1 {
		t.Fatalf("runs: %v, %v", runs, err)
	}
	data, err := os.ReadFile(runs[0])
	if err != nil {
		t.Fatal(err)
	}
	var run struct{ PID int }
	if err := json.Unmarshal(data, &run); err != nil || run.PID == 0 {
		t.Fatalf("%s: %v", data, err)
	}
	if err := syscall.Kill(run.PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(run.PID, syscall.SIGCONT) }() // it may be gone
	text := asks(t, http.StatusOK, "POST", h.URL+"/v1/sandboxes/a/exec", `{"cmd":["true"],"timeout_seconds":1}`)
	if !strings.Contains(text, `"timeout"`) || !strings.Contains(text, "the sandbox's agent did not answer") {
		t.Errorf("the command ended as %s", text)
	}
}
