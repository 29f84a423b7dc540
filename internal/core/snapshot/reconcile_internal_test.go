package snapshot

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/storage"
	"github.com/cubbyhq/cubby/internal/store"
)

// disksOf have a disk removed by a function.
type disksOf struct {
	storage.Storage
	remove func(uid sandbox.UID)
}

func (d disksOf) Remove(_ context.Context, uid sandbox.UID) (int64, error) {
	d.remove(uid)
	return 0, nil
}

type noImages struct{}

func (noImages) Pin(context.Context, string, sandbox.UID) error   { return nil }
func (noImages) Unpin(context.Context, string, sandbox.UID) error { return nil }

// While the reconciler cleared one snapshot that was cut off, the next in its list became
// ready, and lost its files.
func TestASnapshotThatBecomesReadyIsNotReconciled(t *testing.T) {
	db, err := store.Open(t.Context(), store.Config{Path: filepath.Join(t.TempDir(), "cubby.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	s := New(Config{Store: db, Images: noImages{}, Log: slog.New(slog.DiscardHandler)})
	broken := sandbox.Snapshot{UID: sandbox.NewUID(), Name: "broken"}
	making := sandbox.Snapshot{UID: sandbox.NewUID(), Name: "making"}
	if broken.UID > making.UID {
		broken.UID, making.UID = making.UID, broken.UID
	}
	if err := errors.Join(db.CreateSnapshot(t.Context(), broken), db.CreateSnapshot(t.Context(), making)); err != nil {
		t.Fatal(err)
	}
	done, err := s.use(making.UID) // as Create does
	if err != nil {
		t.Fatal(err)
	}
	s.cfg.Disks = disksOf{remove: func(uid sandbox.UID) {
		switch uid {
		case broken.UID: // meanwhile Create comes to its end
			if err := db.ReadySnapshot(t.Context(), making.UID, 1, 1); err != nil {
				t.Error(err)
			}
			done()
		case making.UID:
			n, err := db.SnapshotByUID(t.Context(), uid)
			t.Errorf("the files of a snapshot that is %s were removed, %v", n.State, err)
		}
	}}
	if err := s.Reconcile(t.Context()); err != nil {
		t.Errorf("Reconcile = %v", err)
	}
	if n, err := db.SnapshotByUID(t.Context(), making.UID); err != nil || n.State != sandbox.SnapshotReady {
		t.Errorf("the snapshot that became ready is %q, %v", n.State, err)
	}
	if _, err := db.SnapshotByUID(t.Context(), broken.UID); !errors.Is(err, errs.NotFound) {
		t.Errorf("the one that was cut off is there: %v", err)
	}
}
