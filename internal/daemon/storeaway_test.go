package daemon_test

import (
	"context"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
	"github.com/cubbyhq/cubby/internal/poll"
	"github.com/cubbyhq/cubby/internal/store/storetest"
)

// TestStoreThatFailsEveryCallForAWhile: no part of a daemon ends because the store does
// not work, neither at the start nor later, and all of them work when it does again.
func TestStoreThatFailsEveryCallForAWhile(t *testing.T) {
	dir := t.TempDir()
	var mend func()
	d := daemontest.Start(t, daemontest.Options{Dir: dir, Opened: func() {
		mend = storetest.HideAll(t, filepath.Join(dir, "cubby.db"))
	}})
	// Each part has met it: the agent, core's reconciler and its room of tasks, and a door.
	waitFor(t, "every part to fail", func() bool {
		status, _ := ask(t, "", "GET", d.URL+"/v1/sandboxes", "")
		log := d.Log()
		return status >= 500 && strings.Contains(log, "read the runs that an earlier daemon left; it is tried again") &&
			strings.Contains(log, "look for tasks that were cancelled; it is tried again") && strings.Contains(log, `msg=reconcile part=store`)
	})
	mend()
	works(t, d, "a")
	mend = storetest.HideAll(t, filepath.Join(dir, "cubby.db"))
	waitFor(t, "a door to fail", func() bool {
		status, _ := ask(t, "", "POST", d.URL+"/v1/sandboxes", `{"id":"b"}`)
		return status >= 500
	})
	mend()
	works(t, d, "b")
	if err := d.Stop(); err != nil {
		t.Errorf("the daemon stopped with %v", err)
	}
}

// works waits until a daemon is ready, and uses a sandbox and the agent.
func works(t *testing.T, d *daemontest.Daemon, id string) {
	t.Helper()
	waitFor(t, "the daemon to be ready", func() bool {
		status, _ := ask(t, "", "GET", d.URL+"/readyz", "")
		return status == http.StatusOK
	})
	waitFor(t, "a sandbox to be created", func() bool {
		status, answer := ask(t, "", "POST", d.URL+"/v1/sandboxes", `{"id":"`+id+`"}`)
		if status < 500 && status != http.StatusCreated && status != http.StatusConflict {
			t.Fatalf("create = %d %s", status, answer)
		}
		return status < 500
	})
	if status, answer := ask(t, "", "POST", d.URL+"/v1/sandboxes/"+id+"/exec", `{"cmd":"echo it works"}`); status != http.StatusOK || !strings.Contains(answer, "it works") {
		t.Errorf("exec = %d %s", status, answer)
	}
	// It waits until what an earlier daemon left is taken up.
	waitFor(t, "the agent to work", func() bool {
		status, _ := ask(t, "", "DELETE", d.URL+"/agent/threads/0b5f4a3e-0000-4000-8000-000000000000", "")
		return status == http.StatusNotFound
	})
}

func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := poll.Until(ctx, 10*time.Millisecond, 100*time.Millisecond, func() (bool, error) { return done(), nil }); err != nil {
		t.Fatalf("waited for %s: %v", what, err)
	}
}
