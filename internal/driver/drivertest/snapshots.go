package drivertest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

func snapshotterTests() []suiteTest {
	return []suiteTest{
		{"snapshot", testSnapshot},
		{"snapshot is of one instant", testSnapshotOfOneInstant},
		{"snapshot outlives all", testSnapshotOutlives},
		{"rollback", testRollback},
		{"restored identity", testRestoredIdentity},
		{"what is restored lives as others do", testRestoredLife},
		{"snapshot is all or nothing", testSnapshotAllOrNothing},
		{"restore is all or nothing", testRestoreAllOrNothing},
		{"snapshot refuses", testSnapshotRefuses},
		{"restore refuses", testRestoreRefuses},
		{"damaged snapshot", testDamagedSnapshot},
	}
}

func (s *suite) snapshotter() driver.Snapshotter {
	snapshotter, _ := driver.As[driver.Snapshotter](s.d)
	return snapshotter
}

// instant are the files of a sandbox at the moment of a snapshot.
type instant struct {
	parent driver.Spec
	dir    string
}

func (s *suite) instant(t *testing.T, parent driver.Spec) instant {
	t.Helper()
	return instant{parent, t.TempDir()}
}

// copyFiles takes the files, as a storage would.
func (i instant) copyFiles(ctx context.Context) error {
	for _, v := range i.parent.Volumes {
		to := filepath.Join(i.dir, string(v.Role))
		if err := exec.CommandContext(ctx, "cp", "-a", "--sparse=always", v.Dir, to).Run(); err != nil {
			return err
		}
	}
	return nil
}

// lay puts the files onto the volumes of another spec, in the place of what is
// there.
func (i instant) lay(t *testing.T, spec driver.Spec) {
	t.Helper()
	for _, v := range spec.Volumes {
		entries, err := os.ReadDir(v.Dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if err := os.RemoveAll(filepath.Join(v.Dir, e.Name())); err != nil {
				t.Fatal(err)
			}
		}
		if out, err := exec.Command("cp", "-a", "--sparse=always", filepath.Join(i.dir, string(v.Role))+"/.", v.Dir).CombinedOutput(); err != nil {
			t.Fatalf("cp: %v: %s", err, out)
		}
	}
}

// like is a spec of a sandbox that can be restored, with the files in place.
func (i instant) like(t *testing.T, s *suite) driver.Spec {
	t.Helper()
	spec := s.env.Spec(t)
	spec.Image, spec.Limits, spec.Isolation = i.parent.Image, i.parent.Limits, i.parent.Isolation
	spec.Identity.ID = "another"
	i.lay(t, spec)
	return spec
}

// snapshot keeps a running sandbox; false where its isolation cannot.
func (s *suite) snapshot(t *testing.T, h driver.Handle, name sandbox.UID, copyFiles func(context.Context) error) bool {
	t.Helper()
	kept, err := s.snapshotter().Snapshot(s.ctx, h, name, copyFiles)
	if errors.Is(err, errs.Unsupported) {
		s.exec(t, h, "true")
		s.kept(t, name, false)
		return false
	}
	s.do(t, "Snapshot", err)
	t.Cleanup(func() {
		if err := s.snapshotter().RemoveSnapshot(context.Background(), name); err != nil {
			t.Errorf("RemoveSnapshot: %v", err)
		}
	})
	if kept.Bytes <= 0 || kept.Paused <= 0 {
		t.Errorf("Snapshot = %+v, want its size and its pause", kept)
	}
	s.kept(t, name, true)
	s.phase(t, h, driver.PhaseRunning)
	return true
}

func (s *suite) kept(t *testing.T, name sandbox.UID, want bool) {
	t.Helper()
	names, err := s.snapshotter().Snapshots(s.ctx)
	if err != nil || !slices.IsSorted(names) {
		t.Fatalf("Snapshots = %v, %v; want them sorted", names, err)
	}
	if got := slices.Contains(names, name); got != want {
		t.Fatalf("Snapshots names the snapshot = %v, want %v", got, want)
	}
}

func (s *suite) restore(t *testing.T, name sandbox.UID, spec driver.Spec) driver.Handle {
	t.Helper()
	h, err := s.snapshotter().Restore(s.ctx, name, spec)
	s.do(t, "Restore", err)
	s.endsWith(t, spec.UID)
	s.phase(t, h, driver.PhaseRunning)
	s.listed(t, spec.UID, true)
	return h
}

func (s *suite) endsWith(t *testing.T, uid sandbox.UID) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.d.Sweep(ctx, uid); err != nil {
			t.Errorf("Sweep: %v", err)
		}
	})
}

// counts checks what the counter says next, where memory is kept.
func (s *suite) counts(t *testing.T, h driver.Handle, who, want string) {
	t.Helper()
	if !s.env.KeepsMemory {
		return
	}
	if got := s.count(t, h); got != want {
		t.Errorf("%s: the counter said %q, want %s", who, got, want)
	}
}

func testSnapshot(t *testing.T, s *suite) {
	parent, h := s.start(t)
	s.leaveFiles(t, h)
	s.counter(t, h)
	s.count(t, h)
	before := s.bootID(t, h)
	name, files := sandbox.NewUID(), s.instant(t, parent)
	copied := 0
	if !s.snapshot(t, h, name, func(ctx context.Context) error { copied++; return files.copyFiles(ctx) }) {
		return
	}
	if copied != 1 {
		t.Errorf("the files were copied %d times, want once", copied)
	}
	if after := s.bootID(t, h); after != before {
		t.Errorf("agent %s answers in the parent, want %s", after, before)
	}
	if got := s.count(t, h); got != "2" {
		t.Errorf("the parent's counter said %q, want 2", got)
	}
	s.exec(t, h, "echo later > a")

	// Several at once.
	const many = 3
	clones := make([]driver.Handle, many)
	failed := make(chan error, many)
	for i := range many {
		spec := files.like(t, s)
		s.endsWith(t, spec.UID)
		go func() {
			var err error
			clones[i], err = s.snapshotter().Restore(s.ctx, name, spec)
			failed <- err
		}()
	}
	for range many {
		s.do(t, "Restore", <-failed)
	}
	for _, clone := range clones {
		s.files(t, clone)
		s.counts(t, clone, "a restored sandbox", "2")
		s.exec(t, clone, "echo other > a")
	}
	if got := s.exec(t, h, "cat a"); got != "later\n" {
		t.Errorf("the parent's file is %q", got)
	}
	s.do(t, "RemoveSnapshot", s.snapshotter().RemoveSnapshot(s.ctx, name))
	s.kept(t, name, false)
	s.do(t, "Destroy of one", s.d.Destroy(s.ctx, clones[0]))
	s.do(t, "Destroy of the parent", s.d.Destroy(s.ctx, h))
	for _, clone := range clones[1:] {
		s.counts(t, clone, "after the end of its parent", "3")
		if got := s.exec(t, clone, "cat a"); got != "other\n" {
			t.Errorf("the file of a restored sandbox is %q after its parent's end", got)
		}
	}
}

// A command that writes down every number that it counts has left none out and
// none twice, in what was restored: its files are those of its memory.
func testSnapshotOfOneInstant(t *testing.T, s *suite) {
	parent, h := s.start(t)
	s.launch(t, h, "n=0; : > log; echo ready; while :; do n=$((n+1)); echo $n >> log; sleep 0.001; done")
	s.exec(t, h, "while [ $(wc -l < log) -lt 20 ]; do sleep 0.01; done")
	name, files := sandbox.NewUID(), s.instant(t, parent)
	var lines int
	if !s.snapshot(t, h, name, func(ctx context.Context) error {
		log := filepath.Join(driver.VolumeDir(parent.Volumes, driver.VolumeWorkspace), "log")
		first, err := os.ReadFile(log)
		if err != nil {
			return err
		}
		if err := files.copyFiles(ctx); err != nil {
			return err
		}
		last, err := os.ReadFile(log)
		if lines = strings.Count(string(last), "\n"); s.env.KeepsMemory && string(first) != string(last) {
			t.Errorf("the sandbox went on while its files were copied")
		}
		return err
	}) {
		return
	}
	everyOne := func(who string, h driver.Handle) {
		s.exec(t, h, "while [ $(wc -l < log) -lt "+strconv.Itoa(lines+20)+" ]; do sleep 0.01; done")
		for i, line := range strings.Split(strings.TrimSpace(s.exec(t, h, "head -n -1 log")), "\n") {
			if line != strconv.Itoa(i+1) {
				t.Fatalf("%s: line %d of its log is %q", who, i+1, line)
			}
		}
	}
	everyOne("the parent", h)
	if s.env.KeepsMemory {
		everyOne("a restored sandbox", s.restore(t, name, files.like(t, s)))
	}
}

func testSnapshotOutlives(t *testing.T, s *suite) {
	parent, h := s.start(t)
	s.leaveFiles(t, h)
	s.counter(t, h)
	s.count(t, h)
	name, files := sandbox.NewUID(), s.instant(t, parent)
	if !s.snapshot(t, h, name, files.copyFiles) {
		return
	}
	s.do(t, "Destroy", s.d.Destroy(s.ctx, h))
	s.d = s.env.Reopen(t)
	s.kept(t, name, true)
	spec := files.like(t, s)
	clone := s.restore(t, name, spec)
	s.d = s.env.Reopen(t)
	s.do(t, "Adopt", s.d.Adopt(s.ctx, clone))
	s.files(t, clone)
	s.counts(t, clone, "after a restart", "2")
	s.do(t, "Destroy", s.d.Destroy(s.ctx, clone))
	s.kept(t, name, true)
}

func testRollback(t *testing.T, s *suite) {
	spec, h := s.start(t)
	s.leaveFiles(t, h)
	s.counter(t, h)
	s.count(t, h)
	name, files := sandbox.NewUID(), s.instant(t, spec)
	if !s.snapshot(t, h, name, files.copyFiles) {
		return
	}
	for range 2 {
		s.exec(t, h, "echo wrong > a")
		s.counts(t, h, "before a rollback", "2")
		_, err := s.snapshotter().Restore(s.ctx, name, spec)
		wantKind(t, "Restore of a sandbox that is there", err, errs.Conflict)
		s.do(t, "Destroy", s.d.Destroy(s.ctx, h))
		files.lay(t, spec)
		h = s.restore(t, name, spec)
		s.files(t, h)
	}
	s.counts(t, h, "after the last rollback", "2")
}

func testRestoredIdentity(t *testing.T, s *suite) {
	parent, h := s.nobody(t)
	h = s.identify(t, h, identity(parent, "parent"))
	name, files := sandbox.NewUID(), s.instant(t, parent)
	if !s.snapshot(t, h, name, files.copyFiles) {
		return
	}
	clone := s.restore(t, name, files.like(t, s))
	s.is(t, clone, "parent", "parent")
	clone = s.identify(t, clone, identity(parent, "clone"))
	s.is(t, clone, "clone", "clone")
	s.is(t, h, "parent", "parent")
	s.do(t, "Stop", s.d.Stop(s.ctx, clone, 0))
	s.do(t, "Start", s.d.Start(s.ctx, clone))
	s.is(t, clone, "clone", "clone")
}

func testRestoredLife(t *testing.T, s *suite) {
	parent, h := s.start(t)
	s.leaveFiles(t, h)
	s.counter(t, h)
	s.count(t, h)
	name, files := sandbox.NewUID(), s.instant(t, parent)
	if !s.snapshot(t, h, name, files.copyFiles) {
		return
	}
	spec := files.like(t, s)
	clone := s.restore(t, name, spec)
	if _, ok := driver.As[driver.Sleeper](s.d); ok && s.sleep(t, clone) {
		s.wake(t, clone)
		s.counts(t, clone, "after a wake", "2")
	}
	// One of what was restored.
	second, grandFiles := sandbox.NewUID(), s.instant(t, spec)
	if !s.snapshot(t, clone, second, grandFiles.copyFiles) {
		t.Fatal("what was restored cannot be kept")
	}
	grandchild := s.restore(t, second, grandFiles.like(t, s))
	s.counts(t, grandchild, "a restored sandbox of a restored one", "3")

	// It begins cold with the files of the snapshot, also when nothing saved them
	// since then.
	s.env.Crash(t, spec.UID)
	if _, err := s.d.Wait(s.ctx, clone); err != nil {
		t.Fatalf("Wait: %v", err)
	}
	s.do(t, "Start after a death", s.d.Start(s.ctx, clone))
	s.files(t, clone)
}

func testSnapshotAllOrNothing(t *testing.T, s *suite) {
	_, h := s.start(t)
	s.counter(t, h)
	before := s.bootID(t, h)
	full := errors.New("no space left")
	name := sandbox.NewUID()
	_, err := s.snapshotter().Snapshot(s.ctx, h, name, func(context.Context) error { return full })
	if errors.Is(err, errs.Unsupported) {
		return
	}
	if !errors.Is(err, full) {
		t.Errorf("Snapshot = %v, want what the copy failed with", err)
	}
	s.kept(t, name, false)
	ctx, cancel := context.WithCancel(s.ctx)
	if _, err := s.snapshotter().Snapshot(ctx, h, name, func(ctx context.Context) error { cancel(); return ctx.Err() }); !errors.Is(err, context.Canceled) {
		t.Errorf("Snapshot that was canceled = %v, want canceled", err)
	}
	s.kept(t, name, false)
	s.phase(t, h, driver.PhaseRunning)
	if after := s.bootID(t, h); after != before {
		t.Errorf("agent %s answers after a snapshot that failed, want %s", after, before)
	}
	if got := s.count(t, h); got != "1" {
		t.Errorf("the counter said %q, want 1", got)
	}
}

func testRestoreAllOrNothing(t *testing.T, s *suite) {
	parent, h := s.start(t)
	name, files := sandbox.NewUID(), s.instant(t, parent)
	if !s.snapshot(t, h, name, files.copyFiles) {
		return
	}
	spec := files.like(t, s)
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	if _, err := s.snapshotter().Restore(ctx, name, spec); err == nil {
		t.Fatal("Restore with a canceled context succeeded")
	}
	s.listed(t, spec.UID, false)
	s.exec(t, s.restore(t, name, spec), "true")
}

func testSnapshotRefuses(t *testing.T, s *suite) {
	_, idle := s.create(t)
	_, h := s.start(t)
	_, gone := s.create(t)
	s.do(t, "Destroy", s.d.Destroy(s.ctx, gone))
	taken, copied := sandbox.NewUID(), false
	refused := func(what string, h driver.Handle, name sandbox.UID, kind errs.Kind) {
		t.Helper()
		copied = false
		_, err := s.snapshotter().Snapshot(s.ctx, h, name, func(context.Context) error { copied = true; return nil })
		wantKind(t, "Snapshot of "+what, err, kind, errs.Unsupported)
		if copied {
			t.Errorf("%s: its files were copied all the same", what)
		}
	}
	refused("what does not run", idle, sandbox.NewUID(), errs.WrongState)
	refused("what is gone", gone, sandbox.NewUID(), errs.NotFound)
	refused("a malformed name", h, "../../etc", errs.Invalid)
	if !s.snapshot(t, h, taken, func(context.Context) error { return nil }) {
		return
	}
	refused("a name that is taken", h, taken, errs.Conflict)
	s.kept(t, taken, true)
	s.exec(t, h, "true")
	if _, ok := driver.As[driver.Sleeper](s.d); ok && s.sleep(t, h) {
		refused("what sleeps", h, sandbox.NewUID(), errs.WrongState)
		s.phase(t, h, driver.PhaseAsleep)
	}
}

func testRestoreRefuses(t *testing.T, s *suite) {
	spec := s.env.Spec(t)
	_, err := s.snapshotter().Restore(s.ctx, sandbox.NewUID(), spec)
	wantKind(t, "Restore of no snapshot", err, errs.NotFound, errs.Unsupported)
	s.listed(t, spec.UID, false)

	parent, h := s.start(t)
	name, files := sandbox.NewUID(), s.instant(t, parent)
	if !s.snapshot(t, h, name, files.copyFiles) {
		return
	}
	other := t.TempDir()
	tests := []struct {
		name   string
		change func(*driver.Spec)
		want   errs.Kind
	}{
		{"a uid that is taken", func(s *driver.Spec) { s.UID = parent.UID }, errs.Conflict},
		{"other limits", func(s *driver.Spec) { s.Limits.MemoryBytes *= 2 }, errs.Invalid},
		{"another image", func(s *driver.Spec) { s.Image.Dir = other }, errs.Invalid},
		{"another volume", func(s *driver.Spec) {
			s.Volumes = append(slices.Clone(s.Volumes), driver.Volume{Role: driver.VolumeOutputs, Dir: other})
		}, errs.Invalid},
		{"no memory", func(s *driver.Spec) { s.Limits.MemoryBytes = 0 }, errs.Invalid},
	}
	for _, tt := range tests {
		spec := files.like(t, s)
		tt.change(&spec)
		_, err := s.snapshotter().Restore(s.ctx, name, spec)
		wantKind(t, "Restore with "+tt.name, err, tt.want)
		s.listed(t, spec.UID, spec.UID == parent.UID)
	}
	s.exec(t, h, "true")
	s.exec(t, s.restore(t, name, files.like(t, s)), "true")
}

func testDamagedSnapshot(t *testing.T, s *suite) {
	parent, h := s.start(t)
	name, files := sandbox.NewUID(), s.instant(t, parent)
	if !s.snapshot(t, h, name, files.copyFiles) {
		return
	}
	s.env.DamageSnapshot(t, name)
	spec := files.like(t, s)
	_, err := s.snapshotter().Restore(s.ctx, name, spec)
	wantKind(t, "Restore of a damaged snapshot", err, errs.NotFound)
	s.listed(t, spec.UID, false)
	for range 2 {
		s.do(t, "RemoveSnapshot", s.snapshotter().RemoveSnapshot(s.ctx, name))
		s.kept(t, name, false)
	}
	s.exec(t, h, "true")
}
