package core_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync"
	"testing"

	"github.com/cubbyhq/cubby/internal/archive"
	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/core/lifecycle"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// withArchives gives the daemons of a world an archive storage.
func withArchives(t *testing.T, url string) func(*core.Config) {
	t.Helper()
	s, err := archive.Open(archive.Config{URL: "s3://boxes/prefix", Endpoint: url, Region: "us-east-1", AccessKey: "test-access-key", SecretKey: "test-secret-key-0123456789"})
	if err != nil {
		t.Fatal(err)
	}
	return func(c *core.Config) { c.Archives = s }
}

// TestDestroyArchivedWithoutStorage: whatever the storage does, the sandbox and
// its files stay, and can be used again.
func TestDestroyArchivedWithoutStorage(t *testing.T) {
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, `<Error><Code>AccessDenied</Code></Error>`, http.StatusForbidden)
	}))
	defer refusing.Close()
	away := httptest.NewServer(http.NotFoundHandler())
	away.Close()
	for name, url := range map[string]string{"refuses": refusing.URL, "is away": away.URL} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, withArchives(t, url))
			w.create("a")
			w.sh("a", "echo precious > f")
			_, err := w.Sandboxes().Archive(w.ctx, "a")
			info := errs.Public(err)
			if info.Kind != errs.Unavailable || !strings.Contains(info.Message, "keeps its files") {
				t.Fatalf("DestroyArchived = %v", err)
			}
			if b, err := w.Sandboxes().Get(w.ctx, "a"); err != nil || b.State != sandbox.Stopped {
				t.Errorf("the sandbox is %s, %v", b.State, err)
			}
			if _, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: "b", Restore: "a." + string(sandbox.NewUID())}); !errors.Is(err, errs.Unavailable) {
				t.Errorf("Create from it = %v", err)
			}
			if _, err := w.Sandboxes().Start(w.ctx, "a"); err != nil {
				t.Fatal(err)
			}
			if r := w.sh("a", "cat f"); string(r.Stdout) != "precious\n" {
				t.Errorf("the file has %q", r.Stdout)
			}
			if err := w.Sandboxes().Destroy(w.ctx, "a", false); err != nil {
				t.Error(err)
			}
			w.nothingLeft()
		})
	}
	w := newWorld(t)
	w.create("a")
	if _, err := w.Sandboxes().Archive(w.ctx, "a"); !errors.Is(err, errs.Unsupported) {
		t.Errorf("DestroyArchived without a storage = %v", err)
	}
	if r := w.sh("a", "echo runs"); string(r.Stdout) != "runs\n" {
		t.Error("it does not run any more")
	}
	if _, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{Restore: "a." + string(sandbox.NewUID())}); !errors.Is(err, errs.Unsupported) {
		t.Errorf("Create without a storage = %v", err)
	}
}

// TestArchivesOfATenantTakeTurns: each one that is on its way holds megabytes of
// the daemon's memory and what compresses.
func TestArchivesOfATenantTakeTurns(t *testing.T) {
	var mu sync.Mutex
	under := make(map[string]int) // way, by archive; guarded by mu
	most := 0                     // guarded by mu
	gate := make(chan struct{})
	storage := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := path.Dir(r.URL.Path)
		mu.Lock()
		under[name]++
		most = max(most, len(under))
		mu.Unlock()
		<-gate
		mu.Lock()
		if under[name]--; under[name] == 0 {
			delete(under, name)
		}
		mu.Unlock()
		http.Error(w, `<Error><Code>AccessDenied</Code></Error>`, http.StatusForbidden)
	}))
	defer storage.Close()
	opened := sync.OnceFunc(func() { close(gate) })
	defer opened()
	w := newWorld(t, withArchives(t, storage.URL))
	ids := []string{"a", "b", "c", "d", "e", "f"}
	for _, id := range ids {
		w.createIn("acme", id)
	}
	var all sync.WaitGroup
	for _, id := range ids {
		all.Go(func() {
			if _, err := w.Sandboxes().Archive(w.ctx, id); !errors.Is(err, errs.Unavailable) {
				t.Errorf("DestroyArchived = %v", err)
			}
		})
	}
	w.until("some are on their way", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(under) >= 2
	})
	var waiting []string
	for _, id := range ids {
		if b, err := w.Sandboxes().Get(w.ctx, id); err == nil && b.State == sandbox.Running {
			waiting = append(waiting, id)
		}
	}
	if len(waiting) != 4 {
		t.Fatalf("%q run, want four that wait for their turn", waiting)
	}
	w.sh(waiting[0], "true") // nobody waits for what waits
	opened()
	all.Wait()
	if most > 2 {
		t.Errorf("%d archives of a tenant were on their way at once, want 2", most)
	}
}
