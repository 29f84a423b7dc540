//go:build root

package local

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/storage"
)

// A full host stops writers of the disk that sandboxes share as it stops those
// of their own, and thaws it as it does these.
func TestSharedDisksFreezeToo(t *testing.T) {
	h := newTightHost(t, 512<<20, 128<<20)
	own := mustCreate(t, h.Disks, 64<<20)
	uid := sandbox.NewUID()
	if err := h.Create(t.Context(), uid, storage.Shared, 64<<20); err != nil {
		t.Fatal(err)
	}
	use := storage.Use{User: own.UID, Own: own.UID, Shared: uid}
	m, err := h.Attach(t.Context(), use)
	if err != nil {
		t.Fatal(err)
	}
	shared := m.Shared
	tree, done, err := h.Files(t.Context(), use)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	uploads, done, err := h.Uploads(t.Context(), uid)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	h.fill(t, 32<<20)
	h.wantPressure(t, true)

	inside := make(chan error, 1)
	name := filepath.Join(shared.Dir, "workspace", "from-inside")
	go func() { inside <- os.WriteFile(name, []byte("kept"), 0o644) }()
	for path, tree := range map[string]storage.Tree{"/workspace/a": tree, "/mnt/user-data/outputs/a": tree, "/mnt/user-data/uploads/a": uploads} {
		if _, err := tree.Write(t.Context(), path, strings.NewReader("x"), sandbox.FileWrite{}); !errors.Is(err, errs.Exhausted) {
			t.Errorf("Write of %s on a nearly full host = %v, want exhausted", path, err)
		}
		if _, err := tree.Stat(t.Context(), filepath.Dir(path), true); err != nil {
			t.Errorf("Stat of the directory of %s = %v", path, err)
		}
	}
	select {
	case err := <-inside:
		t.Fatalf("a writer ended with %v, want it to wait", err)
	default:
	}

	if err := os.Remove(h.filler); err != nil {
		t.Fatal(err)
	}
	h.wantPressure(t, false)
	if err := <-inside; err != nil {
		t.Errorf("the writer that waited ended with %v", err)
	}
	if got, err := os.ReadFile(name); err != nil || string(got) != "kept" {
		t.Errorf("it wrote %q, %v", got, err)
	}
	if _, err := tree.Write(t.Context(), "/workspace/a", strings.NewReader("x"), sandbox.FileWrite{}); err != nil {
		t.Errorf("Write afterwards = %v", err)
	}
}
