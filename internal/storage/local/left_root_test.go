//go:build root

package local

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestDiskWhoseMakingIsCutOffLeavesNothing: what is removed is that disk, and no file
// of the directory that the daemon happens to be in.
func TestDiskWhoseMakingIsCutOffLeavesNothing(t *testing.T) {
	d := realDisks(t, Config{Pool: 1, PoolBytes: 16 << 20})
	t.Chdir(t.TempDir())
	for _, name := range []string{imageName, plainName} {
		if err := os.WriteFile(name, []byte("somebody's"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.build(ctx, 16<<20, ownDirs()); !errors.Is(err, context.Canceled) {
		t.Fatalf("build = %v, want that it was cut off", err)
	}
	left, err := os.ReadDir(filepath.Join(d.cfg.Dir, poolName))
	if err != nil || len(left) > 0 {
		t.Errorf("it leaves %v, %v", left, err)
	}
	for _, name := range []string{imageName, plainName} {
		if _, err := os.Stat(name); err != nil {
			t.Errorf("the file %s of the working directory: %v", name, err)
		}
	}
}

// TestDevicesThatNobodyUsesAreDetached: the next daemon of a directory detaches what
// earlier ones left, also where the file was removed, and leaves what is in use.
func TestDevicesThatNobodyUsesAreDetached(t *testing.T) {
	d := realDisks(t, Config{Pool: 1, PoolBytes: 16 << 20})
	used := mustCreate(t, d, 16<<20)
	attach := func(name string) string {
		t.Helper()
		image := filepath.Join(d.cfg.Dir, poolName, name)
		if err := errors.Join(os.Mkdir(filepath.Dir(image), 0o700), os.WriteFile(image, make([]byte, 1<<20), 0o600)); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("losetup", "-f", image).CombinedOutput(); err != nil {
			t.Fatalf("losetup: %v: %s", err, out)
		}
		return image
	}
	attach("unused/disk.img")
	if err := os.Remove(attach("removed/disk.img")); err != nil {
		t.Fatal(err)
	}
	if loops, err := loopsBelow(filepath.Join(d.cfg.Dir, poolName)); err != nil || len(loops) != 2 {
		t.Fatalf("attached are %v, %v, want two", loops, err)
	}
	if _, err := New(d.cfg); err != nil {
		t.Fatal(err)
	}
	nothingBelow(t, filepath.Join(d.cfg.Dir, poolName))
	if err := os.WriteFile(filepath.Join(used.Dir, "workspace", "a"), []byte("x"), 0o644); err != nil {
		t.Errorf("the disk in use: %v", err)
	}
}

// TestReadyDiskWithoutItsImageIsRemoved: it is mounted still, but would keep nothing.
func TestReadyDiskWithoutItsImageIsRemoved(t *testing.T) {
	d := realDisks(t, Config{Pool: 1, PoolBytes: 16 << 20})
	if err := d.refill(t.Context()); err != nil {
		t.Fatal(err)
	}
	ready := d.pool.ready[16<<20][0]
	if err := os.Remove(filepath.Join(ready, imageName)); err != nil {
		t.Fatal(err)
	}
	next, err := New(d.cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(next.closePool)
	if mounted(ready) {
		t.Error("it is mounted")
	}
	disk := mustCreate(t, next, 16<<20)
	var st unix.Stat_t
	if err := unix.Stat(next.image(disk.UID), &st); err != nil {
		t.Errorf("a disk that was made has no image: %v", err)
	}
	delete(d.pool.ready, 16<<20)
}
