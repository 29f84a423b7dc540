package snapshot

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store"
)

// A snapshot that was looked up was removed before it was used: whoever takes one has
// it until the end, or hears that it is, or is being, removed.
func TestSnapshotThatIsRemovedWhenItIsTaken(t *testing.T) {
	db, err := store.Open(t.Context(), store.Config{Path: filepath.Join(t.TempDir(), "cubby.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	s := New(Config{Store: db})
	tenant := ""
	kept := func(name string) sandbox.Snapshot {
		n := sandbox.Snapshot{UID: sandbox.NewUID(), Name: name}
		if err := errors.Join(db.CreateSnapshot(t.Context(), n), db.ReadySnapshot(t.Context(), n.UID, 1, 1)); err != nil {
			t.Fatal(err)
		}
		return n
	}
	n := kept("one")
	removed, ok := s.useAlone(n.UID)
	if !ok {
		t.Fatal("a snapshot that nobody uses cannot be removed")
	}
	if _, _, err := s.take(t.Context(), &tenant, "one"); !errors.Is(err, errs.WrongState) {
		t.Errorf("take of one that is being removed = %v", err)
	}
	if _, ok := s.useAlone(n.UID); ok {
		t.Error("two remove it")
	}
	removed()
	_, done, err := s.take(t.Context(), &tenant, "one")
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := s.useAlone(n.UID); ok {
		t.Error("one that is used can be removed")
	}
	done()

	for i := range 200 {
		n := kept(fmt.Sprint("n", i))
		var both sync.WaitGroup
		both.Go(func() {
			if removed, ok := s.useAlone(n.UID); ok {
				defer removed()
				if err := db.RemoveSnapshot(t.Context(), n.UID); err != nil {
					t.Error(err)
				}
			}
		})
		both.Go(func() {
			got, done, err := s.take(t.Context(), &tenant, n.Name)
			if errors.Is(err, errs.NotFound) || errors.Is(err, errs.WrongState) {
				return
			}
			if err != nil {
				t.Error(err)
				return
			}
			defer done()
			if now, err := db.SnapshotByUID(t.Context(), got.UID); err != nil || now.State != sandbox.SnapshotReady {
				t.Errorf("what is taken is %s, %v", now.State, err)
			}
		})
		both.Wait()
	}
}
