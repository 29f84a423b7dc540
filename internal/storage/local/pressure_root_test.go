//go:build root

package local

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/hostdisk"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/storage"
)

// smallHost makes a file system of its own to be the host.
func smallHost(t *testing.T, bytes int64) string {
	t.Helper()
	dir := t.TempDir()
	image, mnt := filepath.Join(dir, "host.img"), filepath.Join(dir, "host")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, bytes); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(program("mkfs.ext4"), "-q", "-F", "-b", "4096", "-m", "0", image).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.Mkdir(mnt, 0o700); err != nil {
		t.Fatal(err)
	}
	dev, _, err := attach(image)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	if err := unix.Mount(dev.Name(), mnt, "ext4", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(mnt, 0); err != nil {
			t.Errorf("unmount the small host: %v", err)
		}
	})
	return mnt
}

// tightHost is a small host with disks, a running watcher, and a filler file
// that leaves so many bytes free. release removes the filler.
type tightHost struct {
	*Disks
	pressure chan bool
	filler   string
	stop     func()
}

func newTightHost(t *testing.T, bytes, reserve int64) *tightHost {
	t.Helper()
	host := smallHost(t, bytes)
	h := &tightHost{pressure: make(chan bool, 16), filler: filepath.Join(host, "filler")}
	h.Disks = realDisks(t, Config{
		Dir:        filepath.Join(host, "disks"),
		Reserve:    reserve,
		OnPressure: func(frozen bool, _ int64) { h.pressure <- frozen },
	})
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- h.Run(ctx) }()
	stopped := false
	h.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ran; err != nil {
			t.Errorf("Run = %v", err)
		}
	}
	t.Cleanup(h.stop)
	return h
}

// fill takes space of the host until so many bytes are free.
func (h *tightHost) fill(t *testing.T, free int64) {
	t.Helper()
	s, err := hostdisk.Measure(h.cfg.Dir)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(h.filler)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Fallocate(int(f.Fd()), 0, 0, s.Free-free); err != nil {
		t.Fatal(err)
	}
}

func (h *tightHost) wantPressure(t *testing.T, frozen bool) {
	t.Helper()
	select {
	case got := <-h.pressure:
		if got != frozen {
			t.Fatalf("frozen is reported as %v, want %v", got, frozen)
		}
	case <-time.After(time.Minute):
		t.Fatalf("waited in vain for frozen = %v", frozen)
	}
}

// A guest writes as fast as it can, through its page cache, far more than the
// host has. It must be stopped while everything it wrote still fits, and lose
// nothing.
func TestNothingIsLostWhenTheHostFillsUp(t *testing.T) {
	h := newTightHost(t, 1<<30, 256<<20)
	disk := mustCreate(t, h.Disks, 1<<30)
	h.fill(t, 512<<20)
	const size = 640 << 20
	name := filepath.Join(disk.Dir, "workspace", "big")
	file, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	sum := sha256.New()
	wrote := make(chan error, 1)
	go func() {
		pattern := make([]byte, 1<<20+256)
		for j := range pattern {
			pattern[j] = byte(j * 7)
		}
		for i := range size >> 20 {
			block := pattern[i%256:][:1<<20] // unlike its neighbours
			sum.Write(block)
			if _, err := file.Write(block); err != nil {
				wrote <- err
				return
			}
		}
		wrote <- file.Sync()
	}()
	h.wantPressure(t, true)
	s, err := hostdisk.Measure(h.cfg.Dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("frozen, with %d MiB of the host free", s.Free>>20)
	if s.Free < 8<<20 {
		t.Errorf("frozen with %d MiB free, want some left", s.Free>>20)
	}
	select {
	case err := <-wrote:
		t.Fatalf("the writer ended with %v, want it to wait", err)
	default:
	}
	if err := os.Remove(h.filler); err != nil {
		t.Fatal(err)
	}
	h.wantPressure(t, false)
	if err := <-wrote; err != nil {
		t.Fatalf("the writer ended with %v, want everything written", err)
	}
	// From the image, not from memory.
	file.Close()
	if err := h.unmountAlone(t.Context(), disk.UID); err != nil {
		t.Fatal(err)
	}
	if _, err := h.mountAlone(t.Context(), disk.UID); err != nil {
		t.Fatal(err)
	}
	if file, err = os.Open(name); err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	got := sha256.New()
	if n, err := io.Copy(got, file); err != nil || n != size {
		t.Errorf("%d bytes are on the disk, %v, want %d", n, err, size)
	}
	if !bytes.Equal(got.Sum(nil), sum.Sum(nil)) {
		t.Error("what is on the disk differs from what was written")
	}
}

func TestRefusalsWhileFrozen(t *testing.T) {
	h := newTightHost(t, 512<<20, 128<<20)
	disk, other := mustCreate(t, h.Disks, 64<<20), mustCreate(t, h.Disks, 64<<20)
	if err := h.unmountAlone(t.Context(), other.UID); err != nil {
		t.Fatal(err)
	}
	h.fill(t, 32<<20)
	h.wantPressure(t, true)
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"Admit", h.Admit},
		{"Create", func() error { _, err := h.createAlone(t.Context(), sandbox.NewUID(), 64<<20); return err }},
		{"Mount", func() error { _, err := h.mountAlone(t.Context(), other.UID); return err }},
		{"Tree.Write", func() error {
			tree, err := h.filesAlone(t.Context(), disk.UID)
			if err == nil {
				_, err = tree.Write(t.Context(), "x", strings.NewReader("x"), sandbox.FileWrite{})
			}
			return err
		}},
	} {
		if err := step.do(); !errors.Is(err, errs.Exhausted) || errs.Public(err).RetryAfter == 0 {
			t.Errorf("%s on a nearly full host = %v, want exhausted with a time to try again", step.name, err)
		}
	}
	tree, err := h.filesAlone(t.Context(), disk.UID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tree.Stat(t.Context(), "/workspace", true); err != nil {
		t.Errorf("Stat while frozen = %v, want nil: reading goes on", err)
	}
	// Removing is how space comes back.
	for _, uid := range []sandbox.UID{disk.UID, other.UID} {
		if _, err := h.Remove(t.Context(), uid); err != nil {
			t.Errorf("Remove while frozen = %v", err)
		}
	}
}

func TestRunThawsOnItsWayOut(t *testing.T) {
	h := newTightHost(t, 512<<20, 128<<20)
	disk := mustCreate(t, h.Disks, 64<<20)
	// As a sandbox that runs has it: what nobody uses is unmounted on the way out.
	if _, err := h.Attach(t.Context(), storage.Use{User: disk.UID, Own: disk.UID}); err != nil {
		t.Fatal(err)
	}
	h.fill(t, 32<<20)
	h.wantPressure(t, true)
	wrote := make(chan error, 1)
	go func() { wrote <- os.WriteFile(filepath.Join(disk.Dir, "workspace", "a"), []byte("x"), 0o644) }()
	h.stop()
	select {
	case err := <-wrote:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		thawDir(disk.Dir)
		t.Error("the writer still waits after Run has ended: not thawed")
	}
}

func TestNewThawsWhatACrashLeftFrozen(t *testing.T) {
	d := realDisks(t, Config{})
	disk := mustCreate(t, d, 32<<20)
	if err := d.freeze(disk.UID); err != nil {
		t.Fatal(err)
	}
	if _, err := New(d.cfg); err != nil {
		t.Fatal(err)
	}
	wrote := make(chan error, 1)
	go func() { wrote <- os.WriteFile(filepath.Join(disk.Dir, "workspace", "a"), []byte("x"), 0o644) }()
	select {
	case err := <-wrote:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		thawDir(disk.Dir)
		t.Error("the disk is still frozen")
	}
}

func TestRemoveOfAFrozenDisk(t *testing.T) {
	d := realDisks(t, Config{})
	disk := mustCreate(t, d, 32<<20)
	if err := freezeDir(disk.Dir); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Remove(t.Context(), disk.UID); err != nil {
		t.Errorf("Remove = %v", err)
	}
	nothingBelow(t, d.cfg.Dir)
}

func TestOvercommitIsBounded(t *testing.T) {
	host := smallHost(t, 256<<20)
	d := realDisks(t, Config{Dir: filepath.Join(host, "disks"), Overcommit: 2})
	disk := mustCreate(t, d, 256<<20)
	if _, err := d.createAlone(t.Context(), sandbox.NewUID(), 512<<20); !errors.Is(err, errs.Exhausted) {
		t.Errorf("Create beyond the bound = %v, want exhausted", err)
	}
	if _, err := d.Remove(t.Context(), disk.UID); err != nil {
		t.Fatal(err)
	}
	mustCreate(t, d, 256<<20)
}
