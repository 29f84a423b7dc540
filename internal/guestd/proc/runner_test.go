package proc_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/guestd/proc"
	"github.com/cubbyhq/cubby/internal/uptime"
)

// newRunner is one for commands of the test's own user. When the test ends
// everything that it started is ended.
func newRunner(t *testing.T) *proc.Runner {
	t.Helper()
	return newRunnerBy(t, uptime.New())
}

// newRunnerBy is newRunner with a clock.
func newRunnerBy(t *testing.T, clock *uptime.Clock) *proc.Runner {
	t.Helper()
	life, end := context.WithCancel(context.Background())
	r := proc.New(life, proc.Config{
		Env: []string{"PATH=" + os.Getenv("PATH")}, OneUser: true, MapPath: func(p string) string { return p },
		Log: slog.New(slog.DiscardHandler), Now: time.Now, Uptime: clock,
	})
	if err := r.Open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.Refuse()
		r.End(context.Background(), 0)
		end()
		r.Close()
	})
	return r
}

// wait acknowledges an Exec's output until its end and returns it with the exit.
func wait(t *testing.T, e *proc.Exec) (string, *guestv1.ExecExit) {
	t.Helper()
	var text strings.Builder
	more, stop := e.Output().Subscribe()
	defer stop()
	for next := int64(0); ; {
		segments, done, err := e.Output().After(next)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range segments {
			text.Write(s.Data)
			next = s.End()
		}
		if done {
			return text.String(), e.Exit()
		}
		if len(segments) == 0 {
			select {
			case <-more:
			case <-t.Context().Done():
				t.Fatal("the command did not end")
			}
		}
	}
}

func TestRunnerRuns(t *testing.T) {
	r := newRunner(t)
	for _, tt := range []struct {
		name   string
		start  *guestv1.ExecStart
		output string
		code   int32
		reason guestv1.ExitReason
	}{
		{"exit code", &guestv1.ExecStart{Shell: "echo out; exit 3", Cwd: "/"}, "out\n", 3, guestv1.ExitReason_EXIT_REASON_EXITED},
		{"environment", &guestv1.ExecStart{Argv: []string{"printenv", "A"}, Env: []string{"A=own"}, Cwd: "/"}, "own\n", 0, guestv1.ExitReason_EXIT_REASON_EXITED},
		{"no program", &guestv1.ExecStart{Argv: []string{"no-such-program"}, Cwd: "/"}, "", proc.CodeNotFound, guestv1.ExitReason_EXIT_REASON_NOT_STARTED},
		{"time limit", &guestv1.ExecStart{Shell: "sleep 60", Cwd: "/", Timeout: durationpb.New(50 * time.Millisecond)}, "", 137, guestv1.ExitReason_EXIT_REASON_TIMEOUT},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := r.NewExec(tt.name)
			r.Run(e, tt.start)
			output, exit := wait(t, e)
			if output != tt.output || exit.GetCode() != tt.code || exit.GetReason() != tt.reason {
				t.Errorf("output %q, exit %v; want %q, code %d, %v", output, exit, tt.output, tt.code, tt.reason)
			}
		})
	}
}

func TestSignalReachesWhatACommandLeft(t *testing.T) {
	r := newRunner(t)
	e := r.NewExec("leaves")
	r.Run(e, &guestv1.ExecStart{Shell: "setsid sleep 60 >/dev/null 2>&1 & echo started", Cwd: "/"})
	if output, exit := wait(t, e); output != "started\n" || exit.GetCode() != 0 {
		t.Fatalf("output %q, exit %v", output, exit)
	}
	for deadline := time.Now().Add(10 * time.Second); r.Left("leaves") != e; {
		if time.Now().After(deadline) {
			t.Fatal("what the command left is not known")
		}
		time.Sleep(time.Millisecond)
	}
	if err := e.Signal(t.Context(), syscall.SIGTERM, 0, false); !errors.Is(err, errs.WrongState) {
		t.Errorf("a signal to the command = %v, want wrong state", err)
	}
	if err := e.Signal(t.Context(), syscall.SIGKILL, 0, true); err != nil {
		t.Errorf("a signal to all of it = %v", err)
	}
	if err := e.Signal(t.Context(), syscall.SIGKILL, 0, true); !errors.Is(err, errs.NotFound) {
		t.Errorf("a signal to nothing = %v, want not found", err)
	}
}

func TestStandardInput(t *testing.T) {
	r := newRunner(t)
	e := r.NewExec("cat")
	r.Run(e, &guestv1.ExecStart{Argv: []string{"cat"}, Stdin: true, Cwd: "/"})
	for _, w := range []struct {
		at   int64
		data string
		eof  bool
		to   int64
	}{{0, "one ", false, 4}, {0, "one ", false, 4}, {4, "two", true, 7}} {
		if at, err := e.WriteStdin(t.Context(), w.at, []byte(w.data), w.eof); err != nil || at != w.to {
			t.Fatalf("WriteStdin(%d, %q) = %d, %v, want %d", w.at, w.data, at, err, w.to)
		}
	}
	if output, _ := wait(t, e); output != "one two" {
		t.Errorf("output %q", output)
	}
}

func TestEndSaysWhy(t *testing.T) {
	r := newRunner(t)
	e := r.NewExec("sleeps")
	r.Run(e, &guestv1.ExecStart{Argv: []string{"sleep", "60"}, Cwd: "/"})
	<-e.Begun()
	r.Refuse()
	r.End(t.Context(), 0)
	if _, exit := wait(t, e); exit.GetReason() != guestv1.ExitReason_EXIT_REASON_SHUTDOWN || exit.GetMessage() != proc.ShutdownText {
		t.Errorf("exit %v", exit)
	}
	late := r.NewExec("late")
	r.Run(late, &guestv1.ExecStart{Argv: []string{"sleep", "60"}, Cwd: "/"})
	if _, exit := wait(t, late); exit.GetReason() != guestv1.ExitReason_EXIT_REASON_SHUTDOWN {
		t.Errorf("a command that is started while all are ended: %v", exit)
	}
}

func TestProcessOfTheAgentsOwn(t *testing.T) {
	r := newRunner(t)
	files := r.Files()
	out, err := files.Pipe(1, true)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	extra, err := files.Pipe(3, true)
	if err != nil {
		t.Fatal(err)
	}
	defer extra.Close()
	p, err := r.Start("own", &guestv1.ExecStart{Shell: "sleep 60 & echo one; echo two >&3; exec sleep 60", Cwd: "/"}, files)
	files.Close()
	if err != nil {
		t.Fatal(err)
	}
	for f, want := range map[*os.File]string{out: "one\n", extra: "two\n"} {
		got := make([]byte, len(want))
		if _, err := io.ReadFull(f, got); err != nil || string(got) != want {
			t.Errorf("read %q, %v, want %q", got, err, want)
		}
	}
	if n := len(p.Members()); n < 2 {
		t.Errorf("%d members, want the process and its child", n)
	}
	if err := p.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if ws := <-p.Ended(); ws.Signal() != syscall.SIGKILL {
		t.Errorf("it ended by %v", ws)
	}
	if n := len(p.Members()); n != 0 {
		t.Errorf("%d members after a kill", n)
	}
	p.Forget()
}

// A sandbox that sleeps uses up no time limit: what is left of one counts from
// the wake on.
func TestTimeLimitStandsStill(t *testing.T) {
	clock := uptime.New()
	r := newRunnerBy(t, clock)
	const limit = 20 * time.Millisecond
	start := &guestv1.ExecStart{Argv: []string{"cat"}, Cwd: "/", Stdin: true, Timeout: durationpb.New(limit)}
	clock.Pause()
	spared, hit := r.NewExec("spared"), r.NewExec("hit")
	r.Run(spared, start)
	r.Run(hit, start)
	<-hit.Begun()
	<-spared.Begun()
	// One that begins later and has another clock has come to its end.
	other := newRunner(t)
	control := other.NewExec("control")
	other.Run(control, start)
	if _, exit := wait(t, control); exit.GetReason() != guestv1.ExitReason_EXIT_REASON_TIMEOUT {
		t.Fatalf("a command whose clock runs: %v, want a timeout", exit)
	}
	if _, err := spared.WriteStdin(t.Context(), 0, []byte("whole"), true); err != nil {
		t.Fatal(err)
	}
	if out, exit := wait(t, spared); out != "whole" || exit.GetReason() != guestv1.ExitReason_EXIT_REASON_EXITED {
		t.Errorf("a command that ends while the clock is paused: %q, %v", out, exit)
	}
	if exit := hit.Exit(); exit != nil {
		t.Errorf("a command ended while the clock was paused: %v", exit)
	}
	clock.Resume()
	if _, exit := wait(t, hit); exit.GetReason() != guestv1.ExitReason_EXIT_REASON_TIMEOUT {
		t.Errorf("a command that goes on after that: %v, want a timeout", exit)
	}
}
