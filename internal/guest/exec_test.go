package guest_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/guest"
	"github.com/cubbyhq/cubby/internal/guestd"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// everyLauncher runs a test with each way in which commands are held together
// that needs no sandbox.
func everyLauncher(t *testing.T, test func(t *testing.T, h host)) {
	t.Run("plain", func(t *testing.T) { test(t, start(t, nil)) })
	t.Run("supervised", func(t *testing.T) { test(t, start(t, supervised(t))) })
}

// everywhere runs a test that needs no file of the host also inside real
// sandboxes, where the tests run as root.
func everywhere(t *testing.T, test func(t *testing.T, h host)) {
	everyLauncher(t, test)
	inSandboxes(t, test)
}

func TestExecOutcome(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"noexec": 0o644, "noshebang": 0o755} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("echo ran $0 $1\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		name           string
		spec           sandbox.ExecSpec
		stdout, stderr string
		code           int
		signal         string
		reason         sandbox.EndReason
	}{
		{"true", sandbox.ExecSpec{Argv: []string{"true"}}, "", "", 0, "", sandbox.EndExited},
		{"argv is not expanded", sandbox.ExecSpec{Argv: []string{"echo", "$HOME *"}}, "$HOME *\n", "", 0, "", sandbox.EndExited},
		{"both streams", shell("echo out; echo err >&2; exit 3"), "out\n", "err\n", 3, "", sandbox.EndExited},
		{"own signal", shell("kill -USR1 $$"), "", "", 128 + 10, "SIGUSR1", sandbox.EndExited},
		{"cwd", sandbox.ExecSpec{Shell: "pwd", Cwd: "/usr"}, "/usr\n", "", 0, "", sandbox.EndExited},
		{"env", sandbox.ExecSpec{Shell: "echo $A", Env: map[string]string{"A": "b c"}}, "b c\n", "", 0, "", sandbox.EndExited},
		{"stdin is empty", shell("cat; echo end"), "end\n", "", 0, "", sandbox.EndExited},
		{"no such command", sandbox.ExecSpec{Argv: []string{"no-such-command-here"}}, "", "", 127, "", sandbox.EndNotRun},
		{"no such file", sandbox.ExecSpec{Argv: []string{"/no/such"}}, "", "", 127, "", sandbox.EndNotRun},
		{"not executable", sandbox.ExecSpec{Argv: []string{dir + "/noexec"}}, "", "", 126, "", sandbox.EndNotRun},
		{"directory", sandbox.ExecSpec{Argv: []string{"/usr"}}, "", "", 126, "", sandbox.EndNotRun},
		{"script without interpreter line", sandbox.ExecSpec{Argv: []string{"./noshebang", "x"}, Cwd: dir}, "ran " + dir + "/noshebang x\n", "", 0, "", sandbox.EndExited},
		{"PATH of the command", sandbox.ExecSpec{Argv: []string{"noshebang"}, Env: map[string]string{"PATH": dir + ":/bin:/usr/bin"}}, "ran " + dir + "/noshebang\n", "", 0, "", sandbox.EndExited},
		{"cwd missing", sandbox.ExecSpec{Argv: []string{"true"}, Cwd: "/no/such"}, "", "", 126, "", sandbox.EndNotRun},
		{"cwd is a file", sandbox.ExecSpec{Argv: []string{"true"}, Cwd: "/etc/passwd"}, "", "", 126, "", sandbox.EndNotRun},
		{"no such user", sandbox.ExecSpec{Argv: []string{"true"}, User: "nobody-knows"}, "", "", 126, "", sandbox.EndNotRun},
		{"NUL in an argument", sandbox.ExecSpec{Argv: []string{"echo", "a\x00b"}}, "", "", 126, "", sandbox.EndNotRun},
		{"own session", shell("ps -o sid= -p $$ | tr -d ' ' | grep -qx $$ && echo leader"), "leader\n", "", 0, "", sandbox.EndExited},
	}
	everyLauncher(t, func(t *testing.T, h host) {
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				r := h.run(t, tt.spec)
				if r.exit == nil {
					t.Fatal("no exit")
				}
				if got := *r.exit.Code; got != tt.code || r.exit.Signal != tt.signal || r.exit.Reason != tt.reason {
					t.Errorf("exit = %d %q %s (%s), want %d %q %s", got, r.exit.Signal, r.exit.Reason, r.exit.Message, tt.code, tt.signal, tt.reason)
				}
				if string(r.stdout) != tt.stdout || string(r.stderr) != tt.stderr {
					t.Errorf("output = %q, %q, want %q, %q", r.stdout, r.stderr, tt.stdout, tt.stderr)
				}
				if notRun := tt.reason == sandbox.EndNotRun; notRun != (r.started == nil) || notRun != (r.exit.Message != "") {
					t.Errorf("started = %v, message %q with reason %s", r.started, r.exit.Message, tt.reason)
				}
				if r.exit.Offset != r.next {
					t.Errorf("exit at offset %d, output ends at %d", r.exit.Offset, r.next)
				}
			})
		}
	})
}

func TestExecSameUIDRunsOnce(t *testing.T) {
	h := start(t, nil)
	ctx := testContext(t)
	file := filepath.Join(t.TempDir(), "runs")
	uid := sandbox.NewUID()
	spec := &guest.Start{ExecSpec: shell("echo ran >> " + file + "; echo done")}
	for range 3 {
		if r := h.follow(t, ctx, uid, spec, 0); string(r.stdout) != "done\n" {
			t.Errorf("output = %q, want %q", r.stdout, "done\n")
		}
	}
	if b, _ := os.ReadFile(file); string(b) != "ran\n" {
		t.Errorf("the command left %q, want one line", b)
	}
	if err := h.Release(ctx, uid); err != nil {
		t.Fatal(err)
	}
	if _, err := nextOf(h.Exec(ctx, uid, nil, 0)); !errors.Is(err, errs.NotFound) {
		t.Errorf("attach after release = %v, want not found", err)
	}
}

// nextOf is the first message of a stream.
func nextOf(s *guest.ExecStream, err error) (guest.ExecMessage, error) {
	if err != nil {
		return guest.ExecMessage{}, err
	}
	defer s.Close()
	return s.Next()
}

func TestExecReleaseRefusesRunning(t *testing.T) {
	h := start(t, nil)
	ctx := testContext(t)
	uid := sandbox.NewUID()
	if _, err := nextOf(h.Exec(ctx, uid, &guest.Start{ExecSpec: shell("sleep 100")}, 0)); err != nil {
		t.Fatal(err)
	}
	if err := h.Release(ctx, uid); !errors.Is(err, errs.WrongState) {
		t.Errorf("Release of a running exec = %v, want wrong state", err)
	}
	list, err := h.List(ctx)
	if err != nil || len(list) != 1 || list[0].UID != uid || list[0].Finished {
		t.Errorf("List = %v, %v, want the one that runs", list, err)
	}
}

func TestExecEnvironmentOrder(t *testing.T) {
	h := start(t, func(c *guestd.Config) {
		c.Boot.Env = []string{"PATH=" + os.Getenv("PATH"), "A=boot", "B=boot", "HOME=/boot"}
	})
	r := h.run(t, sandbox.ExecSpec{Shell: "echo $A $B $HOME $USER", Env: map[string]string{"B": "own"}})
	if got, want := string(r.stdout), "boot own /boot sandbox\n"; got != want {
		t.Errorf("environment = %q, want %q", got, want)
	}
}

func TestTimeoutKeepsPartialOutput(t *testing.T) {
	everywhere(t, func(t *testing.T, h host) {
		limit := 2 * time.Second // enough for a shell to start on a busy machine
		spec := shell(`trap "" TERM; echo before; sleep 100; echo after`)
		spec.Timeout = &limit
		r := h.run(t, spec)
		if r.exit.Reason != sandbox.EndTimeout || *r.exit.Code != 137 || r.exit.Signal != "SIGKILL" || r.exit.Message == "" {
			t.Errorf("exit = %+v, want timeout by SIGKILL", r.exit)
		}
		if string(r.stdout) != "before\n" {
			t.Errorf("output = %q, want what was written before", r.stdout)
		}
	})
}

func TestBackgroundChildDoesNotHoldTheExit(t *testing.T) {
	everyLauncher(t, func(t *testing.T, h host) {
		ctx := testContext(t)
		uid := sandbox.NewUID()
		mark := filepath.Join(t.TempDir(), "lives")
		// The child keeps stdout open, writes to it later, and must survive that.
		r := h.follow(t, ctx, uid, &guest.Start{ExecSpec: shell(
			"(sleep 0.3; head -c 300000 /dev/zero; echo x > " + mark + "; sleep 100) & echo started")}, 0)
		if string(r.stdout) != "started\n" || *r.exit.Code != 0 {
			t.Errorf("output %q, exit %+v, want the command's own", r.stdout, r.exit)
		}
		eventually(t, func() bool { _, err := os.Stat(mark); return err == nil })
		if err := h.Signal(ctx, uid, 9, true, sandbox.EndKilled); err != nil {
			t.Errorf("kill of what was left = %v", err)
		}
	})
}

// eventually waits for something that another process does.
func eventually(t *testing.T, done func() bool) {
	t.Helper()
	within(t, patience, done)
}

func within(t *testing.T, limit time.Duration, done func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !done(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it did not happen")
		}
	}
}
