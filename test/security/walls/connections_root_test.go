//go:build root

package walls_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/client"
)

// connections makes TCP connections that no proxy is asked for, or sends
// datagrams, from several processes at once, and says how many the kernel of a
// container followed at most.
const connections = `
import os, resource, socket, struct, sys, time
mode, seconds, each = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
followed = "/proc/sys/net/netfilter/nf_conntrack_count"
counter = open(followed) if os.path.exists(followed) else None
def target(i):
    if i % 2:
        return "127.%d.%d.%d" % (64 + i % 64, i // 250 % 250, 1 + i % 250), 1 + i % 60000
    return "198.51.%d.%d" % (i // 250 % 250, 1 + i % 250), 1 + i % 60000
def flood(n):
    keep, end, made = [], time.monotonic() + seconds, 0
    while made < each and time.monotonic() < end:
        n += 1
        try:
            s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM if mode == "datagrams" else socket.SOCK_STREAM)
            s.setblocking(False)
            if mode == "datagrams":
                try: s.sendto(b"x", target(n))
                finally: s.close()
                made += 1
                continue
            if mode == "reset": s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            s.connect_ex(target(n))
            if mode == "open": keep.append(s)
            else: s.close()
            made += 1
        except OSError:
            if mode == "open": time.sleep(0.01)
    os._exit(0 if made > 100 else 1)
children = []
for i in range(4):
    pid = os.fork()
    if pid == 0: flood(i * 1000000)
    children.append(pid)
most, failed = 0, 0
while children:
    if counter:
        counter.seek(0)
        most = max(most, int(counter.read()))
    pid, status = os.waitpid(-1, os.WNOHANG)
    if pid:
        children.remove(pid)
        failed += status != 0 and mode != "datagrams"
    time.sleep(0.01)
print(most, failed)
`

// Each kind of flood, one after another, ends after floodSeconds, or when each of
// its four processes has made floodEach connections: together nearly twice what
// may be followed.
const (
	floodSeconds = 5
	floodEach    = 3000
)

// mostFollowed is what Linux may follow of the connections that a container makes
// without a proxy: 4096 that were made at once, and 128 a second from then on,
// which wait to be collected for up to a minute; and some that are being refused.
const mostFollowed = 4096 + 3*floodSeconds*128 + 500

// What the kernel follows of connections it counts to nobody: without a bound a
// container that connects and closes in a loop takes as much of the host's memory
// as it likes. In gVisor it is memory of the sandbox.
func TestFollowedConnectionsAreBound(t *testing.T) {
	sandboxesWith(t, client.CreateOptions{Limits: &client.Limits{PIDs: 256, CPUs: 1.5}}, func(t *testing.T, c *client.Client, id string) {
		container := strings.HasSuffix(t.Name(), "/container")
		for _, mode := range []string{"closed", "reset", "open", "datagrams"} {
			x, err := c.Exec(t.Context(), id, client.ExecOptions{Argv: []string{"python3", "-c", connections, mode, strconv.Itoa(floodSeconds), strconv.Itoa(floodEach)}, Timeout: 2 * time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			var most, failed int
			if _, err := fmt.Sscan(x.Stdout, &most, &failed); err != nil {
				t.Fatalf("%s: %q %q, %s", mode, x.Stdout, x.Stderr, x.Reason)
			}
			t.Logf("%s: at most %d were followed", mode, most)
			switch {
			case failed > 0:
				t.Errorf("%s: %d of the processes could not flood", mode, failed)
			case container && most > mostFollowed:
				t.Errorf("%s: %d were followed, want at most %d", mode, most, mostFollowed)
			case container && most == 0 && mode != "datagrams":
				t.Errorf("%s: none was followed, so this shows nothing", mode)
			}
		}
		// The way out is there again when the flood is over.
		const again = `import socket, time
for _ in range(60):
    try:
        with socket.create_connection(("198.51.100.66", 80), 5) as s:
            s.sendall(b"GET / HTTP/1.0\r\n\r\n")
            print(s.recv(1000)); break
    except OSError: time.sleep(0.5)`
		x, err := c.Exec(t.Context(), id, client.ExecOptions{Argv: []string{"python3", "-c", again}, Timeout: 6 * time.Minute})
		if err != nil || !strings.Contains(x.Stdout, "403") {
			t.Errorf("after the flood a connection is answered %q %q, %v", x.Stdout, x.Stderr, err)
		}
	})
}
