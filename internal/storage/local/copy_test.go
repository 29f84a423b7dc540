package local

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/storage"
	"github.com/cubbyhq/cubby/internal/storage/storagetest"
)

// A copy looks at the host's space as it goes.
func TestACopyEndsWhenTheHostFills(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "from"), make([]byte, 4*roomEvery), 0o644); err != nil {
		t.Fatal(err)
	}
	looks := 0
	c := &copier{ctx: t.Context(), room: func() error {
		if looks++; looks > 2 {
			return hostFull()
		}
		return nil
	}}
	from, err := os.Open(filepath.Join(dir, "from"))
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	to, err := os.Create(filepath.Join(dir, "to"))
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	// As where blocks cannot be shared.
	if err := c.extent(to, from, 0, 4*roomEvery); !errors.Is(err, errs.Exhausted) {
		t.Errorf("the copy ended with %v, want exhausted", err)
	}
	if st, err := to.Stat(); err != nil || st.Size() != 2*roomEvery {
		t.Errorf("it wrote %d bytes, %v, want %d", st.Size(), err, 2*roomEvery)
	}
}

// What copies take is booked, given back, and found again by the next daemon.
func TestCopiesArePromised(t *testing.T) {
	d := plainDisks(t, Config{})
	uid, clone := sandbox.NewUID(), sandbox.NewUID()
	if err := d.Create(t.Context(), uid, storage.Own, 64<<20); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(d.mnt(uid), "workspace", "f"), make([]byte, 1<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Clone(t.Context(), storage.Source{UID: uid}, clone); err != nil {
		t.Fatal(err)
	}
	s, _, err := d.Snapshot(t.Context(), uid, "s")
	if err != nil {
		t.Fatal(err)
	}
	want := int64(128<<20) + s.Allocated
	again, err := New(d.cfg)
	if err != nil {
		t.Fatal(err)
	}
	if d.promised != want || again.promised != want || s.Allocated < 1<<20 {
		t.Errorf("%d bytes are promised, and %d to the next daemon; want %d", d.promised, again.promised, want)
	}
	for _, uid := range []sandbox.UID{uid, clone} {
		if _, err := d.Remove(t.Context(), uid); err != nil {
			t.Fatal(err)
		}
	}
	if d.promised != 0 {
		t.Errorf("%d bytes stay promised", d.promised)
	}
}

func TestCopiesRespectTheOvercommit(t *testing.T) {
	d := plainDisks(t, Config{})
	uid := sandbox.NewUID()
	if err := d.Create(t.Context(), uid, storage.Own, 64<<20); err != nil {
		t.Fatal(err)
	}
	d.cfg.Overcommit = 1e-9
	if _, err := d.Clone(t.Context(), storage.Source{UID: uid}, sandbox.NewUID()); !errors.Is(err, errs.Exhausted) {
		t.Errorf("Clone = %v, want exhausted", err)
	}
	if _, _, err := d.Snapshot(t.Context(), uid, "s"); !errors.Is(err, errs.Exhausted) {
		t.Errorf("Snapshot = %v, want exhausted", err)
	}
	if d.promised != 64<<20 {
		t.Errorf("%d bytes are promised, want those of the one disk", d.promised)
	}
}

// A damaged note of a snapshot is said, and keeps no daemon from its start.
func TestASnapshotThatCannotBeRead(t *testing.T) {
	d := plainDisks(t, Config{})
	uid := sandbox.NewUID()
	if err := d.Create(t.Context(), uid, storage.Own, 64<<20); err != nil {
		t.Fatal(err)
	}
	if _, _, err := d.Snapshot(t.Context(), uid, "s"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(d.snapshotDir(uid, "s"), infoName), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	again, err := New(d.cfg)
	if err != nil {
		t.Fatal(err)
	}
	if all, err := again.Snapshots(t.Context(), uid); err == nil {
		t.Errorf("Snapshots = %v, want an error: what cannot be read is not gone", all)
	}
	if err := storagetest.Restore(t.Context(), again, uid, storage.Source{UID: uid, Snapshot: "s"}); err == nil {
		t.Error("Restore of what cannot be read succeeds")
	}
	if _, err := again.Remove(t.Context(), uid); err != nil {
		t.Errorf("Remove = %v", err)
	}
}

// whenAsked is a context that does something whenever it is asked for its end.
type whenAsked struct {
	context.Context
	do func()
}

func (c whenAsked) Err() error { c.do(); return nil }

// The way back is "..", which a directory that is moved meanwhile has elsewhere:
// the copy ends instead of going on there.
func TestACopyDoesNotFollowADirectoryThatIsMoved(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	for _, name := range []string{filepath.Join(from, "a", "b", "c", "f"), to} {
		if err := os.MkdirAll(name, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	at := 0
	moves := whenAsked{t.Context(), func() {
		if at++; at == 4 { // a, b, c, and now f
			if err := os.Rename(filepath.Join(from, "a", "b", "c"), filepath.Join(from, "c")); err != nil {
				t.Error(err)
			}
		}
	}}
	c := &copier{ctx: moves, room: func() error { return nil }}
	if err := c.tree(to, from, filepath.Join(dir, "links")); !errors.Is(err, errMoved) {
		t.Errorf("the copy of what was moved = %v, want that it ends", err)
	}
}

// A restore that is given up, cut off or done leaves no copy behind, and what is
// promised is the sizes of the disks.
func TestARestorationLeavesNothing(t *testing.T) {
	d := plainDisks(t, Config{})
	small, large, uid := sandbox.NewUID(), sandbox.NewUID(), sandbox.NewUID()
	sizes := map[sandbox.UID]int64{small: 64 << 20, large: 128 << 20, uid: 64 << 20}
	for uid, bytes := range sizes {
		if err := d.Create(t.Context(), uid, storage.Own, bytes); err != nil {
			t.Fatal(err)
		}
	}
	check := func(when string) {
		t.Helper()
		left, err := filepath.Glob(filepath.Join(d.cfg.Dir, poolName, unfinished+"*"))
		if err != nil || len(left) > 0 {
			t.Errorf("%s: %v is left, %v", when, left, err)
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		if want := sizes[small] + sizes[large] + sizes[uid]; d.promised != want {
			t.Errorf("%s: %d bytes are promised, want %d", when, d.promised, want)
		}
	}
	prepare := func(from sandbox.UID) storage.Restoration {
		t.Helper()
		r, err := d.Prepare(t.Context(), uid, storage.Source{UID: from})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	check("before")
	prepare(large).Discard()
	check("given up")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.Prepare(ended, uid, storage.Source{UID: large}); !errors.Is(err, context.Canceled) {
		t.Errorf("Prepare = %v, want canceled", err)
	}
	check("cut off")
	// Two at once, of which the second finds the disk grown.
	first, second := prepare(large), prepare(large)
	for _, r := range []storage.Restoration{first, second} {
		if err := r.Restore(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.Discard()
	}
	sizes[uid] = sizes[large]
	check("grown")
	r := prepare(small)
	if err := r.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.Discard()
	sizes[uid] = sizes[small]
	check("smaller")
}
