package storagetest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/storage"
)

// wantCopy checks that a disk has what a description says.
func (s *suite) wantCopy(uid sandbox.UID, want map[string]string) {
	s.t.Helper()
	s.with(uid, func(dir string) {
		got := describe(s.t, dir)
		for name, w := range want {
			if got[name] != w {
				s.t.Errorf("%s is\n%s, want\n%s", name, got[name], w)
			}
		}
		for name := range got {
			if _, ok := want[name]; !ok {
				s.t.Errorf("%s is there and should not be", name)
			}
		}
	})
}

func testClone(t *testing.T, s *suite) {
	from, to := s.disk(storage.Own), sandbox.NewUID()
	var want map[string]string
	s.with(from, func(dir string) {
		fill(t, dir)
		want = describe(t, dir)
	})
	if _, err := s.Clone(t.Context(), storage.Source{UID: from}, to); err != nil {
		t.Fatal(err)
	}
	s.wantCopy(to, want)
	s.wantCopy(from, want)
	if a, b := s.usage(from), s.usage(to); b.Bytes != a.Bytes || b.Allocated > a.Allocated+(4<<20) {
		t.Errorf("Usage of the clone = %+v, of its source %+v: want as much", b, a)
	}
	// From then on they know nothing of each other.
	s.write(from, "f", "of the source")
	s.write(to, "f", "of the clone")
	s.wantFile(from, "f", "of the source")
	s.wantFile(to, "f", "of the clone")
	_, err := s.Clone(t.Context(), storage.Source{UID: from}, to)
	s.want(errs.Conflict, "Clone to a disk that exists", err)
	_, err = s.Clone(t.Context(), storage.Source{UID: from}, from)
	s.want(errs.Conflict, "Clone to itself", err)
	_, err = s.Remove(t.Context(), from)
	s.ok(err)
	s.wantFile(to, "f", "of the clone")
}

// testCloneInUse: the clone of a disk that is written to is of one instant, or
// refused.
func testCloneInUse(t *testing.T, s *suite) {
	from, to := s.disk(storage.Own), sandbox.NewUID()
	dir := filepath.Join(s.attach(from), "workspace")
	stop, wrote := make(chan struct{}), make(chan error, 1)
	begun := make(chan struct{})
	go func() {
		put := func(name string, n int) error {
			tmp := filepath.Join(dir, name+".tmp")
			if err := os.WriteFile(tmp, []byte(strconv.Itoa(n)), 0o644); err != nil {
				return err
			}
			return os.Rename(tmp, filepath.Join(dir, name))
		}
		for n := 1; ; n++ {
			// The second follows the first.
			for _, name := range []string{"first", "second"} {
				if err := put(name, n); err != nil {
					wrote <- err
					return
				}
			}
			if n == 10 {
				close(begun)
			}
			select {
			case <-stop:
				wrote <- nil
				return
			default:
			}
		}
	}()
	<-begun
	paused, err := s.Clone(t.Context(), storage.Source{UID: from}, to)
	close(stop)
	s.ok(<-wrote) // nobody who waits is left waiting
	s.detach(from)
	if err != nil {
		s.want(errs.Conflict, "Clone of a disk in use", err)
		if all := s.list(); len(all) != 1 {
			t.Errorf("List = %v, want one", all)
		}
		if _, err := s.Clone(t.Context(), storage.Source{UID: from}, to); err != nil {
			t.Errorf("Clone after its use = %v", err)
		}
	} else if paused <= 0 {
		t.Error("the writers of a disk in use did not wait")
	}
	s.with(to, func(dir string) {
		number := func(name string) int {
			b, err := os.ReadFile(filepath.Join(dir, "workspace", name))
			s.ok(err)
			n, err := strconv.Atoi(string(b))
			s.ok(err)
			return n
		}
		if first, second := number("first"), number("second"); first < 10 || second != first && second != first-1 {
			t.Errorf("the clone has %d and %d, which never were there at one time", first, second)
		}
	})
}

// testCloneStill: a disk in use is cloned when its user stands still.
func testCloneStill(t *testing.T, s *suite) {
	from, to := s.disk(storage.Own), sandbox.NewUID()
	dir := s.attach(from)
	s.ok(os.WriteFile(filepath.Join(dir, "workspace", "f"), []byte("x"), 0o644))
	_, err := s.Clone(t.Context(), storage.Source{UID: from, Still: true}, to)
	s.ok(err)
	s.detach(from)
	s.wantFile(to, "f", "x")
}

func testClonesCross(t *testing.T, s *suite) {
	a, b := s.disk(storage.Own), s.disk(storage.Own)
	s.write(a, "f", "a")
	s.write(b, "f", "b")
	var wg sync.WaitGroup
	clones := make([]sandbox.UID, 8)
	for i := range clones {
		clones[i] = sandbox.NewUID()
		wg.Go(func() {
			if _, err := s.Clone(t.Context(), storage.Source{UID: []sandbox.UID{a, b}[i%2]}, clones[i]); err != nil {
				t.Errorf("Clone = %v", err)
			}
		})
		wg.Go(func() {
			if _, err := s.Clone(t.Context(), storage.Source{UID: []sandbox.UID{a, b}[i%2]}, []sandbox.UID{b, a}[i%2]); err == nil {
				t.Error("Clone to a disk that exists succeeds")
			}
		})
	}
	wg.Wait()
	for i, uid := range clones {
		s.wantFile(uid, "f", []string{"a", "b"}[i%2])
	}
}

// testDeep: a guest makes directories deeper than any path can be.
func testDeep(t *testing.T, s *suite) {
	const levels = 60 // of 100 bytes: more than PATH_MAX
	name := strings.Repeat("d", 100)
	// at is the directory so many levels down.
	at := func(dir string, enter func(fd int)) int {
		fd, err := unix.Open(filepath.Join(dir, "workspace"), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		s.ok(err)
		for range levels {
			enter(fd)
			next, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			s.ok(err)
			s.ok(unix.Close(fd))
			fd = next
		}
		return fd
	}
	from, to := s.disk(storage.Own), sandbox.NewUID()
	s.with(from, func(dir string) {
		fd := at(dir, func(fd int) { s.ok(unix.Mkdirat(fd, name, 0o755)) })
		s.ok(unix.Symlinkat("reached", fd, "bottom"))
		s.ok(unix.Close(fd))
	})
	_, err := s.Clone(t.Context(), storage.Source{UID: from}, to)
	s.ok(err)
	s.with(to, func(dir string) {
		fd := at(dir, func(int) {})
		b := make([]byte, 20)
		n, err := unix.Readlinkat(fd, "bottom", b)
		if err != nil || string(b[:n]) != "reached" {
			t.Errorf("at the bottom of the clone there is %q, %v", b[:max(n, 0)], err)
		}
		s.ok(unix.Close(fd))
	})
}

func testSnapshots(t *testing.T, s *suite) {
	uid := s.disk(storage.Own)
	s.write(uid, "f", strings.Repeat("1", 1<<20))
	before := time.Now().Add(-time.Second)
	made, _, err := s.Snapshot(t.Context(), uid, "one")
	s.ok(err)
	if made.Name != "one" || made.Bytes != diskBytes || made.Allocated < 1<<20 || made.CreatedAt.Before(before) {
		t.Errorf("Snapshot = %+v, want %q of %d bytes with 1 MiB allocated, just now", made, "one", diskBytes)
	}
	_, _, err = s.Snapshot(t.Context(), uid, "one")
	s.want(errs.Conflict, "a second Snapshot of the name", err)
	second, _, err := s.Snapshot(t.Context(), uid, "another")
	s.ok(err)
	all, err := s.Snapshots(t.Context(), uid)
	s.ok(err)
	if len(all) != 2 || all[0].Name != "one" || all[1].Name != "another" || !all[0].CreatedAt.Equal(made.CreatedAt) || all[0].Allocated != made.Allocated {
		t.Errorf("Snapshots = %+v, want %+v and %+v", all, made, second)
	}
	if u := s.usage(uid); u.Snapshots != made.Allocated+second.Allocated {
		t.Errorf("Usage = %+v, want snapshots of %d", u, made.Allocated+second.Allocated)
	}
	freed, err := s.RemoveSnapshot(t.Context(), uid, "one")
	if err != nil || freed != made.Allocated {
		t.Errorf("RemoveSnapshot = %d, %v, want %d", freed, err, made.Allocated)
	}
	_, err = s.RemoveSnapshot(t.Context(), uid, "one")
	s.want(errs.NotFound, "RemoveSnapshot again", err)
	if u := s.usage(uid); u.Snapshots != second.Allocated {
		t.Errorf("Usage = %+v, want a snapshot of %d", u, second.Allocated)
	}
	s.wantFile(uid, "f", strings.Repeat("1", 1<<20))
	// They go with their disk.
	freed, err = s.Remove(t.Context(), uid)
	if err != nil || freed < second.Allocated+1<<20 {
		t.Errorf("Remove = %d, %v, want more than the %d of the snapshot", freed, err, second.Allocated)
	}
	s.ok(s.Create(t.Context(), uid, storage.Own, diskBytes))
	if all, err := s.Snapshots(t.Context(), uid); err != nil || len(all) != 0 {
		t.Errorf("Snapshots of a new disk = %v, %v, want none", all, err)
	}
}

func testSnapshotNames(t *testing.T, s *suite) {
	uid := s.disk(storage.Own)
	for _, name := range []string{"", ".", "..", "../x", "a/b", "A", "-a", "a-", ".a", "a\x00", "ä", strings.Repeat("a", 65)} {
		_, _, err := s.Snapshot(t.Context(), uid, name)
		s.want(errs.Invalid, fmt.Sprintf("Snapshot %q", name), err)
		s.want(errs.Invalid, fmt.Sprintf("Restore %q", name), s.restore(t.Context(), uid, storage.Source{UID: uid, Snapshot: name}))
		_, err = s.RemoveSnapshot(t.Context(), uid, name)
		s.want(errs.Invalid, fmt.Sprintf("RemoveSnapshot %q", name), err)
		if name != "" {
			_, err = s.Clone(t.Context(), storage.Source{UID: uid, Snapshot: name}, sandbox.NewUID())
			s.want(errs.Invalid, fmt.Sprintf("Clone of %q", name), err)
		}
	}
	for _, name := range []string{"a", "0", "v1.2_x-y", strings.Repeat("a", 64)} {
		_, _, err := s.Snapshot(t.Context(), uid, name)
		s.ok(err)
	}
}

func testRestore(t *testing.T, s *suite) {
	uid := s.disk(storage.Own)
	var want map[string]string
	s.with(uid, func(dir string) {
		fill(t, dir)
		want = describe(t, dir)
	})
	_, _, err := s.Snapshot(t.Context(), uid, "s")
	s.ok(err)
	dir := s.attach(uid)
	s.ok(os.RemoveAll(filepath.Join(dir, "workspace")))
	s.ok(os.WriteFile(filepath.Join(dir, "home", "later"), []byte("x"), 0o644))
	s.want(errs.Conflict, "Restore of a disk in use", s.restore(t.Context(), uid, storage.Source{UID: uid, Snapshot: "s"}))
	s.detach(uid)
	// Files that are used are a use too; what only lingers after them is none.
	_, done, err := s.Files(t.Context(), storage.Use{User: uid, Own: uid})
	s.ok(err)
	s.want(errs.Conflict, "Restore of a disk whose files are used", s.restore(t.Context(), uid, storage.Source{UID: uid, Snapshot: "s"}))
	done()
	s.wantFile(uid, "small", "")
	for range 2 { // the snapshot stays
		s.ok(s.restore(t.Context(), uid, storage.Source{UID: uid, Snapshot: "s"}))
		s.wantCopy(uid, want)
		s.write(uid, "after", "x")
	}
	s.wantFile(uid, "after", "x")
}

// testRestoreFromAnother: a disk gets the content of another disk, or of a
// snapshot of one, with its size.
func testRestoreFromAnother(t *testing.T, s *suite) {
	from, uid := sandbox.NewUID(), s.disk(storage.Own)
	s.ok(s.Create(t.Context(), from, storage.Own, 2*diskBytes))
	var want map[string]string
	s.with(from, func(dir string) {
		fill(t, dir)
		want = describe(t, dir)
	})
	_, _, err := s.Snapshot(t.Context(), from, "s")
	s.ok(err)
	s.write(uid, "of-before", "x")
	_, _, err = s.Snapshot(t.Context(), uid, "own")
	s.ok(err)

	dir := s.attach(uid)
	s.want(errs.Conflict, "Restore of a disk in use", s.restore(t.Context(), uid, storage.Source{UID: from}))
	s.detach(uid)
	s.ok(s.restore(t.Context(), uid, storage.Source{UID: from}))
	s.wantCopy(uid, want)
	s.wantCopy(from, want)
	if u := s.usage(uid); u.Bytes != 2*diskBytes {
		t.Errorf("the size of the disk is %d, want that of its source, %d", u.Bytes, 2*diskBytes)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Errorf("the disk is not where it was: %v", err)
	}
	// From then on they know nothing of each other.
	s.write(uid, "f", "of the restored")
	s.wantFile(from, "f", "")
	// Its own snapshots stay, and have their own size.
	s.ok(s.restore(t.Context(), uid, storage.Source{UID: uid, Snapshot: "own"}))
	s.wantFile(uid, "of-before", "x")
	if u := s.usage(uid); u.Bytes != diskBytes {
		t.Errorf("the size of the disk is %d, want that of its snapshot, %d", u.Bytes, diskBytes)
	}
	s.ok(s.restore(t.Context(), uid, storage.Source{UID: from, Snapshot: "s"}))
	s.wantCopy(uid, want)
	s.want(errs.Invalid, "Restore of a disk to itself", s.restore(t.Context(), uid, storage.Source{UID: uid}))
	s.wantCopy(uid, want)
	_, err = s.Remove(t.Context(), from)
	s.ok(err)
	s.want(errs.NotFound, "Restore to a disk that is gone", s.restore(t.Context(), uid, storage.Source{UID: from}))
	s.want(errs.NotFound, "Restore of a disk that is gone", s.restore(t.Context(), from, storage.Source{UID: uid}))
	s.wantCopy(uid, want)
	if all := s.list(); len(all) != 1 {
		t.Errorf("List = %v, want one", all)
	}
}

// testRestorePrepared: a restore is prepared while the disk is in use, and has what
// its source had then.
func testRestorePrepared(t *testing.T, s *suite) {
	from, uid := s.disk(storage.Own), s.disk(storage.Own)
	s.write(from, "f", "prepared")
	s.write(uid, "f", "before")
	s.attach(uid)
	r, err := s.Prepare(t.Context(), uid, storage.Source{UID: from})
	s.ok(err)
	s.want(errs.Conflict, "Restore of a disk in use", r.Restore(t.Context()))
	s.write(from, "f", "after")
	s.detach(uid)
	s.wantFile(uid, "f", "before")
	s.ok(r.Restore(t.Context()))
	r.Discard()
	s.wantFile(uid, "f", "prepared")
	s.wantFile(from, "f", "after")

	// One that is given up, and one whose disk goes.
	r, err = s.Prepare(t.Context(), uid, storage.Source{UID: from})
	s.ok(err)
	r.Discard()
	s.wantFile(uid, "f", "prepared")
	r, err = s.Prepare(t.Context(), uid, storage.Source{UID: from})
	s.ok(err)
	defer r.Discard()
	_, err = s.Remove(t.Context(), uid)
	s.ok(err)
	s.want(errs.NotFound, "Restore of a disk that is gone", r.Restore(t.Context()))
	if all := s.list(); len(all) != 1 {
		t.Errorf("List = %v, want one", all)
	}
}

// testRestoresCross: restores of two disks to each other do not wait for each
// other forever, and each gives all of one content.
func testRestoresCross(t *testing.T, s *suite) {
	a, b := s.disk(storage.Own), s.disk(storage.Own)
	s.write(a, "f", "a")
	s.write(b, "f", "b")
	// A copy is of the time when it was made: two of before change places.
	ofB, err := s.Prepare(t.Context(), a, storage.Source{UID: b})
	s.ok(err)
	defer ofB.Discard()
	ofA, err := s.Prepare(t.Context(), b, storage.Source{UID: a})
	s.ok(err)
	defer ofA.Discard()
	s.ok(ofB.Restore(t.Context()))
	s.ok(ofA.Restore(t.Context()))
	s.wantFile(a, "f", "b")
	s.wantFile(b, "f", "a")
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			to, from := []sandbox.UID{a, b}[i%2], []sandbox.UID{b, a}[i%2]
			if err := s.restore(t.Context(), to, storage.Source{UID: from}); err != nil {
				t.Errorf("Restore = %v", err)
			}
		})
	}
	wg.Wait()
	// Each is a copy of what one of them was at some time, and whole.
	for _, uid := range []sandbox.UID{a, b} {
		s.with(uid, func(dir string) {
			if got, err := os.ReadFile(filepath.Join(dir, "workspace", "f")); err != nil || string(got) != "a" && string(got) != "b" {
				s.t.Errorf("f has %.60q, %v", got, err)
			}
		})
	}
}

func testCloneOfSnapshot(t *testing.T, s *suite) {
	uid, to := s.disk(storage.Shared), sandbox.NewUID()
	s.write(uid, "f", "then")
	_, _, err := s.Snapshot(t.Context(), uid, "s")
	s.ok(err)
	s.write(uid, "f", "now")
	s.attach(uid) // who uses the disk does not use its snapshots
	_, err = s.Clone(t.Context(), storage.Source{UID: uid, Snapshot: "s"}, to)
	s.ok(err)
	s.detach(uid)
	s.wantFile(to, "f", "then")
	s.wantFile(uid, "f", "now")
	if all, err := s.Snapshots(t.Context(), to); err != nil || len(all) != 0 {
		t.Errorf("Snapshots of a clone = %v, %v, want none", all, err)
	}
	_, err = s.Remove(t.Context(), uid)
	s.ok(err)
	s.wantFile(to, "f", "then")
}
