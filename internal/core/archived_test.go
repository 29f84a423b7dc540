package core_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/archive"
	"github.com/cubbyhq/cubby/internal/core"
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
			_, err := w.DestroyArchived(w.ctx, "a")
			info := errs.Public(err)
			if info.Kind != errs.Unavailable || !strings.Contains(info.Message, "keeps its files") {
				t.Fatalf("DestroyArchived = %v", err)
			}
			if b, err := w.Sandbox(w.ctx, "a"); err != nil || b.State != sandbox.Stopped {
				t.Errorf("the sandbox is %s, %v", b.State, err)
			}
			if _, err := w.Create(w.ctx, core.CreateRequest{ID: "b", Restore: "a." + string(sandbox.NewUID())}); !errors.Is(err, errs.Unavailable) {
				t.Errorf("Create from it = %v", err)
			}
			if _, err := w.Start(w.ctx, "a"); err != nil {
				t.Fatal(err)
			}
			if r := w.sh("a", "cat f"); string(r.Stdout) != "precious\n" {
				t.Errorf("the file has %q", r.Stdout)
			}
			if err := w.Destroy(w.ctx, "a", false); err != nil {
				t.Error(err)
			}
			w.nothingLeft()
		})
	}
	w := newWorld(t)
	w.create("a")
	if _, err := w.DestroyArchived(w.ctx, "a"); !errors.Is(err, errs.Unsupported) {
		t.Errorf("DestroyArchived without a storage = %v", err)
	}
	if r := w.sh("a", "echo runs"); string(r.Stdout) != "runs\n" {
		t.Error("it does not run any more")
	}
	if _, err := w.Create(w.ctx, core.CreateRequest{Restore: "a." + string(sandbox.NewUID())}); !errors.Is(err, errs.Unsupported) {
		t.Errorf("Create without a storage = %v", err)
	}
}
