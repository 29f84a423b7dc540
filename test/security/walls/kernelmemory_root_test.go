//go:build root

package walls_test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/test/harness"
)

// hoards takes what the kernel keeps for processes, each kind as far as it goes
// or to a bound, and says how much it got and by how much the memory that is
// counted for the sandbox grew, in KiB.
const hoards = `
import array, ctypes, fcntl, os, resource, signal, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
def usage():
    for f in ("/sys/fs/cgroup/memory/memory.usage_in_bytes", "/sys/fs/cgroup/memory.current"):
        try: return int(open(f).read())
        except OSError: pass
    return 0
keep = []
def pipes():
    global n
    while n < 32 << 20:
        r, w = os.pipe()
        keep.append((r, w))
        os.set_blocking(w, False)
        try: fcntl.fcntl(w, 1031, 1 << 20)
        except OSError: pass
        try:
            while True: n += os.write(w, bytes(65536))
        except BlockingIOError: pass
def shm():
    global n
    libc.shmat.restype = ctypes.c_void_p
    while n < 32 << 20:
        i = libc.shmget(0, 16 << 20, 0o1600)
        if i < 0: raise OSError(ctypes.get_errno(), "shmget")
        p = libc.shmat(i, None, 0)
        ctypes.memset(p, 1, 16 << 20)
        n += 16 << 20
def devshm():
    global n
    f = open("/dev/shm/x", "wb", buffering=0)
    while n < 32 << 20: n += f.write(bytes(1 << 20))
def semaphores():
    global n
    while n < 32 << 20:
        size = 32000
        if libc.semget(0, size, 0o1600) < 0:
            size = 200
            if libc.semget(0, size, 0o1600) < 0: raise OSError(ctypes.get_errno(), "semget")
        n += size * 64
def messages():
    global n
    text = ctypes.create_string_buffer(struct.pack("l", 1) + bytes(8000))
    while n < 32 << 20:
        q = libc.msgget(0, 0o1600)
        if q < 0: raise OSError(ctypes.get_errno(), "msgget")
        while libc.msgsnd(q, text, 8000, 0o4000) == 0: n += 8000
def queues():
    global n
    while n < 32 << 20:
        if libc.mq_open(b"/q%d" % n, os.O_CREAT | os.O_RDWR, 0o600, None) < 0: raise OSError(ctypes.get_errno(), "mq_open")
        n += 10 * 8192
def signals():
    global n
    signal.pthread_sigmask(signal.SIG_BLOCK, [40])
    while n < 32 << 20:
        if libc.sigqueue(os.getpid(), 40, ctypes.c_void_p(1)) < 0: raise OSError(ctypes.get_errno(), "sigqueue")
        n += 80
def keys():
    global n
    while n < 32 << 20:
        if libc.syscall(248, b"user", b"k%d" % n, b"x" * 16384, 16384, -2) < 0: raise OSError(ctypes.get_errno(), "add_key")
        n += 16384
def descriptors():
    global n
    while n < 32 << 20:
        for make in (lambda: libc.eventfd(0, 0), lambda: libc.timerfd_create(1, 0), lambda: libc.epoll_create1(0)):
            if make() < 0: raise OSError(ctypes.get_errno(), "eventfd, timerfd, epoll")
        n += 512
def watches():
    global n
    i = libc.inotify_init1(0)
    if i < 0: raise OSError(ctypes.get_errno(), "inotify_init")
    for j in range(4000):
        f = "/tmp/watched%d" % j
        open(f, "w").close()
        if libc.inotify_add_watch(i, f.encode(), 2) < 0: raise OSError(ctypes.get_errno(), "inotify_add_watch")
        n += 100
def onesignals():
    global n
    signal.pthread_sigmask(signal.SIG_BLOCK, [40])
    n = 1024 if libc.sigqueue(os.getpid(), 40, ctypes.c_void_p(1)) == 0 else 0
def onequeues():
    global n
    n = 1024 if libc.mq_open(b"/cubby-test", os.O_CREAT | os.O_RDWR, 0o600, None) >= 0 else 0
    libc.mq_unlink(b"/cubby-test")
n, why, before = 0, "its bound", usage()
try: globals()[sys.argv[1]]()
except OSError as e: why = str(e)
print(n >> 10, (usage() - before) >> 10, why, flush=True)
if len(sys.argv) > 2: sys.stdin.readline()
`

// hoardKinds are how far each of hoards may get in a container.
var hoardKinds = []struct {
	name    string
	most    int  // KiB; 0: its own bound
	counted bool // as memory of the sandbox
}{
	{name: "pipes", counted: true},
	{name: "shm", counted: true},
	{name: "devshm", counted: true},
	{name: "watches", counted: true},
	{name: "semaphores", most: 2 << 10},
	{name: "messages", most: 2 << 10},
	{name: "queues", most: 800},
	{name: "signals", most: 16 << 10},
	{name: "descriptors", most: 1 << 10},
	{name: "keys", most: 1},
}

// What the kernel keeps for processes is counted as memory of the sandbox, or
// has a bound; and the sandbox goes on. Semaphores and message queues of System V
// could fill a container's memory for good: they belong to no process.
func TestMemoryOfTheKernelIsCountedOrBound(t *testing.T) {
	sandboxes(t, func(t *testing.T, c *client.Client, id string) {
		container := strings.HasSuffix(t.Name(), "/container")
		for _, k := range hoardKinds {
			x, err := c.Exec(t.Context(), id, client.ExecOptions{Argv: []string{"python3", "-c", hoards, k.name}, User: "root", Timeout: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			var got, grown int
			if _, err := fmt.Sscan(x.Stdout, &got, &grown); err != nil {
				t.Errorf("%s: %q, %q, %s", k.name, x.Stdout, x.Stderr, x.Reason)
				continue
			}
			t.Logf("%s: %s", k.name, x.Stdout)
			if container && k.most > 0 && got > k.most {
				t.Errorf("%s: it got %d KiB, want at most %d", k.name, got, k.most)
			}
			if container && k.counted && grown < got/2 {
				t.Errorf("%s: it got %d KiB, of which %d were counted", k.name, got, grown)
			}
		}
	})
}

// Signals that wait and message queues of one container left none to the others,
// nor to root of the host.
func TestAContainerLeavesOthersTheirSignalsAndQueues(t *testing.T) {
	c := client.New(harness.Start(t, harness.Options{}).URL)
	var ids []string
	for range 2 {
		b, err := c.Create(t.Context(), client.CreateOptions{Isolation: "container"})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, b.ID)
	}
	const hold = `sleep 100 | python3 -c "$HOARDS" %[1]s hold > /tmp/%[1]s & while ! [ -s /tmp/%[1]s ]; do sleep 0.05; done; cat /tmp/%[1]s`
	for _, kind := range []string{"signals", "queues"} {
		a, err := c.Exec(t.Context(), ids[0], client.ExecOptions{Shell: fmt.Sprintf(hold, kind), Env: map[string]string{"HOARDS": hoards}, Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		b, err := c.Exec(t.Context(), ids[1], client.ExecOptions{Argv: []string{"python3", "-c", hoards, kind}, Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		host, err := exec.CommandContext(t.Context(), "python3", "-c", hoards, "one"+kind).CombinedOutput()
		if err != nil {
			t.Fatal(err)
		}
		var kib [3]int
		for i, out := range []string{a.Stdout, b.Stdout, string(host)} {
			if _, err := fmt.Sscan(out, &kib[i]); err != nil {
				t.Fatalf("%s: %q, %s %s", kind, out, a.Stderr, b.Stderr)
			}
		}
		if kib[0] == 0 || kib[1] < kib[0]/2 || kib[2] == 0 {
			t.Errorf("%s: while one container has %d KiB, another one gets %d, and the host %d", kind, kib[0], kib[1], kib[2])
		}
	}
}
