//go:build root

package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/test/harness"
)

// TestDaemonKilledAtEveryStep kills the daemon at moments spread over a create,
// an exec and a destroy. The next daemon has every sandbox either whole or not
// at all, its id can be used, and the host has no trace of what is gone.
func TestDaemonKilledAtEveryStep(t *testing.T) {
	t.Parallel()
	for _, isolation := range anyIsolation {
		t.Run(isolation, func(t *testing.T) {
			t.Parallel()
			h := newReal(t, harness.Options{Unpacks: true})
			url, err := h.start(nil)
			if err != nil {
				t.Fatal(err)
			}
			const steps = 8
			for step := range steps {
				body := fmt.Sprintf(`{"id":"a","isolation":%q}`, isolation)
				cut := time.AfterFunc(time.Duration(step*step)*9*time.Millisecond, func() {
					_ = h.Signal(os.Kill) // reaped below
				})
				life(url, body)
				cut.Stop()
				if err := h.kill(); err != nil {
					t.Fatal(err)
				}
				if url, err = h.start(nil); err != nil {
					t.Fatal(err)
				}
				checkWhole(t, url, step)
				if status, text := call(t, "POST", url+"/v1/sandboxes", body); status != http.StatusCreated {
					t.Errorf("step %d: the id cannot be used again: %d %s", step, status, text)
				}
				if status, text := call(t, "POST", url+"/v1/sandboxes/a/exec", `{"cmd":["echo","works"]}`); !strings.Contains(text, "works") {
					t.Errorf("step %d: exec = %d %s", step, status, text)
				}
				call(t, "DELETE", url+"/v1/sandboxes/a", "")
			}
			if err := h.stop(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// life is what the daemon is killed in: nobody knows how far it comes.
func life(url, body string) {
	for _, step := range []struct{ method, path, body string }{
		{"POST", "/v1/sandboxes", body},
		{"POST", "/v1/sandboxes/a/exec", `{"cmd":"seq 1000; sleep 0.1; seq 1000"}`},
		{"DELETE", "/v1/sandboxes/a", ""},
	} {
		req, err := http.NewRequest(step.method, url+step.path, strings.NewReader(step.body))
		if err != nil {
			return
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return
		}
		res.Body.Close()
	}
}

// checkWhole looks at what survived and takes it away.
func checkWhole(t *testing.T, url string, step int) {
	t.Helper()
	status, text := call(t, "GET", url+"/v1/sandboxes/a", "")
	if status == http.StatusNotFound {
		return
	}
	var box struct{ Status, Reason string }
	if err := json.Unmarshal([]byte(text), &box); err != nil {
		t.Fatal(err)
	}
	switch box.Status {
	case "failed":
		if box.Reason == "" {
			t.Errorf("step %d: failed without a reason", step)
		}
		return
	case "running":
		// Before another exec can be the first.
		if _, execs := call(t, "GET", url+"/v1/sandboxes/a/execs/1?wait_seconds=20", ""); strings.Contains(execs, `"status":"done"`) && !strings.Contains(execs, `1000\n1\n2\n`) {
			t.Errorf("step %d: the first exec lost output", step)
		}
		if _, out := call(t, "POST", url+"/v1/sandboxes/a/exec", `{"cmd":["echo","alive"]}`); !strings.Contains(out, "alive") {
			t.Errorf("step %d: it says running and does not: %s", step, out)
		}
	default:
		t.Errorf("step %d: the sandbox is %s", step, text)
	}
	if status, out := call(t, "DELETE", url+"/v1/sandboxes/a", ""); status != http.StatusNoContent {
		t.Errorf("step %d: destroy = %d %s", step, status, out)
	}
}
