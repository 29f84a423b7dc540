//go:build root

package guest_test

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/guest"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

func (b box) sh(t testing.TB, user, script string) result {
	t.Helper()
	return b.run(t, sandbox.ExecSpec{Shell: script, User: user, Cwd: "/"})
}

// answers proves that the agent works.
func (b box) answers(t testing.TB) {
	t.Helper()
	if r := b.sh(t, "", "echo fine"); string(r.stdout) != "fine\n" {
		t.Errorf("after the attack: %q %q %+v", r.stdout, r.stderr, r.exit)
	}
}

func TestKillMinusNineOne(t *testing.T) {
	everySandbox(t, func(t *testing.T, b box) {
		before, err := b.Hello(testContext(t))
		must(t, err)
		// Every signal, to PID 1 and to everything that can be signalled.
		b.sh(t, "root", `for n in $(seq 20); do for s in $(seq 1 64); do kill -$s 1; done; done`)
		b.sh(t, "root", `kill -9 -1`)
		b.sh(t, "", `kill -9 1; kill -9 -1`)
		b.answers(t)
		after, err := b.Hello(testContext(t))
		must(t, err)
		if before.BootID != after.BootID {
			t.Error("the agent is another one")
		}
	})
}

// TestANestedNamespaceHasItsOwnFirstProcess: in gVisor anybody may make one, and the
// numbers in it are not the agent's.
func TestANestedNamespaceHasItsOwnFirstProcess(t *testing.T) {
	b := startBox(t, true, nil)
	r := b.sh(t, "", `unshare -Upf sh -c 'sleep 100 & kill -9 $! && wait; kill -9 -1; echo lives'`)
	if string(r.stdout) != "lives\n" {
		t.Errorf("a process in a namespace of its own cannot kill its own: %q %q %+v", r.stdout, r.stderr, r.exit)
	}
	// Its first mount makes the namespace's mounts its own.
	r = b.sh(t, "", `unshare -Urm true`)
	if !strings.Contains(string(r.stderr), "Operation not permitted") {
		t.Errorf("who has a user namespace can mount: %q %q %+v", r.stdout, r.stderr, r.exit)
	}
	b.answers(t)
}

// A fork bomb ends at its time limit, and leaves the agent and the sandbox usable.
func TestForkBomb(t *testing.T) {
	everySandbox(t, func(t *testing.T, b box) {
		var r result
		// How long it takes to fill the sandbox is the machine's.
		for limit := 3 * time.Second; limit < time.Minute && !strings.Contains(string(r.stderr), "fork"); limit *= 4 {
			r = b.forkBomb(t, limit)
			b.answers(t)
		}
		if !strings.Contains(string(r.stderr), "fork") {
			t.Errorf("no fork was refused: %.200q", r.stderr)
		}
		if r := b.sh(t, "root", "ps -o comm | sort | uniq -c"); strings.Contains(string(r.stdout), "sleep") {
			t.Errorf("left over:\n%s", r.stdout)
		}
	})
}

func (b box) forkBomb(t *testing.T, limit time.Duration) (r result) {
	ctx := testContext(t)
	uid := sandbox.NewUID()
	spec := sandbox.ExecSpec{Shell: `f() { while :; do (f) & done; }; f`, Cwd: "/", Timeout: &limit}
	s, err := b.Exec(ctx, uid, &guest.Start{ExecSpec: spec}, 0)
	must(t, err)
	defer s.Close()
	for r.exit == nil {
		m, err := s.Next()
		if err != nil {
			t.Fatalf("the agent was lost: %v", err)
		}
		r.take(m)
		must(t, b.Ack(ctx, uid, r.next))
	}
	// What the time limit already killed is no error.
	if err := b.Signal(ctx, uid, syscall.SIGKILL, true, sandbox.EndKilled); err != nil && !errors.Is(err, errs.NotFound) {
		t.Errorf("kill = %v", err)
	}
	return r
}

// A fork bomb at its limit: commands are refused with the reason, the agent
// answers, and the bomb can be killed.
func TestStartWhileProcessesAreExhausted(t *testing.T) {
	everySandbox(t, func(t *testing.T, b box) {
		ctx := testContext(t)
		uid := sandbox.NewUID()
		s, err := b.Exec(ctx, uid, &guest.Start{ExecSpec: sandbox.ExecSpec{
			Shell: `while sleep 1000 & do :; done 2>&1; echo full; exec sleep 1000`, Cwd: "/"}}, 0)
		must(t, err)
		defer s.Close()
		var r result
		for !strings.Contains(string(r.stdout), "fork") {
			m, err := s.Next()
			must(t, err)
			r.take(m)
			if r.exit != nil {
				break
			}
		}
		refused := 0
		for range 10 {
			if r := b.sh(t, "", "true"); r.exit.Reason == sandbox.EndNotRun {
				refused++
			}
		}
		t.Logf("%d of 10 commands refused", refused)
		must(t, b.Signal(ctx, uid, syscall.SIGKILL, true, sandbox.EndKilled))
		b.answers(t)
	})
}

func TestEscapesInSandbox(t *testing.T) {
	everySandbox(t, func(t *testing.T, b box) {
		limit := 2 * time.Second
		script := strings.ReplaceAll(escapes("/tmp"), "env -i sh", "env -i /bin/sh")
		r := b.run(t, sandbox.ExecSpec{Shell: script + "sleep 1000", Cwd: "/", Timeout: &limit})
		if r.exit.Reason != sandbox.EndTimeout || !strings.Contains(string(r.stdout), "ready") {
			t.Fatalf("exit = %+v, %q %q", r.exit, r.stdout, r.stderr)
		}
		if r := b.sh(t, "root", `ps -o pid,args`); strings.Contains(string(r.stdout), "sleep 1000") {
			t.Errorf("left over:\n%s", r.stdout)
		}
	})
}

func TestBackgroundServerLivesOn(t *testing.T) {
	everySandbox(t, func(t *testing.T, b box) {
		if r := b.sh(t, "", `cd /tmp; (while :; do echo hello | nc -l -p 8000; done) & echo $!`); *r.exit.Code != 0 {
			t.Fatalf("exit = %+v", r.exit)
		}
		for range 20 {
			b.answers(t)
		}
		eventually(t, func() bool {
			conn, err := b.DialPort(testContext(t), 8000)
			if err != nil {
				return false
			}
			defer conn.Close()
			buf := make([]byte, 16)
			n, _ := conn.Read(buf)
			return string(buf[:n]) == "hello\n"
		})
	})
}

func TestMemoryBomb(t *testing.T) {
	b := startBox(t, true, func(boot *guestv1.Boot) { boot.MemoryBytes = 128 << 20 })
	r := b.sh(t, "", `echo before; tail /dev/zero; echo after $?`)
	if !strings.Contains(r.exit.Message, "tail") {
		t.Errorf("exit = %+v, %q %q: want a message that names the process", r.exit, r.stdout, r.stderr)
	}
	r = b.run(t, sandbox.ExecSpec{Argv: []string{"tail", "/dev/zero"}})
	if r.exit.Reason != sandbox.EndOOM || r.exit.Signal != "SIGKILL" {
		t.Errorf("exit = %+v, want oom", r.exit)
	}
	b.answers(t)
}

func TestSecretIsOutOfReach(t *testing.T) {
	everySandbox(t, func(t *testing.T, b box) {
		for _, user := range []string{"root", "sandbox"} {
			r := b.sh(t, user, `cat /proc/1/environ /proc/1/cmdline; ls -la /proc/1/fd /proc/1/cwd/ ; dd if=/proc/1/mem bs=1 count=1 skip=4194304; cat /proc/1/maps; cat /proc/1/fd/0`)
			if strings.Contains(string(r.stdout), secret) || strings.Contains(string(r.stdout), "r-xp") {
				t.Errorf("%s reads the agent's memory: %.500q", user, r.stdout)
			}
		}
	})
}

func TestCommandLimits(t *testing.T) {
	everySandbox(t, func(t *testing.T, b box) {
		r := b.sh(t, "root", "ulimit -Sn; ulimit -Hn; hostname; cat /proc/self/oom_score_adj")
		if f := strings.Fields(string(r.stdout)); len(f) < 3 || f[0] != "1024" || f[1] != "1024" || f[2] != "boxy" {
			t.Errorf("limits and name: %q %q", r.stdout, r.stderr)
		}
		r = b.sh(t, "root", "grep Cap /proc/self/status; mount -t cgroup2 x /tmp || mount -t cgroup x /tmp || mount -t tmpfs x /tmp")
		if *r.exit.Code == 0 {
			t.Errorf("root among the commands can mount: %q", r.stdout)
		}
		t.Logf("%s%s", r.stdout, r.stderr)
	})
}

// A supervisor that root inside stopped can neither start a command nor see
// the end of one.
func TestStoppedSupervisors(t *testing.T) {
	everySandbox(t, func(t *testing.T, b box) {
		const stop = `for p in $(ls /proc | grep '^[0-9]'); do test $p = $$ || kill -STOP $p; done 2>/dev/null`
		limit := time.Second
		r := b.run(t, sandbox.ExecSpec{Shell: stop + "; sleep 1000", User: "root", Cwd: "/", Timeout: &limit})
		if r.exit.Reason != sandbox.EndTimeout || *r.exit.Code != 137 {
			t.Errorf("exit = %+v, %q", r.exit, r.stderr)
		}
		for range 6 {
			b.answers(t) // also with supervisors that were waiting
		}
	})
}
