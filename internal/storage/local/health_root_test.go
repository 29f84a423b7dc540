//go:build root

package local

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/hostdisk"
	"github.com/cubbyhq/cubby/internal/poll"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/storage"
)

// faultWatch is disks on a small host that tell of their faults.
type faultWatch struct {
	*Disks
	host  string
	found chan storage.Fault
	over  chan storage.Fault
}

func newFaultWatch(t *testing.T) *faultWatch {
	t.Helper()
	f := &faultWatch{host: smallHost(t, 256<<20), found: make(chan storage.Fault, 16), over: make(chan storage.Fault, 16)}
	f.Disks = realDisks(t, Config{Dir: filepath.Join(f.host, "disks"), Reserve: 16 << 20, OnFault: func(fault storage.Fault, over bool) {
		if over {
			f.over <- fault
		} else {
			f.found <- fault
		}
	}})
	return f
}

func await[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(time.Minute):
		t.Fatalf("waited in vain for %s", what)
		panic("not reached")
	}
}

// fillAtOnce takes all room of the host before anybody sees it coming.
func (f *faultWatch) fillAtOnce(t *testing.T) (giveBack func()) {
	t.Helper()
	name := filepath.Join(f.host, "filler")
	file, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	s, err := hostdisk.Measure(f.host)
	if err != nil {
		t.Fatal(err)
	}
	for free, size := s.Free, int64(0); free > 0; { // what the file's own tables take is not known before
		if err := unix.Fallocate(int(file.Fd()), 0, size, free); err == nil {
			size += free
		} else if free > 4096 {
			free /= 2
		} else {
			break
		}
	}
	return func() {
		t.Helper()
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
}

// wear makes directories until the disk's file system gives up.
func wear(t *testing.T, dir string) {
	t.Helper()
	for i := range 100_000 {
		name := filepath.Join(dir, "workspace", "wear"+strconv.Itoa(i))
		err := os.Mkdir(name, 0o755)
		if err == nil {
			err = syncDir(name)
		}
		if errors.Is(err, unix.EROFS) {
			return
		}
	}
	t.Fatal("the file system goes on")
}

// TestDiskThatCannotBeWrittenIsFoundAndRepaired: the host fills up before disks can
// be frozen, and gets room again. The kernel never writes to that mount again.
func TestDiskThatCannotBeWrittenIsFoundAndRepaired(t *testing.T) {
	f := newFaultWatch(t)
	user, other := sandbox.NewUID(), sandbox.NewUID()
	own, shared := mustCreate(t, f.Disks, 32<<20), mustCreate(t, f.Disks, 32<<20)
	m, err := f.Attach(t.Context(), storage.Use{User: user, Own: own.UID, Shared: shared.UID})
	if err != nil {
		t.Fatal(err)
	}
	kept := filepath.Join(m.Own.Dir, "workspace", "kept")
	if err := errors.Join(os.WriteFile(kept, []byte("whole"), 0o644), syncDir(kept)); err != nil {
		t.Fatal(err)
	}
	giveBack := f.fillAtOnce(t)
	wear(t, m.Own.Dir)
	giveBack()
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- f.Run(ctx) }()
	defer func() { cancel(); <-ran }()

	fault := await(t, "the fault", f.found)
	if fault.Disk != own.UID || fault.Shared || len(fault.Users) != 1 || fault.Users[0] != user {
		t.Errorf("the fault is %+v, want that of %s, used by %s", fault, own.UID, user)
	}
	if err := f.Writable(user); !errors.Is(err, errs.Unavailable) || errs.Public(err).RetryAfter == 0 || errs.Public(err).Hint == "" {
		t.Errorf("Writable = %v, want unavailable with a remedy and a time to try again", err)
	}
	if err := f.Writable(other); err != nil {
		t.Errorf("Writable of another sandbox = %v", err)
	}
	if b, err := os.ReadFile(kept); err != nil || string(b) != "whole" {
		t.Errorf("reading while the disk is broken: %q, %v", b, err)
	}
	if err := f.Detach(t.Context(), user, own.UID); err != nil {
		t.Fatal(err)
	}
	await(t, "the end of the fault", f.over)
	if _, err := f.Attach(t.Context(), storage.Use{User: user, Own: own.UID}); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(kept); err != nil || string(b) != "whole" {
		t.Errorf("after the repair: %q, %v", b, err)
	}
	if err := os.WriteFile(kept, []byte("goes on"), 0o644); err != nil {
		t.Errorf("after the repair: %v", err)
	}
	if err := f.Examine(user); err != nil || len(f.Faults()) > 0 {
		t.Errorf("after the repair: %v, %v", err, f.Faults())
	}
}

// A shared disk has one fault, of all who use it. While something else has its file
// system mounted it cannot be repaired, and that is said.
func TestSharedDiskThatCannotBeWritten(t *testing.T) {
	f := newFaultWatch(t)
	shared := mustCreate(t, f.Disks, 32<<20)
	var users []sandbox.UID
	for range 2 {
		own := mustCreate(t, f.Disks, 16<<20)
		users = append(users, own.UID)
		if _, err := f.Attach(t.Context(), storage.Use{User: own.UID, Own: own.UID, Shared: shared.UID}); err != nil {
			t.Fatal(err)
		}
	}
	breakDisk(t, shared.Dir)
	for _, user := range users {
		if err := f.Examine(user); !errors.Is(err, errs.Unavailable) {
			t.Errorf("Examine = %v, want unavailable", err)
		}
	}
	if fault := await(t, "the fault", f.found); !fault.Shared || len(fault.Users) != 2 {
		t.Errorf("the fault is %+v, want that of a shared disk with two users", fault)
	}
	if len(f.found) > 0 {
		t.Error("the fault was told again")
	}
	open, err := os.Open(filepath.Join(shared.Dir, "workspace"))
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	for _, user := range users {
		if err := f.Detach(t.Context(), user, user); err != nil {
			t.Fatal(err)
		}
	}
	use := storage.Use{User: users[0], Own: users[0], Shared: shared.UID}
	if _, err := f.Attach(t.Context(), use); !errors.Is(err, errs.Unavailable) {
		t.Errorf("Attach of a broken disk that is still in use = %v, want unavailable", err)
	}
	open.Close()
	if err := poll.Until(t.Context(), time.Millisecond, 50*time.Millisecond, func() (bool, error) {
		_, err := f.Attach(t.Context(), use)
		if err != nil && !errors.Is(err, errs.Unavailable) {
			return false, err
		}
		return err == nil, nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(shared.Dir, "workspace", "a"), []byte("x"), 0o644); err != nil {
		t.Error(err)
	}
}

// breakDisk makes the kernel note a fault in a mounted file system.
func breakDisk(t *testing.T, mnt string) {
	t.Helper()
	dir, err := openMount(mnt)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	var st unix.Stat_t
	// What is not on the disk yet is lost.
	if err := errors.Join(unix.Syncfs(int(dir.Fd())), unix.Fstat(int(dir.Fd()), &st)); err != nil {
		t.Fatal(err)
	}
	trigger := "/sys/fs/ext4/loop" + strconv.Itoa(int(unix.Minor(st.Dev))) + "/trigger_fs_error"
	if err := os.WriteFile(trigger, []byte("made by a test"), 0o200); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(mnt, "x"), nil, 0o600); !errors.Is(err, unix.EROFS) {
		t.Fatalf("a write = %v, want that the file system is read-only", err)
	}
}

// A ready disk that cannot be written to is given to nobody.
func TestReadyDiskThatCannotBeWrittenIsRemoved(t *testing.T) {
	d := realDisks(t, Config{Pool: 1, PoolBytes: 16 << 20})
	if err := d.refill(t.Context()); err != nil {
		t.Fatal(err)
	}
	ready := d.pool.ready[16<<20][0]
	breakDisk(t, filepath.Join(ready, mountName))
	if err := d.examine(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(ready); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the broken one: %v, want that it is gone", err)
	}
	disk := mustCreate(t, d, 16<<20)
	if err := os.WriteFile(filepath.Join(disk.Dir, "workspace", "a"), []byte("x"), 0o644); err != nil {
		t.Error(err)
	}
}

// TestSyncTellsOfWhatAProgramHasNotPassedOn: an fsync has reported the loss, and whoever
// called it kept that for itself.
func TestSyncTellsOfWhatAProgramHasNotPassedOn(t *testing.T) {
	f := newFaultWatch(t)
	own := mustCreate(t, f.Disks, 32<<20)
	if _, err := f.Attach(t.Context(), storage.Use{User: own.UID, Own: own.UID}); err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(filepath.Join(own.Dir, "workspace", "a"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := errors.Join(file.Sync(), f.Sync(t.Context(), own.UID)); err != nil {
		t.Fatal(err)
	}
	defer f.fillAtOnce(t)()
	if _, err := file.Write(make([]byte, 8<<20)); err != nil {
		t.Fatal(err)
	}
	if err := file.Sync(); err == nil {
		t.Fatal("the disk has taken it")
	}
	if err := f.Sync(t.Context(), own.UID); !errors.Is(err, errs.Unavailable) {
		t.Errorf("Sync = %v, want unavailable", err)
	}
	if err := f.Sync(t.Context(), sandbox.NewUID()); err != nil {
		t.Errorf("Sync of another sandbox = %v", err)
	}
}

// TestProcessesOfAFrozenDiskEnd: a writer that waits for room lets its sandbox be
// removed, and writes nothing more to the disk.
func TestProcessesOfAFrozenDiskEnd(t *testing.T) {
	h := newTightHost(t, 512<<20, 128<<20)
	own, shared := mustCreate(t, h.Disks, 64<<20), mustCreate(t, h.Disks, 64<<20)
	if _, err := h.Attach(t.Context(), storage.Use{User: own.UID, Own: own.UID, Shared: shared.UID}); err != nil {
		t.Fatal(err)
	}
	h.fill(t, 32<<20)
	h.wantPressure(t, true)
	if err := h.Writable(own.UID); !errors.Is(err, errs.Exhausted) {
		t.Errorf("Writable = %v, want exhausted", err)
	}
	wroteOwn, wroteShared := make(chan error, 1), make(chan error, 1)
	go func() { wroteOwn <- os.WriteFile(filepath.Join(own.Dir, "workspace", "a"), []byte("x"), 0o644) }()
	go func() {
		wroteShared <- os.WriteFile(filepath.Join(shared.Dir, "workspace", "a"), []byte("x"), 0o644)
	}()
	done := h.Sever(own.UID, own.UID)
	if err := await(t, "the writer of its own disk", wroteOwn); !errors.Is(err, unix.EIO) {
		t.Errorf("the writer of the disk to be removed ended with %v, want EIO", err)
	}
	if err := await(t, "the writer of the shared disk", wroteShared); err != nil {
		t.Errorf("the writer of the shared disk ended with %v", err)
	}
	done()
	if len(h.Faults()) > 0 {
		t.Errorf("a disk that is being removed counts as broken: %v", h.Faults())
	}
	if _, err := h.Remove(t.Context(), own.UID); err != nil {
		t.Error(err)
	}
	// The shared one is frozen again.
	if err := poll.Until(t.Context(), time.Millisecond, 50*time.Millisecond, func() (bool, error) {
		return errors.Is(freezeDir(shared.Dir), unix.EBUSY), nil
	}); err != nil {
		t.Error(err)
	}
}
