//go:build root

package local

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/storage"
)

// testClock is a clock that a test moves.
type testClock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *testClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *testClock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// usedDisks has an own disk and a shared one.
type usedDisks struct {
	*Disks
	*testClock
	own, shared sandbox.UID
}

func newUsedDisks(t *testing.T) *usedDisks {
	t.Helper()
	c := &testClock{now: time.Now()}
	u := &usedDisks{realDisks(t, Config{Now: c.Now}), c, sandbox.NewUID(), sandbox.NewUID()}
	if err := u.Create(t.Context(), u.own, storage.Own, storage.MinBytes); err != nil {
		t.Fatal(err)
	}
	if err := u.Create(t.Context(), u.shared, storage.Shared, storage.MinBytes); err != nil {
		t.Fatal(err)
	}
	return u
}

func (u *usedDisks) use(by sandbox.UID) storage.Use {
	return storage.Use{User: by, Own: u.own, Shared: u.shared}
}

func (u *usedDisks) attach(t *testing.T, use storage.Use) {
	t.Helper()
	if _, err := u.Attach(t.Context(), use); err != nil {
		t.Fatal(err)
	}
}

func (u *usedDisks) detach(t *testing.T, use storage.Use) {
	t.Helper()
	if err := u.Detach(t.Context(), use.User, use.Own); err != nil {
		t.Errorf("Detach = %v", err)
	}
}

func (u *usedDisks) wantMounted(t *testing.T, when string, own, shared bool) {
	t.Helper()
	if got := mounted(u.dir(u.own)); got != own {
		t.Errorf("%s the own disk is mounted: %v, want %v", when, got, own)
	}
	if got := mounted(u.dir(u.shared)); got != shared {
		t.Errorf("%s the shared disk is mounted: %v, want %v", when, got, shared)
	}
}

func TestASharedDiskStaysForItsLastUser(t *testing.T) {
	u := newUsedDisks(t)
	first := u.use(u.own)
	u.attach(t, first)
	u.attach(t, first) // as one that is adopted
	other := storage.Use{User: sandbox.NewUID(), Own: sandbox.NewUID(), Shared: u.shared}
	if err := u.Create(t.Context(), other.Own, storage.Own, storage.MinBytes); err != nil {
		t.Fatal(err)
	}
	u.attach(t, other)
	u.detach(t, first)
	u.wantMounted(t, "after the first left", false, true)
	u.detach(t, first)
	u.wantMounted(t, "after the first left once more", false, true)
	u.detach(t, other)
	u.wantMounted(t, "after the last left", false, false)
}

// A failed attach leaves nothing that counts.
func TestAFailedAttachIsNoUse(t *testing.T) {
	u := newUsedDisks(t)
	for name, use := range map[string]storage.Use{
		"no such own disk":    {User: u.own, Own: sandbox.NewUID(), Shared: u.shared},
		"no such shared disk": {User: u.own, Own: u.own, Shared: sandbox.NewUID()},
	} {
		if _, err := u.Attach(t.Context(), use); !errors.Is(err, errs.NotFound) {
			t.Errorf("Attach, %s = %v, want not found", name, err)
		}
	}
	if u.InUse(u.own) || u.InUse(u.shared) {
		t.Errorf("in use: own %v, shared %v, want neither", u.InUse(u.own), u.InUse(u.shared))
	}
	// One that runs already goes on.
	u.attach(t, u.use(u.own))
	if _, err := u.Attach(t.Context(), storage.Use{User: u.own, Own: u.own, Shared: sandbox.NewUID()}); !errors.Is(err, errs.NotFound) {
		t.Errorf("Attach = %v, want not found", err)
	}
	if !u.InUse(u.own) {
		t.Error("a second attach that failed ended the first")
	}
}

func TestDisksRestAMinuteAfterTheirFilesWereUsed(t *testing.T) {
	u := newUsedDisks(t)
	tree, done, err := u.Files(t.Context(), u.use(u.own))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tree.Write(t.Context(), "f", strings.NewReader("kept"), sandbox.FileWrite{}); err != nil {
		t.Fatal(err)
	}
	rest := func(when string, mounted bool) {
		t.Helper()
		if err := u.Rest(t.Context()); err != nil {
			t.Errorf("Rest %s = %v", when, err)
		}
		u.wantMounted(t, when, mounted, mounted)
	}
	u.add(time.Hour)
	rest("while they are used", true)
	done()
	u.add(lingerTime - time.Second)
	rest("soon after", true)
	u.add(time.Second)
	rest("a minute after", false)
	// A start between the use and the rest.
	_, done, err = u.Files(t.Context(), u.use(u.own))
	if err != nil {
		t.Fatal(err)
	}
	u.attach(t, u.use(u.own))
	done()
	u.add(time.Hour)
	rest("while the sandbox runs", true)
	u.detach(t, u.use(u.own))
	u.wantMounted(t, "after it stopped", false, false)
}

// Files that are being read outlive a stop; when a sandbox goes for good,
// nothing of its use lingers.
func TestReadersKeepADisk(t *testing.T) {
	u := newUsedDisks(t)
	tree, done, err := u.Files(t.Context(), u.use(u.own))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tree.Write(t.Context(), "f", strings.NewReader("kept"), sandbox.FileWrite{}); err != nil {
		t.Fatal(err)
	}
	u.attach(t, u.use(u.own))
	u.detach(t, u.use(u.own))
	u.wantMounted(t, "after a stop, with a reader,", true, true)
	if !u.InUse(u.shared) {
		t.Error("a disk whose files are read is not in use")
	}
	r, _, err := tree.Read(t.Context(), "f", 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r); err != nil || string(got) != "kept" {
		t.Errorf("read %q, %v", got, err)
	}
	r.Close()
	done()
	if u.InUse(u.shared) {
		t.Error("a disk is in use after its last reader ended")
	}
	if _, err := u.Remove(t.Context(), u.own); err != nil {
		t.Fatal(err)
	}
	u.detach(t, u.use(u.own))
	u.wantMounted(t, "after the sandbox is gone", false, false)
}

func TestUploadsLeaveNoMount(t *testing.T) {
	u := newUsedDisks(t)
	tree, done, err := u.Uploads(t.Context(), u.shared)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tree.Write(t.Context(), sandbox.UploadsDir+"/f", strings.NewReader("x"), sandbox.FileWrite{}); err != nil {
		t.Fatal(err)
	}
	if !u.InUse(u.shared) {
		t.Error("a disk whose uploads are used is not in use")
	}
	done()
	if u.InUse(u.shared) || mounted(u.dir(u.shared)) {
		t.Errorf("afterwards it is in use: %v, mounted: %v; want neither", u.InUse(u.shared), mounted(u.dir(u.shared)))
	}
}

// What a daemon that was killed left mounted goes down, but for what may run.
func TestReleaseOfWhatAnEarlierProcessLeft(t *testing.T) {
	u := newUsedDisks(t)
	u.attach(t, u.use(u.own))
	next, err := New(u.cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := next.Release(t.Context(), func(sandbox.UID) bool { return true }); err != nil {
		t.Fatal(err)
	}
	u.wantMounted(t, "while both may run", true, true)
	if _, done, err := next.Files(t.Context(), storage.Use{User: u.own, Own: u.own}); err != nil {
		t.Fatal(err)
	} else {
		defer done()
	}
	if err := next.Release(t.Context(), func(sandbox.UID) bool { return false }); err != nil {
		t.Fatal(err)
	}
	u.wantMounted(t, "with a use of the own one that is known", true, false)
}

// Many use one shared disk and their own at once, in every way, while disks are
// taken down wherever nobody uses them: whoever has a disk has its files, and in
// the end nothing is mounted.
func TestAStormOfUses(t *testing.T) {
	u := newUsedDisks(t)
	ctx := t.Context()
	const users, turns = 4, 12
	var storm, around sync.WaitGroup
	stop := make(chan struct{})
	has := func(what string, uid sandbox.UID) {
		if !mounted(u.dir(uid)) {
			t.Errorf("%s: the disk is not mounted", what)
		}
	}
	ok := func(what string, err error) {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for range users {
		own := sandbox.NewUID()
		ok("Create", u.Create(ctx, own, storage.Own, storage.MinBytes))
		use := storage.Use{User: own, Own: own, Shared: u.shared}
		storm.Go(func() {
			for range turns {
				_, err := u.Attach(ctx, use)
				ok("Attach", err)
				has("attached", own)
				has("attached", u.shared)
				ok("Detach", u.Detach(ctx, own, own))
			}
		})
		storm.Go(func() {
			reader := storage.Use{User: sandbox.NewUID(), Own: own, Shared: u.shared}
			for range turns {
				_, done, err := u.Files(ctx, reader)
				if err != nil {
					t.Errorf("Files: %v", err)
					return
				}
				has("read", own)
				has("read", u.shared)
				done()
			}
		})
	}
	storm.Go(func() {
		for range turns {
			_, done, err := u.Uploads(ctx, u.shared)
			if err != nil {
				t.Errorf("Uploads: %v", err)
				return
			}
			has("uploads", u.shared)
			done()
		}
	})
	storm.Go(func() {
		for i := range turns / 4 {
			name := fmt.Sprintf("s%d", i)
			_, _, err := u.Snapshot(ctx, u.shared, name)
			ok("Snapshot", err)
			_, err = u.RemoveSnapshot(ctx, u.shared, name)
			ok("RemoveSnapshot", err)
		}
	})
	around.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			u.add(2 * lingerTime)
			ok("Rest", u.Rest(ctx))
			ok("Release", u.Release(ctx, func(sandbox.UID) bool { return false }))
		}
	})
	storm.Wait()
	close(stop)
	around.Wait()
	u.add(2 * lingerTime)
	ok("Rest", u.Rest(ctx))
	if left := mountsBelow(t, u.cfg.Dir); len(left) != 0 {
		t.Errorf("mounted are %v", left)
	}
}
