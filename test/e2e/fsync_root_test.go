//go:build root

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	api "github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/test/harness"
)

// syncs writes to files of its own in each directory that it is given and waits for
// /dev/shm/go. Then it says of each call that makes what was written last how that ended.
const syncs = `
import ctypes, errno, mmap, os, sys, time
libc = ctypes.CDLL(None, use_errno=True)
def c(name, *args):
    if libc[name](*args) != 0: raise OSError(ctypes.get_errno(), name)
def opened(name, flags=0):
    fd = os.open(name, os.O_RDWR | os.O_CREAT | flags, 0o644)
    os.write(fd, b"x" * 100000)
    return fd
def mapped(name):
    m = mmap.mmap(opened(name), 100000)
    m[:5] = b"dirty"
    return m
acts = []
for d in sys.argv[1:]:
    f = lambda name, **kw: opened(d + "/" + name, **kw)
    def act(name, fn, *args): acts.append((d + " " + name, fn, args))
    act("fsync", os.fsync, f("a"))
    act("fdatasync", os.fdatasync, f("b"))
    first, second = f("c"), os.open(d + "/c", os.O_RDWR)
    act("fsync of one description", os.fsync, first)
    act("fsync of another", os.fsync, second)
    act("sync_file_range", c, "sync_file_range", f("d"), ctypes.c_long(0), ctypes.c_long(0), 7)
    act("msync", mapped(d + "/e").flush)
    act("O_DSYNC", os.write, f("f", flags=os.O_DSYNC), b"more")
    act("O_SYNC", os.write, f("g", flags=os.O_SYNC), b"more")
    act("syncfs", c, "syncfs", f("h"))
    act("fsync after syncfs", os.fsync, f("i"))
    act("fsync of a directory", os.fsync, os.open(d, os.O_RDONLY))
    act("ftruncate", os.ftruncate, f("j"), 5)
    act("fallocate", os.posix_fallocate, f("k"), 0, 1 << 20)
    act("fchmod", os.fchmod, f("l"), 0o600)
    act("utime", os.utime, d + "/l", (1, 1))
    act("rename", os.rename, d + "/l", d + "/m")
    act("mkdir", os.mkdir, d + "/n")
    act("unlink", os.unlink, d + "/a")
print("written", flush=True)
while not os.path.exists("/dev/shm/go"): time.sleep(0.02)
for name, fn, args in acts:
    try:
        fn(*args)
        print(name + ": fine")
    except OSError as e:
        print(name + ": " + errno.errorcode[e.errno])
`

// inGVisorsMemory are the calls that gVisor carries out in its own memory where it has the file
// system there, so that no disk can fail them.
var inGVisorsMemory = []string{"fsync of a directory", "ftruncate", "fallocate", "fchmod", "utime", "rename", "mkdir", "unlink"}

// TestFsyncTellsOfAFailedDisk: a program that makes sure of what it wrote learns when its
// disk has lost it, wherever that lies, and so does who put a file.
func TestFsyncTellsOfAFailedDisk(t *testing.T) {
	d := harness.Start(t, harness.Options{})
	c := api.New(d.URL)
	for _, isolation := range []string{"gvisor", "container"} {
		t.Run(isolation, func(t *testing.T) {
			ctx := t.Context()
			b, err := c.Create(ctx, api.CreateOptions{Isolation: isolation, Limits: &api.Limits{DiskBytes: 256 << 20}})
			if err != nil {
				t.Fatal(err)
			}
			dirs := []string{"/workspace", "/home/sandbox", "/root", "/tmp"}
			p, err := c.StartExec(ctx, b.ID, api.ExecOptions{Argv: append([]string{"python3", "-c", syncs}, dirs...), User: "root"})
			if err != nil {
				t.Fatal(err)
			}
			eventually(t, time.Minute, "the files are written", func() bool { return len(said(t, p)) > 0 })
			shutDown(t, diskOf(t, d, "a"))
			if _, err := c.Exec(ctx, b.ID, api.ExecOptions{Argv: []string{"/usr/bin/touch", "/dev/shm/go"}, Cwd: "/", User: "root"}); err != nil {
				t.Fatal(err)
			}
			if _, err := p.Wait(ctx); err != nil {
				t.Fatal(err)
			}
			lines := said(t, p)[1:]
			for _, line := range lines {
				what, result, _ := strings.Cut(line, ": ")
				dir, call, _ := strings.Cut(what, " ")
				excused := dir == "/root" || dir == "/tmp"
				if isolation == "gvisor" {
					excused = excused && slices.Contains(inGVisorsMemory, call)
				} else {
					excused = call == "sync_file_range" // it commits nothing, and the host may have written the pages before
				}
				if result == "fine" && !excused {
					t.Errorf("%s succeeds", what)
				}
			}
			if want := len(dirs) * 18; len(lines) != want {
				t.Errorf("%d calls ended, want %d: %q", len(lines), want, lines)
			}
			for _, dir := range dirs {
				if _, err := c.Files(b.ID).Write(ctx, dir+"/put", strings.NewReader("content"), api.WriteOptions{}); err == nil {
					t.Errorf("a file that was put into %s is acknowledged", dir)
				}
			}
			if _, err := c.Purge(ctx, b.ID); err != nil {
				t.Error(err)
			}
		})
	}
}

// said are the lines that a command has printed.
func said(t *testing.T, p *api.Process) []string {
	t.Helper()
	x, err := p.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if x.Stderr != "" {
		t.Fatalf("the program fails: %s", x.Stderr)
	}
	return strings.FieldsFunc(x.Stdout, func(r rune) bool { return r == '\n' })
}

// diskOf is where the disk of the one sandbox is mounted that has a file of that name.
func diskOf(t *testing.T, d *harness.Daemon, name string) (mnt string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(d.Dir, "disks", "*", "mnt", "workspace", name))
	if err != nil || len(found) != 1 {
		t.Fatalf("the sandbox's disk is among %v, %v", found, err)
	}
	return filepath.Dir(filepath.Dir(found[0]))
}

// shutDown fails a disk: what was not written to it is lost, and each write from then on
// fails.
func shutDown(t *testing.T, mnt string) {
	t.Helper()
	f, err := os.Open(mnt)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	// FS_IOC_SHUTDOWN with FS_SHUTDOWN_FLAGS_NOLOGFLUSH of the kernel's fs.h.
	how := uint32(2)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), 0x8004587d, uintptr(unsafe.Pointer(&how))); errno != 0 {
		t.Fatal(errno)
	}
}

// restart stops a sandbox and starts it when its disk is gone and the host is known to
// have room.
func restart(t *testing.T, c *api.Client, id, mnt string) {
	t.Helper()
	eventually(t, time.Minute, "the sandbox stops", func() bool { // not while its disk is held
		_, err := c.Stop(t.Context(), id, 0)
		if err != nil && !errors.Is(err, api.Capacity) && !errors.Is(err, api.Unready) {
			t.Fatal(err)
		}
		return err == nil
	})
	eventually(t, time.Minute, "the disk is unmounted", func() bool { return len(harness.MountsBelow(filepath.Dir(mnt))) == 0 })
	eventually(t, time.Minute, "the sandbox works", func() bool {
		_, err := c.Start(t.Context(), id)
		if err == nil {
			_, err = c.Exec(t.Context(), id, api.ExecOptions{Argv: []string{"true"}})
		}
		// Room is looked at now and then, and what else has the mount lets go of it soon.
		if err != nil && !errors.Is(err, api.Capacity) && !errors.Is(err, api.Unavailable) {
			t.Fatal(err)
		}
		return err == nil
	})
}

// fillUp takes all the room that there is at once.
func (h *smallHost) fillUp() {
	h.t.Helper()
	f, err := os.Create(h.filler)
	if err != nil {
		h.t.Fatal(err)
	}
	defer f.Close()
	for at, size := int64(0), int64(1<<30); size >= 4096; {
		switch err := unix.Fallocate(int(f.Fd()), 0, at, size); err {
		case nil:
			at += size
		case unix.ENOSPC:
			size /= 2
		default:
			h.t.Fatal(err)
		}
	}
}

// full reports whether a write on the host finds no room.
func (h *smallHost) full() bool {
	h.t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(h.mnt, &st); err != nil {
		h.t.Fatal(err)
	}
	return st.Bavail == 0
}

// writes makes files until one cannot be made, and prints the name of each that is on
// the disk. No two MiB are the same.
const writes = `
import os, time
for i in range(300):
    d = ("/workspace", "/root")[i % 2]
    name = d + "/w%d" % i
    try:
        with open(name, "wb", buffering=0) as f:
            f.write(b"%015d\n" % i * 65536)
            os.fsync(f.fileno())
        fd = os.open(d, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
    except OSError: break
    print(name, flush=True)
`

// lost prints the names among its arguments that have not the content they were written
// with.
const lost = `
import sys
for name in sys.argv[1:]:
    try: whole = open(name, "rb").read() == b"%015d\n" % int(name.strip("/abcdefghijklmnopqrstuvwxyz")) * 65536
    except OSError: whole = False
    if not whole: print(name)
`

// onAFullHost are ways to write while the host's disk is full from one moment to the
// next. They return the names of what was acknowledged.
var onAFullHost = map[string]struct {
	disk  int64
	write func(t *testing.T, h *smallHost, c *api.Client, id string) []string
}{
	"of a program": {1 << 30, func(t *testing.T, h *smallHost, c *api.Client, id string) []string {
		p, err := c.StartExec(t.Context(), id, api.ExecOptions{Argv: []string{"python3", "-c", writes}, User: "root"})
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, time.Minute, "some files are written", func() bool { return len(said(t, p)) > 4 })
		h.fillUp()
		eventually(t, time.Minute, "the host's disk is full", func() bool { return h.full() })
		h.makeRoom()
		if _, err := p.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		return said(t, p)
	}},
	"of a client": {64 << 20, func(t *testing.T, h *smallHost, c *api.Client, id string) (names []string) {
		put := func(name string, i, repeat int) error {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // a disk may stand still
			defer cancel()
			content := strings.Repeat(fmt.Sprintf("%015d\n", i), repeat)
			_, err := c.Files(id).Write(ctx, name, strings.NewReader(content), api.WriteOptions{})
			return err
		}
		// The journal of the sandbox's disk is written once all over, so that it has its
		// room on the host: it takes the names of files whose content it cannot take.
		for i := range 150 {
			if err := put("/workspace/p0", i, 1); err != nil {
				t.Fatal(err)
			}
		}
		h.fillUp()
		for i := 1; i < 20; i++ {
			name := fmt.Sprintf("%s/p%d", []string{"/workspace", "/root"}[i%2], i)
			if err := put(name, i, 65536); err != nil {
				t.Logf("%s: %v", name, err)
				if errors.Is(err, context.DeadlineExceeded) {
					break // the disk is held now
				}
				continue
			}
			names = append(names, name)
		}
		h.makeRoom()
		return names
	}},
}

// TestWhatIsAcknowledgedOutlivesAFullHost: what a program has synced and what was put with
// success is there when the sandbox has been stopped and started.
func TestWhatIsAcknowledgedOutlivesAFullHost(t *testing.T) {
	for _, isolation := range []string{"gvisor", "container"} {
		for what, tt := range onAFullHost {
			t.Run(isolation+" "+what, func(t *testing.T) {
				h := newSmallHost(t, 4<<30)
				c := api.New(mustStart(t, h.realHost, "--disk-reserve=1GiB"))
				ctx := t.Context()
				b, err := c.Create(ctx, api.CreateOptions{Isolation: isolation, Limits: &api.Limits{DiskBytes: tt.disk}})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := c.Files(b.ID).Write(ctx, "here", strings.NewReader(""), api.WriteOptions{}); err != nil {
					t.Fatal(err)
				}
				mnt := diskOf(t, h.Daemon, "here")
				names := tt.write(t, h, c, b.ID)
				restart(t, c, b.ID, mnt)
				x, err := c.Exec(ctx, b.ID, api.ExecOptions{Argv: append([]string{"python3", "-c", lost}, names...), User: "root"})
				if err != nil || x.Stdout != "" || x.Stderr != "" {
					t.Errorf("of %d files that were acknowledged these are lost: %s%s %v", len(names), x.Stdout, x.Stderr, err)
				}
				if err := h.stop(); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

// TestASleepTellsOfAFailedDisk: gVisor writes back what a sandbox has before its memory is
// kept. Where that fails, no sleep is told that cannot be woken whole, and the sandbox goes on.
func TestASleepTellsOfAFailedDisk(t *testing.T) {
	d := harness.Start(t, harness.Options{})
	c, ctx := api.New(d.URL), t.Context()
	b, err := c.Create(ctx, api.CreateOptions{Isolation: "gvisor", Limits: &api.Limits{DiskBytes: 256 << 20}})
	if err != nil {
		t.Fatal(err)
	}
	p, err := c.StartExec(ctx, b.ID, api.Shell("exec 3>a; echo x >&3; echo written; while :; do sleep 0.1; done"))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, "the file is written", func() bool { return len(said(t, p)) > 0 })
	shutDown(t, diskOf(t, d, "a"))
	if s, err := c.Sleep(ctx, b.ID, true); err == nil {
		t.Errorf("it sleeps: %+v", s)
	} else {
		t.Log(err)
	}
	for _, want := range []string{"one\n", "two\n"} {
		x, err := c.Exec(ctx, b.ID, api.ExecOptions{Argv: []string{"echo", strings.TrimSpace(want)}, Cwd: "/"})
		if err != nil || x.Stdout != want {
			t.Errorf("a command after it: %+v, %v", x, err)
		}
	}
	if x, err := p.Get(ctx); err != nil || x.ExitCode != nil {
		t.Errorf("what ran before: %+v, %v", x, err)
	}
}
