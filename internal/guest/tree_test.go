package guest_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/guest"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// escapes is a command whose children try every way out of its tree; each
// leaves its pid in dir.
func escapes(dir string) string {
	return fmt.Sprintf(`cd %s
sleep 1000 & echo $! > child
setsid sh -c 'echo $$ > session; exec sleep 1000' &
sh -c '(setsid sh -c "echo \$\$ > double; exec sleep 1000" &) ; exit'
sh -c '(trap "" TERM HUP INT; setsid env -i sh -c "echo \$\$ > clean; trap \"\" TERM HUP INT; while :; do sleep 1000; done" &) ; exit'
while [ ! -s session -o ! -s double -o ! -s clean ]; do :; done
echo ready
`, dir)
}

var escapers = []string{"child", "session", "double", "clean"}

func pidIn(t *testing.T, dir, name string) int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// lives reports whether a process runs; a zombie does not.
func lives(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return !strings.HasPrefix(rest, "Z")
}

func TestKillReachesWhatLeftTheTree(t *testing.T) {
	h := start(t, supervised(t))
	ctx := testContext(t)
	for _, how := range []string{"while it runs", "after it ended"} {
		t.Run(how, func(t *testing.T) {
			dir := t.TempDir()
			uid := sandbox.NewUID()
			script := escapes(dir)
			if how == "while it runs" {
				script += "sleep 1000"
			}
			s, err := h.Exec(ctx, uid, &guest.Start{ExecSpec: shell(script)}, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			var r result
			for !strings.Contains(string(r.stdout), "ready") || how == "after it ended" && r.exit == nil {
				m, err := s.Next()
				if err != nil {
					t.Fatalf("Next = %v, %q", err, r.stderr)
				}
				r.take(m)
			}
			for _, name := range escapers {
				if !lives(pidIn(t, dir, name)) {
					t.Errorf("%s does not live before the kill", name)
				}
			}
			if err := h.Signal(ctx, uid, syscall.SIGKILL, true, sandbox.EndKilled); err != nil {
				t.Fatalf("Signal = %v", err)
			}
			for _, name := range escapers {
				if pid := pidIn(t, dir, name); lives(pid) {
					t.Errorf("%s (%d) lives after the kill returned", name, pid)
				}
			}
			if how == "while it runs" {
				for r.exit == nil {
					m, err := s.Next()
					if err != nil {
						t.Fatal(err)
					}
					r.take(m)
				}
				if r.exit.Reason != sandbox.EndKilled || r.exit.Signal != "SIGKILL" {
					t.Errorf("exit = %+v, want killed", r.exit)
				}
			}
		})
	}
}

func TestTimeoutKillsWhatLeftTheTree(t *testing.T) {
	h := start(t, supervised(t))
	dir := t.TempDir()
	limit := 3 * time.Second // enough for all of them to start on a busy machine
	spec := shell(escapes(dir) + "sleep 1000")
	spec.Timeout = &limit
	r := h.run(t, spec)
	if r.exit.Reason != sandbox.EndTimeout || string(r.stdout) != "ready\n" {
		t.Errorf("exit = %+v, output %q", r.exit, r.stdout)
	}
	for _, name := range escapers {
		eventually(t, func() bool { return !lives(pidIn(t, dir, name)) })
	}
}

// trapping is a command that answers SIGTERM with a word and an exit code. It
// says "ready" when no fork is under way that could do so too. Its child may be asked
// first, with whose end a wait is over.
func trapping(word string, code int) string {
	return fmt.Sprintf(`trap 'echo %s; exit %d' TERM; sleep 1000 & until grep -q sleep /proc/$!/comm; do :; done; echo ready; while :; do wait; done`, word, code)
}

func TestSignalsToTheGroup(t *testing.T) {
	everywhere(t, func(t *testing.T, h host) {
		ctx := testContext(t)
		uid := sandbox.NewUID()
		s, err := h.Exec(ctx, uid, &guest.Start{ExecSpec: shell(trapping("got", 7))}, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		var r result
		for r.exit == nil {
			m, err := s.Next()
			if err != nil {
				t.Fatal(err)
			}
			if r.take(m); m.Output != nil && string(r.stdout) == "ready\n" {
				if err := h.Signal(ctx, uid, syscall.SIGTERM, false, sandbox.EndKilled); err != nil {
					t.Fatal(err)
				}
			}
		}
		// It was asked to end and ended in its own way: that is no kill.
		if string(r.stdout) != "ready\ngot\n" || *r.exit.Code != 7 || r.exit.Reason != sandbox.EndExited {
			t.Errorf("output %q, exit %+v", r.stdout, r.exit)
		}
		if err := h.Signal(ctx, uid, syscall.SIGTERM, false, ""); !errors.Is(err, errs.WrongState) {
			t.Errorf("signal after the end = %v, want wrong state", err)
		}
		// What watched over the command may live a moment longer.
		for err = nil; err == nil; err = h.Signal(ctx, uid, syscall.SIGKILL, true, "") {
		}
		if !errors.Is(err, errs.NotFound) {
			t.Errorf("tree kill after the end = %v, want not found", err)
		}
		if err := h.Signal(ctx, sandbox.NewUID(), syscall.SIGTERM, false, ""); !errors.Is(err, errs.NotFound) {
			t.Errorf("signal to an unknown exec = %v, want not found", err)
		}
		if err := h.Signal(ctx, uid, syscall.Signal(99), false, ""); !errors.Is(err, errs.Invalid) {
			t.Errorf("signal 99 = %v, want invalid", err)
		}
	})
}

// Root inside can kill a supervisor. The command then ends with it, and its
// exit says so; the next command is not affected.
func TestSupervisorKilled(t *testing.T) {
	h := start(t, supervised(t))
	ctx := testContext(t)
	uid := sandbox.NewUID()
	s, err := h.Exec(ctx, uid, &guest.Start{ExecSpec: shell(`echo $PPID; sleep 1000 & echo $!; wait`)}, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var r result
	killed := false
	for r.exit == nil {
		m, err := s.Next()
		if err != nil {
			t.Fatal(err)
		}
		r.take(m)
		if f := strings.Fields(string(r.stdout)); len(f) == 2 && !killed {
			killed = true
			supervisor, _ := strconv.Atoi(f[0])
			if err := syscall.Kill(supervisor, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			// Outside of a sandbox nobody adopts the orphans.
			child, _ := strconv.Atoi(f[1])
			defer syscall.Kill(child, syscall.SIGKILL)
			if m.Started == nil && r.started != nil {
				defer syscall.Kill(-int(r.started.PID), syscall.SIGKILL)
			}
		}
	}
	if r.exit.Reason != sandbox.EndLost || r.exit.Message == "" {
		t.Errorf("exit = %+v, want killed with a message", r.exit)
	}
	if r := h.run(t, shell("echo fine")); string(r.stdout) != "fine\n" {
		t.Errorf("the next command: %q, %+v", r.stdout, r.exit)
	}
}

func TestShutdownEndsEverything(t *testing.T) {
	h := start(t, supervised(t))
	ctx := testContext(t)
	dir := t.TempDir()
	left := sandbox.NewUID()
	if r := h.follow(t, ctx, left, &guest.Start{ExecSpec: shell(escapes(dir))}, 0); *r.exit.Code != 0 {
		t.Fatalf("exit = %+v", r.exit)
	}
	if err := h.Release(ctx, left); err != nil {
		t.Fatal(err)
	}
	s, err := h.Exec(ctx, sandbox.NewUID(), &guest.Start{ExecSpec: shell("sleep 1000")}, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Next(); err != nil {
		t.Fatal(err)
	}
	if err := h.Shutdown(ctx, 100*time.Millisecond); err != nil {
		t.Fatalf("Shutdown = %v", err)
	}
	m, err := s.Next()
	if err != nil || m.Exit == nil || m.Exit.Reason != sandbox.EndStopped {
		t.Errorf("stream after shutdown = %+v, %v, want an exit that says stopped", m.Exit, err)
	}
	for _, name := range escapers {
		if pid := pidIn(t, dir, name); lives(pid) {
			t.Errorf("%s (%d) outlives the shutdown", name, pid)
		}
	}
}
