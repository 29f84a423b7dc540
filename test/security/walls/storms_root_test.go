//go:build root

// Package walls_test attacks, from inside of sandboxes, the limits that hold a
// command and a sandbox to what was given to them.
package walls_test

import (
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/test/harness"
)

// sandboxes runs a test in a sandbox of each isolation, under one daemon.
func sandboxes(t *testing.T, test func(t *testing.T, c *client.Client, id string)) {
	t.Helper()
	sandboxesOf(t, 256, test)
}

func sandboxesOf(t *testing.T, pids int64, test func(t *testing.T, c *client.Client, id string)) {
	t.Helper()
	// So many processes of Python in gVisor take half a GiB and more, and what ends them shall
	// not be their memory.
	sandboxesWith(t, client.CreateOptions{Limits: &client.Limits{PIDs: pids, CPUs: 0.5, MemoryBytes: 2 << 30}}, test)
}

func sandboxesWith(t *testing.T, o client.CreateOptions, test func(t *testing.T, c *client.Client, id string)) {
	t.Helper()
	c := client.New(harness.Start(t, harness.Options{}).URL)
	for _, isolation := range []string{"gvisor", "container"} {
		t.Run(isolation, func(t *testing.T) {
			o.Isolation = isolation
			b, err := c.Create(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			test(t, c, b.ID)
		})
	}
}

// storm forks for ever, each process in a session of its own, wakes what was
// stopped, and has left its parent.
const storm = `
import os, signal, sys
for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(s, signal.SIG_IGN)
while True:
    try:
        if os.fork() == 0: os.setsid()
    except OSError: pass
    try: os.kill(-1, signal.SIGCONT)
    except OSError: pass
`

// leave goes before a storm: the command kills its supervisor (those are the
// processes of cubby-init beside PID 1) and ends, its child storms.
const leave = `
import os, time
if os.fork():
    for p in os.listdir("/proc"):
        if p.isdigit() and p != "1" and open("/proc/" + p + "/comm").read() == "cubby-init\n": os.kill(int(p), 9)
    os._exit(0)
`

// counted is the script that counts a storm's processes.
const counted = `n=0; for d in /proc/[0-9]*; do case "$(tr '\0' ' ' < $d/cmdline 2>/dev/null)" in
python3\ -c*setsid*|perl\ -e*setsid*|*/R\ *) n=$((n+1));; esac; done; echo $n`

// none fails when processes of the storm are left.
func none(t *testing.T, c *client.Client, id string) {
	t.Helper()
	x, err := c.Exec(t.Context(), id, client.ExecOptions{Shell: counted, User: "root", Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if strings.TrimSpace(x.Stdout) != "0" {
		t.Errorf("%q processes of the storm are left: %q, %s", x.Stdout, x.Stderr, x.Reason)
	}
}

// Of a fork storm in a container hundreds of processes lived on, 15 s after its
// command had ended as killed.
func TestForkStormEndsWithItsTimeLimit(t *testing.T) {
	sandboxes(t, func(t *testing.T, c *client.Client, id string) {
		for _, user := range []string{"sandbox", "root"} {
			x, err := c.Exec(t.Context(), id, client.ExecOptions{Argv: []string{"python3", "-c", storm}, User: user, Timeout: 2 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			if x.Reason != "timeout" {
				t.Errorf("as %s it ended with %s: %s", user, x.Reason, x.Message)
			}
			t.Logf("as %s: %s", user, x.Message)
			none(t, c, id)
		}
	})
}

// A cancel of what a command had left was answered with success while its fork
// storm went on. In a container the command's supervisor is killed, so that
// nothing inside holds the storm together.
func TestCancelOfAForkStormEndsIt(t *testing.T) {
	sandboxes(t, func(t *testing.T, c *client.Client, id string) {
		p, err := c.StartExec(t.Context(), id, client.ExecOptions{
			Argv: []string{"python3", "-c", leave + storm}, User: "root", Timeout: time.Minute,
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := p.Cancel(t.Context()); err != nil {
			t.Errorf("cancel: %v", err)
		}
		none(t, c, id)
	})
}

// A process that asked to be traced and stopped with a signal was taken to have
// ended with code -1, while it lived on.
func TestStopOfATracedProcessIsNoEnd(t *testing.T) {
	const script = `
import ctypes, os, signal
libc = ctypes.CDLL(None)
signal.signal(signal.SIGUSR1, lambda *a: None)
print(libc.ptrace(0, 0, 0, 0), flush=True)
os.kill(os.getpid(), signal.SIGUSR1)
`
	sandboxes(t, func(t *testing.T, c *client.Client, id string) {
		x, err := c.Exec(t.Context(), id, client.ExecOptions{Argv: []string{"python3", "-c", script}, Timeout: 3 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if x.Stdout != "0\n" || x.Reason != "timeout" {
			t.Errorf("it printed %q and ended with %s, %v: %s", x.Stdout, x.Reason, x.ExitCode, x.Message)
		}
	})
}
