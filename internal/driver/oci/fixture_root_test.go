//go:build root

package oci

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/driver/oci/pidfd"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

var sharedRootfs struct {
	once sync.Once
	dir  string // TestMain removes it
}

// smallRootfs is an image with busybox alone. All tests share one, as sandboxes
// do: ext4 searches ever longer for each of its 400 links when as many have
// been removed a moment ago.
func smallRootfs(t testing.TB) string {
	t.Helper()
	sharedRootfs.once.Do(func() { sharedRootfs.dir = newRootfs(t) })
	return sharedRootfs.dir
}

func newRootfs(t testing.TB) string {
	t.Helper()
	root, err := os.MkdirTemp("", "rootfs")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, target := range driver.MountTargets() {
		path := filepath.Join(root, target.Path)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err != nil {
			t.Fatal(err)
		}
		if target.Dir {
			err = os.MkdirAll(path, 0o755)
		} else {
			err = os.WriteFile(path, nil, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(path, target.UID, target.GID); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, target.Mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(root, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	busybox, err := os.ReadFile("/bin/busybox")
	if err != nil {
		t.Fatalf("%v (the tests need the package busybox-static)", err)
	}
	if err := os.WriteFile(filepath.Join(root, "bin/busybox"), busybox, 0o755); err != nil {
		t.Fatal(err)
	}
	applets, err := exec.Command("/bin/busybox", "--list").Output()
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.FieldsSeq(string(applets)) {
		if name == "busybox" {
			continue
		}
		if err := os.Symlink("busybox", filepath.Join(root, "bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range map[string]string{
		"etc/passwd": "root:x:0:0:root:/root:/bin/sh\nsandbox:x:1000:1000::/home/sandbox:/bin/sh\n",
		"etc/group":  "root:x:0:\nsandbox:x:1000:\n",
	} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func plainDisk(t testing.TB) string { t.Helper(); return plainDiskIn(t, t.TempDir()) }

func plainDiskIn(t testing.TB, dir string) string {
	t.Helper()
	for _, name := range []string{"workspace", "home", "root"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if name != "root" {
			if err := os.Chown(filepath.Join(dir, name), sandbox.UserID, sandbox.UserID); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

func testSpec(t testing.TB, isolation sandbox.Isolation) driver.Spec {
	t.Helper()
	return driver.Spec{
		UID: sandbox.NewUID(), Isolation: isolation,
		Limits:   sandbox.Limits{MemoryBytes: 256 << 20, CPUs: 1, PIDs: 128, DiskBytes: 1 << 30, OpenFiles: 1024},
		Image:    driver.Image{Dir: smallRootfs(t)},
		Volumes:  driver.DiskVolumes(plainDisk(t), ""),
		Identity: driver.Identity{ID: "box", Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/home/sandbox"}},
	}
}

// machine is where the drivers of one test keep their things.
type machine struct {
	cfg   Config
	last  *Driver
	since time.Time
}

func newMachine(t testing.TB, runtime string) *machine {
	t.Helper()
	m := &machine{since: time.Now(), cfg: Config{
		StateDir: filepath.Join(t.TempDir(), "run"), DiskReserve: 1,
		RuntimesDir:  unpacked(t),
		FavorMoves:   true,
		CgroupParent: "cubby-test-" + strings.ToLower(rand.Text()[:8]),
		Log:          slog.New(slog.NewTextHandler(t.Output(), nil)),
	}}
	if runtime == runsc {
		m.cfg.Sentries = 1
	} else {
		m.cfg.ContainerRuntime = runtime
	}
	return m
}

// unpacked is the directory of runtimes. It is shared by all tests: unpacking takes longer than a sandbox. Each
// checkout has its own, since a driver removes programs of other versions.
func unpacked(t testing.TB) string {
	t.Helper()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(here))
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("cubby-test-runtimes-%x", sum[:4]))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// open returns a driver on the machine, closed with the test. The one before
// is closed now: a daemon that was killed holds no connection either.
func (m *machine) open(t testing.TB) *Driver {
	t.Helper()
	if m.last != nil {
		_ = m.last.Close()
	}
	d, err := New(m.cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = d.Close()
		if mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(d.sharedDir())); err != nil || len(mounts) > 0 {
			t.Errorf("mounted when the driver is closed: %v, %v", mounts, err)
		}
	})
	m.last = d
	return d
}

// crash kills the process that a sandbox ends with.
func (m *machine) crash(t testing.TB, uid sandbox.UID) {
	t.Helper()
	rec, found, err := (box{uid: uid, dir: filepath.Join(m.cfg.StateDir, string(uid))}).record()
	if err != nil || !found {
		t.Fatalf("record: %v, %v", found, err)
	}
	p, err := pidfd.Open(rec.PID, rec.StartTime)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := unix.Kill(rec.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = p.Wait()
}

// left reports what sandboxes left on the host.
func (m *machine) left(t testing.TB) {
	t.Helper()
	if m.last != nil {
		m.last.sentries.settle(t) // what is kept for the next sandbox is left of none
	}
	entries, err := os.ReadDir(m.cfg.StateDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() == "snapshots" { // which stays when it is empty
			kept, err := os.ReadDir(filepath.Join(m.cfg.StateDir, e.Name()))
			if err != nil || len(kept) > 0 {
				t.Errorf("left of snapshots: %v, %v", kept, err)
			}
			continue
		}
		if e.Name() == sharedName {
			continue
		}
		t.Errorf("left in the state directory: %s", e.Name())
	}
	mounts, err := mountinfo.GetMounts(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, mount := range mounts {
		// The namespace of all is there until the driver is closed.
		if strings.HasPrefix(mount.Mountpoint, m.cfg.StateDir+"/") && filepath.Base(filepath.Dir(mount.Mountpoint)) != sharedName {
			t.Errorf("left mounted: %s", mount.Mountpoint)
		}
		if mount.FSType != "cgroup" && mount.FSType != "cgroup2" {
			continue
		}
		entries, err := os.ReadDir(filepath.Join(mount.Mountpoint, m.cfg.CgroupParent))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.IsDir() {
				t.Errorf("left: cgroup %s in %s", e.Name(), mount.Mountpoint)
			}
		}
	}
	for _, pattern := range []string{"/run/runsc-*", "/tmp/runsc-*"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if info, err := os.Stat(file); err == nil && info.ModTime().After(m.since) {
				t.Errorf("left: %s", file)
			}
		}
	}
}

func itoa(n int) string { return strconv.Itoa(n) }

func owner(t testing.TB, path string) uint32 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Uid
}
