//go:build root

package oci

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/driver/oci/memory"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// sickDisk is a file system that has room for names, and whose device fails with EIO
// what reads or writes the content of files, from the moment that it is told to.
type sickDisk struct {
	t           *testing.T
	device, dir string
}

// sound is how much of the device goes on to work: where the file system's own
// tables are, and a file that is in nobody's way.
const sound = 32 << 20

func newSickDisk(t *testing.T) sickDisk {
	t.Helper()
	file, d := filepath.Join(t.TempDir(), "disk"), sickDisk{t: t, dir: t.TempDir()}
	run := func(command string) string {
		args := strings.Fields(command)
		out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", command, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	run("truncate -s 128M " + file) // one group of blocks, so that all tables are at the beginning
	run("mkfs.ext4 -q -m 0 -b 4096 -O ^has_journal " + file)
	d.device = run("losetup --show -f " + file)
	t.Cleanup(func() {
		if out, err := exec.Command("losetup", "-d", d.device).CombinedOutput(); err != nil {
			t.Errorf("losetup: %v: %s", err, out)
		}
	})
	// So that whoever writes is who learns of it.
	run("mount -o sync " + d.device + " " + d.dir)
	t.Cleanup(func() {
		if err := unix.Unmount(d.dir, 0); err != nil {
			t.Error(err)
		}
	})
	if err := errors.Join(os.Mkdir(d.path("half"), 0o700), os.WriteFile(d.path("filler"), make([]byte, sound), 0o600)); err != nil {
		t.Fatal(err)
	}
	return d
}

func (d sickDisk) path(name string) string { return filepath.Join(d.dir, name) }

// limit makes the device end after so many bytes; 0: where it ended at first.
func (d sickDisk) limit(bytes uint64) {
	d.t.Helper()
	f, err := os.Open(d.device)
	if err != nil {
		d.t.Fatal(err)
	}
	defer f.Close()
	info, err := unix.IoctlLoopGetStatus64(int(f.Fd()))
	if err == nil {
		info.Sizelimit = bytes
		err = unix.IoctlLoopSetStatus64(int(f.Fd()), info)
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

// take puts a file onto the disk, in whose place there is a link then, and returns
// how it comes back.
func (d sickDisk) take(path string) (back func()) {
	t := d.t
	t.Helper()
	aside := filepath.Join(t.TempDir(), "aside")
	on := d.path(filepath.Base(path))
	from, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	to, err := os.Create(on)
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	if _, err := io.Copy(to, from); err != nil {
		t.Fatal(err)
	}
	// The kernel remembers what was written.
	if err := errors.Join(to.Sync(), unix.Fadvise(int(to.Fd()), 0, 0, unix.FADV_DONTNEED), os.Rename(path, aside), os.Symlink(on, path)); err != nil {
		t.Fatal(err)
	}
	d.limit(sound)
	if _, err := os.ReadFile(on); !errors.Is(err, unix.EIO) {
		t.Fatalf("the disk is well: %v", err)
	}
	return func() {
		t.Helper()
		d.limit(0)
		if err := errors.Join(os.Remove(path), os.Rename(aside, path)); err != nil {
			t.Fatal(err)
		}
	}
}

// failsWhile does an act for which a directory is made, until that was on a sick disk
// in time.
func (r *running) failsWhile(what, dir string, act func() error) {
	t := r.t
	t.Helper()
	d := newSickDisk(t)
	d.limit(sound)
	link := filepath.Join(r.m.cfg.StateDir, "link")
	for attempt := 1; ; attempt++ {
		r.do("Symlink", os.Symlink(d.path("half"), link))
		done := make(chan error, 1)
		go func() { done <- act() }()
		var err error
		for over, placed := false, false; !over; {
			select {
			case err = <-done:
				over = true
			default:
				if _, statErr := os.Stat(dir); statErr == nil && !placed {
					placed = true
					if err := memory.Exchange(link, dir); !errors.Is(err, unix.ENOENT) { // it was written meanwhile
						r.do("Exchange", err)
					}
				}
			}
		}
		r.do("RemoveAll", os.RemoveAll(link))
		t.Logf("%s: %v", what, err)
		tooLate := errors.Is(err, unix.EISDIR) // all was written, and what lies there is a link
		if err != nil && !tooLate {
			if !strings.Contains(err.Error(), unix.EIO.Error()) || errors.Is(err, errs.Exhausted) || errors.Is(err, errs.Unsupported) {
				t.Fatalf("%s = %v, want that the disk is sick", what, err)
			}
			r.phase(driver.PhaseRunning)
		}
		r.goesOn(what+" on a disk that is sick", attempt)
		if err != nil && !tooLate {
			return
		}
		if attempt == 10 {
			t.Fatal("the disk was never sick in time")
		}
	}
}

// TestDiskFailsWhileAMemoryIsWritten: the sandbox is left as it was.
func TestDiskFailsWhileAMemoryIsWritten(t *testing.T) {
	name := sandbox.NewUID()
	sleep := func(r *running) error { return r.d.Sleep(r.ctx, r.h) }
	snapshot := func(r *running) error {
		_, err := r.d.Snapshot(r.ctx, r.h, name, func(context.Context) error { return nil })
		if left, listErr := r.d.Snapshots(r.ctx); err != nil && (listErr != nil || len(left) > 0) {
			t.Errorf("a snapshot that failed leaves %v, %v", left, listErr)
		}
		return errors.Join(err, r.d.RemoveSnapshot(r.ctx, name))
	}
	for what, tt := range map[string]struct {
		dir func(r *running) string
		act func(r *running) error
	}{
		"the memory of a sleep":          {func(r *running) string { return r.d.box(r.spec.UID).memory().HalfImage() }, sleep},
		"the system files of a sleep":    {func(r *running) string { return r.d.box(r.spec.UID).halfSaved() }, sleep},
		"the memory of a snapshot":       {func(r *running) string { return r.d.snapshotOf(name).HalfImage() }, snapshot},
		"the system files of a snapshot": {func(r *running) string { return r.d.snapshotOf(name).HalfRoot() }, snapshot},
	} {
		t.Run(what, func(t *testing.T) {
			r := start(t, runsc, testSpec(t, sandbox.GVisor))
			r.counts()
			r.failsWhile(what, tt.dir(r), func() error { return tt.act(r) })
		})
	}
}

// TestWakeFromASickDisk: a memory that cannot be read now is not damaged. It wakes
// when it can be read again, and is given up by a stop.
func TestWakeFromASickDisk(t *testing.T) {
	for _, name := range []string{"manifest", "image/pages.img"} {
		for what, sentries := range map[string]int{"": 0, " into a sentry": 1} {
			t.Run(name+what, func(t *testing.T) {
				m := newMachine(t, runsc)
				m.cfg.Sentries = sentries
				r := startOn(t, m, testSpec(t, sandbox.GVisor))
				r.counts()
				path := filepath.Join(r.d.box(r.spec.UID).path("memory"), name)
				unreadable := func() {
					t.Helper()
					if sentries > 0 {
						r.awaitSentry()
					}
					if err := r.d.Wake(r.ctx, r.h); !errors.Is(err, errs.Unavailable) || errors.Is(err, errs.NotFound) {
						t.Errorf("Wake = %v, want unavailable", err)
					}
					r.phase(driver.PhaseAsleep)
				}
				d := newSickDisk(t)
				r.do("Sleep", r.d.Sleep(r.ctx, r.h))
				back := d.take(path)
				unreadable()
				unreadable()
				back()
				r.goesOn("when the disk is well", 1)

				r.do("Sleep", r.d.Sleep(r.ctx, r.h))
				d.take(path)
				unreadable()
				r.do("Stop", r.d.Stop(r.ctx, r.h, 0))
				r.phase(driver.PhaseCreated)
				r.do("Start", r.d.Start(r.ctx, r.h))
				r.alive()
			})
		}
	}
}

// TestRestoreFromASickDisk is [TestWakeFromASickDisk] of a snapshot.
func TestRestoreFromASickDisk(t *testing.T) {
	for _, name := range []string{"manifest", "image/pages.img"} {
		t.Run(name, func(t *testing.T) {
			r := start(t, runsc, testSpec(t, sandbox.GVisor))
			r.counts()
			kept, files := r.keeps()
			back := newSickDisk(t).take(filepath.Join(r.d.snapshotDir(kept), "memory", name))
			if _, err := r.d.Restore(r.ctx, kept, r.cloneSpec(files)); !errors.Is(err, errs.Unavailable) || errors.Is(err, errs.NotFound) {
				t.Errorf("Restore = %v, want unavailable", err)
			}
			back()
			r.restored(kept, files)
		})
	}
}
