//go:build root

package walls_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/test/harness"
)

// lockStorm takes file locks of single bytes, 1,000 of each file, to a bound
// that the test's host can spare, and then holds them. Its second form lets
// processes take them that share their files with it and end at once, so that
// the locks are those of nobody; on memory files, which belong to no disk.
const lockStorm = `
import ctypes, fcntl, os, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
hide, most, n = sys.argv[1] == "hidden", 1000000, 0
def take(fd):
    for i in range(1000): fcntl.fcntl(fd, fcntl.F_SETLK, struct.pack("hhqqi", fcntl.F_WRLCK, 0, 1998 - 2 * i, 1, 0))
keep = []
while n < most:
    fd = os.memfd_create("x") if hide else os.open("/tmp/lock%d" % n, os.O_RDWR | os.O_CREAT, 0o600)
    keep.append(fd)
    if not hide: take(fd)
    else:
        pid = libc.syscall(56 if os.uname().machine == "x86_64" else 220, 0x400 | 17, 0, 0, 0, 0) # clone(CLONE_FILES | SIGCHLD)
        if pid == 0:
            take(fd)
            os._exit(0)
        if pid < 0: raise OSError(ctypes.get_errno(), "clone")
        os.waitpid(pid, 0)
    n += 1000
    print(n, flush=True)
time.sleep(100)
`

// ofdLock takes a lock of an open file description.
const ofdLock = `
import fcntl, struct
f = open("/tmp/ofd", "w")
try:
    fcntl.fcntl(f, 37, struct.pack("hhqqi", fcntl.F_WRLCK, 0, 0, 1, 0))
    print("locked")
except OSError as e: print(e.errno)
`

// hostLocks is how many objects the host has in the memory of file locks.
func hostLocks(t *testing.T) int {
	t.Helper()
	n := 1
	for _, name := range []string{"slabs", "objs_per_slab"} {
		text, err := os.ReadFile(filepath.Join("/sys/kernel/slab/file_lock_cache", name))
		if err != nil {
			t.Fatalf("%v (the test needs a kernel with CONFIG_SLUB_DEBUG)", err)
		}
		word, _, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
		each, err := strconv.Atoi(word)
		if err != nil {
			t.Fatal(err)
		}
		n *= each
	}
	return n
}

// File locks are memory of the host's kernel that no cgroup counts, 136,000 of
// them in a second, as many as anybody asked for. A container that holds too many
// loses the processes that do, and the reason is named.
func TestFileLocksOfAContainerAreBound(t *testing.T) {
	c := client.New(harness.Start(t, harness.Options{}).URL)
	b, err := c.Create(t.Context(), client.CreateOptions{Isolation: "container", Limits: &client.Limits{CPUs: 1}})
	if err != nil {
		t.Fatal(err)
	}
	before := hostLocks(t)
	for _, how := range []string{"plain", "hidden"} {
		x, err := c.Exec(t.Context(), b.ID, client.ExecOptions{Argv: []string{"python3", "-c", lockStorm, how}, Timeout: 2 * time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %s", how, x.Message)
		lines := strings.Fields(x.Stdout)
		if len(lines) == 0 {
			t.Fatalf("%s: %s", how, x.Stderr)
		}
		if got, _ := strconv.Atoi(lines[len(lines)-1]); x.Reason != "oom" || !strings.Contains(x.Message, "file locks") || got >= 1000000 {
			t.Errorf("%s: it ended with %s, %q, after %d locks", how, x.Reason, x.Message, got)
		}
		// The kernel gives memory back some time after the last lock.
		left := 0
		for range 100 {
			if left = hostLocks(t) - before; left <= 100000 {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		if left > 100000 {
			t.Errorf("%s: %d locks are left on the host", how, left)
		}
		if x, err := c.Exec(t.Context(), b.ID, client.ExecOptions{Argv: []string{"echo", "alive"}}); err != nil || x.Stdout != "alive\n" {
			t.Errorf("after that: %+v, %v", x, err)
		}
	}
}

// A cell that holds too many ends the same way.
func TestFileLocksOfACellAreBound(t *testing.T) {
	c := client.New(harness.Start(t, harness.Options{}).URL)
	b, err := c.Create(t.Context(), client.CreateOptions{Isolation: "container", Limits: &client.Limits{CPUs: 1}})
	if err != nil {
		t.Fatal(err)
	}
	hostLocks(t)
	x, err := c.RunCode(t.Context(), b.ID, client.CodeRequest{
		Language: "python", Code: "import sys; sys.argv = ['', 'plain']\n" + lockStorm, Timeout: 2 * time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	if x.Reason != "oom" || !strings.Contains(x.Message, "file locks") {
		t.Errorf("it ended with %s: %s", x.Reason, x.Message)
	}
	if x, err := c.RunCode(t.Context(), b.ID, client.CodeRequest{Language: "python", Code: "6 * 7"}); err != nil || x.Reason != "exited" {
		t.Errorf("the next cell: %+v, %v", x, err)
	}
}

// Locks of open file descriptions could hide on their way through a socket: in a
// container there are none. gVisor's locks are its own memory.
func TestLocksOfOpenFileDescriptions(t *testing.T) {
	sandboxes(t, func(t *testing.T, c *client.Client, id string) {
		x, err := c.Exec(t.Context(), id, client.ExecOptions{Argv: []string{"python3", "-c", ofdLock}})
		if err != nil {
			t.Fatal(err)
		}
		want := "locked\n"
		if strings.HasSuffix(t.Name(), "/container") {
			want = "22\n"
		}
		if x.Stdout != want {
			t.Errorf("%q, %s, want %q", x.Stdout, x.Stderr, want)
		}
	})
}

// gVisor keeps file locks in its own memory, which the sandbox's limit ends.
func TestFileLocksOfGVisorAreItsOwn(t *testing.T) {
	c := client.New(harness.Start(t, harness.Options{}).URL)
	b, err := c.Create(t.Context(), client.CreateOptions{Isolation: "gvisor", Limits: &client.Limits{CPUs: 1}})
	if err != nil {
		t.Fatal(err)
	}
	before := hostLocks(t)
	x, err := c.Exec(t.Context(), b.ID, client.ExecOptions{
		Argv: []string{"python3", "-c", strings.Replace(lockStorm, "1000000", "30000", 1), "plain"}, Timeout: 10 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	if grown := hostLocks(t) - before; grown > 20000 {
		t.Errorf("%d locks on the host, %s", grown, x.Reason)
	}
}
