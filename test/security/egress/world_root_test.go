//go:build root

package egress_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/test/harness"
)

// The addresses of the world. The documentation networks count as public, and
// nothing of this leaves the machine.
const (
	hostAddr   = "198.18.0.2" // the host's, on the wire
	hostAddr6  = "2001:db8:ffff::2"
	ownAddr    = "203.0.113.77" // a public one of the host's
	worldAddr  = "198.18.0.1"
	worldAddr6 = "2001:db8:ffff::1"

	goodAddr  = "198.51.100.10" // what sandboxes may reach
	goodAddr6 = "2001:db8:1::10"
	wildAddr  = "198.51.100.11"
	evilAddr  = "198.51.100.66" // what they may not
	evilAddr6 = "2001:db8:1::66"

	wireName = "out" // the host's one network interface
)

// patience is what anything may take on a busy machine.
const patience = time.Minute

const insideVariable = "CUBBY_TEST_EGRESS_INSIDE"

// TestMain starts the test program again in network and mount namespaces of its
// own: they are the "host" on which the daemon runs, so that the test owns every
// address, every port and the resolver of that host.
func TestMain(m *testing.M) {
	if os.Getenv(insideVariable) == "" {
		fmt.Fprintln(os.Stderr, "enter namespaces:", enter())
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// enter replaces this program by itself, inside. It returns only what went
// wrong.
func enter() error {
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWNS); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	// What other tests have mounted would stay mounted here as long as this takes, and
	// their disks in use.
	for _, dir := range []string{"/tmp", "/var/tmp"} {
		for _, path := range harness.MountsBelow(dir) {
			_ = unix.Unmount(path, unix.MNT_DETACH)
		}
	}
	if err := useResolver(); err != nil {
		return err
	}
	return unix.Exec("/proc/self/exe", os.Args, append(os.Environ(), insideVariable+"=1"))
}

// useResolver makes 127.0.0.1 the only name server. Without a file that is what
// programs ask anyway.
func useResolver() error {
	const file = "/etc/resolv.conf"
	target, err := filepath.EvalSymlinks(file)
	if os.IsNotExist(err) {
		return nil
	} else if err != nil {
		return err
	}
	f, err := os.CreateTemp("", "resolv")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if _, err := f.WriteString("nameserver 127.0.0.1\n"); err != nil {
		return err
	}
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	return unix.Mount(f.Name(), target, "", unix.MS_BIND, "")
}

// world is everything beyond the sandboxes: the host with its loopback, and
// behind one wire an Internet in which every address answers.
type world struct {
	internet *netns
	wire     *wire
	names    *nameServer
	host     *canary // on every address of the host
	outside  *canary // on every other address there is
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{internet: newNetns(t)}
	ip := func(args string) {
		t.Helper()
		if err := runIP(args); err != nil {
			t.Fatal(err)
		}
	}
	ip("link set lo up")
	ip(fmt.Sprintf("link add %s type veth peer name in netns %d", wireName, w.internet.tid))
	t.Cleanup(func() {
		if err := runIP("link del " + wireName); err != nil {
			t.Error(err)
		}
	})
	ip("addr add " + hostAddr + "/30 dev " + wireName)
	ip("addr add " + ownAddr + "/32 dev " + wireName)
	ip("-6 addr add " + hostAddr6 + "/64 dev " + wireName + " nodad")
	ip("link set " + wireName + " up")
	err := w.internet.do(func() error {
		for _, args := range []string{
			"link set lo up",
			"addr add " + worldAddr + "/30 dev in", "-6 addr add " + worldAddr6 + "/64 dev in nodad", "link set in up",
			// Every address is here. Not in the table of local addresses,
			// which comes before the way back to the host.
			"route add local 0.0.0.0/0 dev lo table main", "-6 route add local ::/0 dev lo table main",
		} {
			if err := runIP(args); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	ip("route add default via " + worldAddr)
	ip("-6 route add default via " + worldAddr6)

	w.names = newNameServer(t)
	w.host = newCanary(t, func(f func() error) error { return f() })
	w.outside = newCanary(t, w.internet.do)
	w.wire = newWire(t, w.internet)
	return w
}

// runIP runs ip(8) in the network namespace of this thread.
func runIP(args string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "ip", strings.Fields(args)...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", args, err, out)
	}
	return nil
}

// netns is a network namespace, held by a thread.
type netns struct {
	tid  int
	jobs chan func()
}

func newNetns(t *testing.T) *netns {
	t.Helper()
	n := &netns{jobs: make(chan func())}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		n.tid = unix.Gettid()
		started <- unix.Unshare(unix.CLONE_NEWNET)
		for job := range n.jobs {
			job()
		}
	}()
	if err := <-started; err != nil {
		t.Fatalf("a network namespace: %v", err)
	}
	t.Cleanup(func() { close(n.jobs) })
	return n
}

// do runs f there. What it opens stays there.
func (n *netns) do(f func() error) error {
	done := make(chan error)
	n.jobs <- func() { done <- f() }
	return <-done
}
