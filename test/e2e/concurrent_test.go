package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
)

// TestAHundredCreatesAtOnce all succeed, each with its own id, and all
// sandboxes work and go.
func TestAHundredCreatesAtOnce(t *testing.T) {
	t.Parallel()
	d := daemontest.Start(t, daemontest.Options{})
	const n = 100
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			box := fmt.Sprintf("%s/v1/sandboxes/box-%d", d.URL, i)
			if status, body := call(t, "POST", d.URL+"/v1/sandboxes", fmt.Sprintf(`{"id":"box-%d"}`, i)); status != http.StatusCreated {
				t.Errorf("create %d = %d %s", i, status, body)
				return
			}
			if status, body := call(t, "POST", box+"/exec", `{"cmd":["echo","hello"]}`); status != http.StatusOK || !strings.Contains(body, `"stdout":"hello\n"`) {
				t.Errorf("exec in %d = %d %s", i, status, body)
			}
			if status, body := call(t, "DELETE", box, ""); status != http.StatusNoContent {
				t.Errorf("destroy %d = %d %s", i, status, body)
			}
		})
	}
	wg.Wait()
	if _, body := call(t, "GET", d.URL+"/v1/sandboxes", ""); body != "{\"sandboxes\":[]}\n" {
		t.Errorf("left: %s", body)
	}
}

// TestOneIDForMany: of creates that want the same id at once exactly one wins,
// and with the same idempotency key all get the same sandbox or are told to
// come back.
func TestOneIDForMany(t *testing.T) {
	t.Parallel()
	d := daemontest.Start(t, daemontest.Options{})
	var mu sync.Mutex
	statuses := map[int]int{}
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			status, _ := call(t, "POST", d.URL+"/v1/sandboxes", `{"id":"only"}`)
			mu.Lock()
			defer mu.Unlock()
			statuses[status]++
		})
	}
	wg.Wait()
	if statuses[http.StatusCreated] != 1 || statuses[http.StatusConflict] != 19 {
		t.Errorf("answers = %v, want 201 once and 409 for the rest", statuses)
	}
}
