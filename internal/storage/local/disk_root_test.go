//go:build root

package local

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/storage"
)

// realDisks opens a directory of disks and, at the end, fails the test when
// any mount or loop device is left below it.
func realDisks(t *testing.T, cfg Config) *Disks {
	t.Helper()
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	if cfg.Reserve == 0 {
		cfg.Reserve = 1 << 20
	}
	d, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Quota(); err != nil {
		t.Fatalf("Quota() = %v, want nil: this test needs loop devices and mkfs.ext4", err)
	}
	t.Cleanup(func() {
		uids, err := d.List()
		if err != nil {
			t.Error(err)
		}
		for _, uid := range uids {
			if _, err := d.Remove(context.Background(), uid); err != nil {
				t.Errorf("Remove(%s) = %v", uid, err)
			}
		}
		d.closePool()
		nothingBelow(t, d.cfg.Dir)
	})
	return d
}

func nothingBelow(t *testing.T, dir string) {
	t.Helper()
	until := time.Now().Add(time.Minute)
	for {
		loops, err := loopsBelow(dir)
		if err != nil {
			t.Fatal(err)
		}
		mounts := mountsBelow(t, dir)
		if len(loops)+len(mounts) == 0 {
			return
		}
		if time.Now().After(until) {
			t.Errorf("left behind: loop devices %v, mounts %v, want none", loops, mounts)
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func mountsBelow(t *testing.T, dir string) (found []string) {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], dir+"/") {
			found = append(found, f[4])
		}
	}
	return found
}

func mustCreate(t *testing.T, d *Disks, bytes int64) storage.Disk {
	t.Helper()
	disk, err := d.createAlone(t.Context(), sandbox.NewUID(), bytes)
	if err != nil {
		t.Fatalf("Create = %v", err)
	}
	return disk
}

func TestDiskIsMountedWithItsDirectories(t *testing.T) {
	d := realDisks(t, Config{})
	disk := mustCreate(t, d, 64<<20)
	for _, want := range []struct {
		path string
		mode os.FileMode
		uid  uint32
	}{{"workspace", 0o755, 1000}, {"home", 0o755, 1000}, {"root", 0o700, 0}} {
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(disk.Dir, want.path), &st); err != nil {
			t.Fatal(err)
		}
		if got := os.FileMode(st.Mode & 0o7777); got != want.mode || st.Uid != want.uid || st.Gid != want.uid {
			t.Errorf("%s has mode %v owner %d:%d, want %v %d:%d", want.path, got, st.Uid, st.Gid, want.mode, want.uid, want.uid)
		}
	}
	if got, _ := os.Readlink(filepath.Join(disk.Dir, "home", "workspace")); got != "/workspace" {
		t.Errorf("~/workspace leads to %q, want /workspace", got)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(disk.Dir, &st); err != nil {
		t.Fatal(err)
	}
	const flags = unix.ST_NOSUID | unix.ST_NODEV | unix.ST_NOATIME
	if st.Flags&flags != flags {
		t.Errorf("mounted with flags %#x, want nosuid, nodev and noatime", st.Flags)
	}
}

func TestFillingADiskEndsAtItsSize(t *testing.T) {
	d := realDisks(t, Config{})
	disk := mustCreate(t, d, 64<<20)
	f, err := os.Create(filepath.Join(disk.Dir, "workspace", "big"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n, err := io.Copy(f, io.LimitReader(rand.Reader, 128<<20))
	if err == nil {
		err = f.Sync()
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Errorf("writing 128 MiB to a disk of 64 MiB = %v, want no space left", err)
	}
	if n < 48<<20 || n > 64<<20 {
		t.Errorf("%d bytes fitted on a disk of %d", n, 64<<20)
	}
	u, err := d.Usage(t.Context(), disk.UID)
	if err != nil {
		t.Fatal(err)
	}
	if u.Bytes != 64<<20 || u.Used < n || u.Allocated > 65<<20 {
		t.Errorf("Usage = %+v, want 64 MiB, at least %d used, at most the size allocated", u, n)
	}
	tree, err := d.filesAlone(t.Context(), disk.UID)
	if err != nil {
		t.Fatal(err)
	}
	_, err = tree.Write(t.Context(), "other", bytes.NewReader(make([]byte, 4<<20)), sandbox.FileWrite{})
	if !errors.Is(err, errs.Exhausted) || errs.Public(err).Message != "disk full" {
		t.Errorf("Write to a full disk = %v, want exhausted: disk full", err)
	}
	if entries, _ := os.ReadDir(filepath.Join(disk.Dir, "workspace")); len(entries) != 1 {
		t.Errorf("a failed write left %v", entries)
	}
}

func TestDiskSurvivesUnmountAndANewDaemon(t *testing.T) {
	d := realDisks(t, Config{})
	disk := mustCreate(t, d, 32<<20)
	if err := os.WriteFile(filepath.Join(disk.Dir, "workspace", "a"), []byte("kept"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := d.unmountAlone(t.Context(), disk.UID); err != nil {
		t.Fatal(err)
	}
	if err := d.unmountAlone(t.Context(), disk.UID); err != nil {
		t.Errorf("second Unmount = %v, want nil", err)
	}
	nothingBelow(t, d.cfg.Dir)
	again, err := New(d.cfg)
	if err != nil {
		t.Fatal(err)
	}
	got, err := again.mountAlone(t.Context(), disk.UID)
	if err != nil {
		t.Fatal(err)
	}
	if got != disk {
		t.Errorf("Mount = %+v, want %+v", got, disk)
	}
	if b, err := os.ReadFile(filepath.Join(got.Dir, "workspace", "a")); string(b) != "kept" {
		t.Errorf("after a mount the file is %q, %v", b, err)
	}
	if _, err := again.createAlone(t.Context(), disk.UID, 32<<20); !errors.Is(err, errs.Conflict) {
		t.Errorf("Create of a disk that exists = %v, want conflict", err)
	}
}

// A second device on one image would be a second file system on its blocks.
func TestMountReusesTheDeviceOfADetachedMount(t *testing.T) {
	d := realDisks(t, Config{})
	disk := mustCreate(t, d, 32<<20)
	held, err := os.Create(filepath.Join(disk.Dir, "workspace", "held"))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if err := d.unmountAlone(t.Context(), disk.UID); err != nil {
		t.Fatal(err)
	}
	if mounted(d.dir(disk.UID)) {
		t.Error("still mounted after Unmount")
	}
	if _, err := d.mountAlone(t.Context(), disk.UID); err != nil {
		t.Fatal(err)
	}
	loops, err := loopsBelow(d.image(disk.UID))
	if err != nil {
		t.Fatal(err)
	}
	if len(loops) != 1 {
		t.Errorf("the image has devices %v, want one", loops)
	}
	if _, err := held.WriteString("x"); err != nil {
		t.Errorf("writing through the old mount = %v", err)
	}
	if b, err := os.ReadFile(filepath.Join(disk.Dir, "workspace", "held")); string(b) != "x" {
		t.Errorf("the new mount shows %q, %v, want what the old one wrote", b, err)
	}
}

func TestRemoveGivesTheSpaceBack(t *testing.T) {
	d := realDisks(t, Config{})
	disk := mustCreate(t, d, 64<<20)
	if err := os.WriteFile(filepath.Join(disk.Dir, "workspace", "a"), bytes.Repeat([]byte("x"), 8<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	unix.Sync()
	freed, err := d.Remove(t.Context(), disk.UID)
	if err != nil || freed < 8<<20 {
		t.Errorf("Remove = %d, %v, want at least 8 MiB", freed, err)
	}
	if freed, err := d.Remove(t.Context(), disk.UID); err != nil || freed != 0 {
		t.Errorf("second Remove = %d, %v, want 0, nil", freed, err)
	}
	if _, err := d.mountAlone(t.Context(), disk.UID); !errors.Is(err, errs.NotFound) {
		t.Errorf("Mount of a removed disk = %v, want not found", err)
	}
	if uids, _ := d.List(); len(uids) != 0 {
		t.Errorf("List = %v, want none", uids)
	}
}

func TestDeletedFilesGiveTheirSpaceBack(t *testing.T) {
	d := realDisks(t, Config{})
	disk := mustCreate(t, d, 128<<20)
	name := filepath.Join(disk.Dir, "workspace", "a")
	if err := os.WriteFile(name, bytes.Repeat([]byte("x"), 64<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	syncDisk(t, disk)
	full := allocated(d.dir(disk.UID))
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	syncDisk(t, disk)
	// The kernel discards behind the commit.
	eventually(t, "the image to shrink below 16 MiB", func() bool { return allocated(d.dir(disk.UID)) < 16<<20 })
	if full < 64<<20 {
		t.Errorf("the image took %d bytes with a file of 64 MiB", full)
	}
}

// eventually waits for what the kernel does in its own time.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for until := time.Now().Add(time.Minute); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

func syncDisk(t *testing.T, disk storage.Disk) {
	t.Helper()
	f, err := os.Open(disk.Dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		t.Fatal(err)
	}
}

func TestAHundredConcurrentCreates(t *testing.T) {
	d := realDisks(t, Config{Pool: 4, PoolBytes: 64 << 20})
	start := time.Now()
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			if _, err := d.createAlone(context.Background(), sandbox.NewUID(), 64<<20); err != nil {
				t.Errorf("Create = %v", err)
			}
		})
	}
	wg.Wait()
	t.Logf("100 creates took %v", time.Since(start))
	if got := len(mountsBelow(t, d.cfg.Dir)); got != 100 {
		t.Errorf("%d mounts, want 100", got)
	}
	start = time.Now()
	uids, err := d.List()
	if err != nil || len(uids) != 100 {
		t.Errorf("List gives %d disks, %v, want 100", len(uids), err)
	}
	for _, uid := range uids {
		wg.Go(func() {
			if _, err := d.Remove(context.Background(), uid); err != nil {
				t.Errorf("Remove = %v", err)
			}
		})
	}
	wg.Wait()
	t.Logf("100 removes took %v", time.Since(start))
}

func TestPoolGivesReadyDisks(t *testing.T) {
	d := realDisks(t, Config{Pool: 2, PoolBytes: 64 << 20})
	if err := d.refill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := len(d.pool.ready[64<<20]); got != 2 {
		t.Fatalf("%d ready disks, want 2", got)
	}
	start := time.Now()
	disk := mustCreate(t, d, 64<<20)
	t.Logf("a create from the pool took %v", time.Since(start))
	if got := len(d.pool.ready[64<<20]); got != 1 {
		t.Errorf("%d ready disks after a create, want 1", got)
	}
	if !mounted(d.dir(disk.UID)) {
		t.Error("a disk of the pool is not mounted after its rename")
	}
	loops, err := loopsBelow(d.image(disk.UID))
	if err != nil || len(loops) != 1 {
		t.Errorf("devices of the disk = %v, %v, want one below its new name", loops, err)
	}
	start = time.Now()
	mustCreate(t, d, 96<<20)
	t.Logf("a create of another size took %v", time.Since(start))
	if err := d.refill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(len(d.pool.ready[64<<20]), len(d.pool.ready[96<<20])); got != "2 2" {
		t.Errorf("ready disks of both sizes = %s, want 2 2", got)
	}
	// A third size in demand drops the oldest.
	mustCreate(t, d, 80<<20)
	if err := d.refill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := len(d.pool.ready[64<<20]); got != 0 {
		t.Errorf("%d ready disks of a size that nobody asks for, want 0", got)
	}
}

func TestRunKeepsThePoolAndTakesItDown(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	d := realDisks(t, Config{Pool: 2, PoolBytes: storage.MinBytes})
	ready := func() int {
		d.pool.mu.Lock()
		defer d.pool.mu.Unlock()
		return len(d.pool.ready[storage.MinBytes])
	}
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- d.Run(ctx) }()
	eventually(t, "the pool to fill", func() bool { return ready() == 2 })
	disk := mustCreate(t, d, storage.MinBytes)
	if _, err := d.Attach(ctx, storage.Use{User: disk.UID, Own: disk.UID}); err != nil {
		t.Fatal(err)
	}
	mustCreate(t, d, storage.MinBytes) // which nobody attaches
	eventually(t, "the pool to fill again", func() bool { return ready() == 2 })
	cancel()
	if err := <-ran; err != nil {
		t.Errorf("Run = %v", err)
	}
	if got := mountsBelow(t, d.cfg.Dir); len(got) != 1 || got[0] != disk.Dir {
		t.Errorf("after Run there are mounts %v, want only that of the disk in use", got)
	}
}

func TestANewDaemonTakesOverThePool(t *testing.T) {
	d := realDisks(t, Config{Pool: 2, PoolBytes: 64 << 20})
	if err := d.refill(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.closePool()
	nothingBelow(t, d.cfg.Dir)
	again := realDisks(t, d.cfg)
	again.mountPool(t.Context())
	if got := len(again.pool.ready[64<<20]); got != 2 {
		t.Errorf("%d ready disks, want the 2 of the first daemon", got)
	}
	mustCreate(t, again, 64<<20)
}
