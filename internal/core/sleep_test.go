package core_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/core/lifecycle"
	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

func (w *world) sleep(id string, force bool) sandbox.Sandbox {
	w.t.Helper()
	b, err := w.Sandboxes().Sleep(w.ctx, id, force)
	if err != nil || b.State != sandbox.Sleeping {
		w.t.Fatalf("Sleep %s = %s, %v", id, b.State, err)
	}
	return b
}

func (w *world) get(id string) sandbox.Sandbox {
	w.t.Helper()
	b, err := w.Sandboxes().Get(w.ctx, id)
	if err != nil {
		w.t.Fatal(err)
	}
	return b
}

// phase is what the driver sees of a sandbox.
func (w *world) phase(b sandbox.Sandbox) driver.Phase {
	w.t.Helper()
	st, err := w.fake.Inspect(w.ctx, b.Handle)
	if err != nil {
		w.t.Fatal(err)
	}
	return st.Phase
}

// happened are the kinds of a sandbox's events, but for those of commands.
func (w *world) happened(id string) (kinds []string) {
	w.t.Helper()
	events, _, err := w.Events().List(w.ctx, id, 0, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, e := range events {
		if strings.HasPrefix(e.Kind, "sandbox.") {
			kinds = append(kinds, e.Kind)
		}
	}
	return kinds
}

// payload is that of the newest event of a kind.
func (w *world) payload(id, kind string) event.Payload {
	w.t.Helper()
	events, _, err := w.Events().List(w.ctx, id, 0, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, e := range slices.Backward(events) {
		if e.Kind == kind {
			p, err := event.PayloadOf(e)
			if err != nil {
				w.t.Fatal(err)
			}
			return p
		}
	}
	w.t.Fatalf("%s has no event %s", id, kind)
	return nil
}

func TestSleepAndWake(t *testing.T) {
	w := newWorld(t, func(c *core.Config) { c.Sandboxes.Caps.All = 1 })
	b := w.create("a")
	left := w.sh("a", "echo $$; sleep 1000 >/dev/null 2>&1 & echo $!")
	pid := strings.Fields(string(left.Stdout))[1]
	slept := w.sleep("a", false)
	if slept.Cause != sandbox.CauseSleep || slept.Reason != "" || slept.StoppedAt.IsZero() || !slept.IdleAt.IsZero() {
		t.Errorf("it sleeps with %+v", slept)
	}
	if again := w.sleep("a", false); !again.StoppedAt.Equal(slept.StoppedAt) {
		t.Error("the second sleep did something")
	}
	// It takes no place.
	other := w.create("b")
	if _, err := w.Execs().Start(w.ctx, "a", sandbox.ExecSpec{Shell: "true"}); !errors.Is(err, errs.Exhausted) {
		t.Errorf("a wake without a place: %v, want exhausted", err)
	}
	if w.get("a").State != sandbox.Sleeping || w.phase(b) != driver.PhaseAsleep {
		t.Error("a wake without a place did something")
	}
	if err := w.Sandboxes().Destroy(w.ctx, string(other.ID), false); err != nil {
		t.Fatal(err)
	}
	woken, err := w.Sandboxes().Wake(w.ctx, "a")
	if err != nil || woken.State != sandbox.Running || woken.Cause != sandbox.CauseNone || !woken.StartedAt.After(slept.StoppedAt) {
		t.Errorf("Wake = %+v, %v", woken, err)
	}
	if _, err := w.Sandboxes().Wake(w.ctx, "a"); err != nil {
		t.Errorf("the second Wake: %v", err)
	}
	if r := w.sh("a", "kill "+pid+" && echo it ran on"); string(r.Stdout) != "it ran on\n" {
		t.Errorf("the process of before: %q, %q", r.Stdout, r.Stderr)
	}
	want := []string{event.SandboxCreated, event.SandboxStarted, event.SandboxSlept, event.SandboxWoken}
	if got := w.happened("a"); !slices.Equal(got, want) {
		t.Errorf("it happened %v, want %v", got, want)
	}
	if p := w.payload("a", event.SandboxWoken); p != (event.Woken{}) {
		t.Errorf("it woke with %+v", p)
	}
	if _, err := w.Sandboxes().Stop(w.ctx, "a", 0); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Sandboxes().Sleep(w.ctx, "a", true); !errors.Is(err, errs.WrongState) {
		t.Errorf("a sleep of a stopped one: %v", err)
	}
	if b, err := w.Sandboxes().Wake(w.ctx, "a"); err != nil || b.State != sandbox.Running {
		t.Errorf("a wake of a stopped one: %s, %v", b.State, err)
	}
}

// Whoever only looks wakes nothing.
func TestLooksWakeNothing(t *testing.T) {
	w := newWorld(t)
	b := w.create("a")
	w.in("a", "cd /")
	l := w.look("a", live.TerminalSpec{Shell: "echo hello; read x"})
	l.wait("hello")
	l.leave()
	x := w.sh("a", "echo output")
	w.sleep("a", false)
	if _, err := w.Sandboxes().List(w.ctx, lifecycle.Query{}); err != nil {
		t.Error(err)
	}
	w.happened("a")
	if st, err := w.Sandboxes().Stats(w.ctx, "a"); err != nil || st.MemoryBytes != 0 || st.MemoryOnDisk == 0 {
		t.Errorf("Stats = %+v, %v", st, err)
	}
	if all, err := w.Sessions().List(w.ctx, "a"); err != nil || len(all) != 1 || all[0].Cwd != "/" {
		t.Errorf("Sessions = %+v, %v", all, err)
	}
	if all, err := w.Terminals().List(w.ctx, "a"); err != nil || len(all) != 1 || all[0].Seq != l.Seq {
		t.Errorf("Terminals = %+v, %v", all, err)
	}
	if _, _, err := w.Kernels().List(w.ctx, "a"); !errors.Is(err, errs.WrongState) {
		t.Errorf("Kernels = %v", err)
	}
	if r, err := w.Execs().Result(w.ctx, "a", x.Exec.Seq, live.OutputCaps{Stdout: -1}); err != nil || string(r.Stdout) != "output\n" {
		t.Errorf("Result = %q, %v", r.Stdout, err)
	}
	if _, err := w.Execs().List(w.ctx, "a", live.ExecQuery{}); err != nil {
		t.Error(err)
	}
	if _, err := w.Execs().WriteStdin(w.ctx, "a", x.Exec.Seq, 0, nil, false); !errors.Is(err, errs.WrongState) {
		t.Errorf("a write to a command that has ended: %v", err)
	}
	if _, err := w.Sandboxes().Keepalive(w.ctx, "a", lifecycle.Keepalive{}); !errors.Is(err, errs.WrongState) {
		t.Errorf("Keepalive = %v", err)
	}
	labels := map[string]string{"a": "b"}
	if _, err := w.Sandboxes().Update(w.ctx, "a", lifecycle.Patch{Labels: &labels}); err != nil {
		t.Error(err)
	}
	if w.get("a").State != sandbox.Sleeping || w.phase(b) != driver.PhaseAsleep {
		t.Error("it has been woken")
	}
}

// Whoever uses a sleeping sandbox wakes it, and then gets what was asked for.
func TestUsesWake(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	left := w.sh("a", "echo old > file; sleep 1000 >/dev/null 2>&1 & echo $!")
	l := w.look("a", live.TerminalSpec{Shell: "read x; echo got-$x; read y"})
	for name, use := range map[string]func() error{
		"a command": func() error { w.sh("a", "true"); return nil },
		"a command of a session": func() error {
			w.in("a", "true")
			return nil
		},
		"a file that is read": func() error {
			r, _, err := w.Files().Read(w.ctx, "a", "file", 0, -1)
			if err != nil {
				return err
			}
			defer r.Close()
			text, err := io.ReadAll(r)
			if string(text) != "old\n" {
				t.Errorf("the file has %q", text)
			}
			return err
		},
		"a file that is written": func() error {
			_, err := w.Files().Write(w.ctx, "a", "new", strings.NewReader("new"), sandbox.FileWrite{})
			return err
		},
		"a watch": func() error { return w.CheckWatch(w.ctx, "a", ".") },
		"a terminal": func() error {
			v, err := w.Terminals().Open(w.ctx, "a", live.TerminalSpec{Name: "other", Shell: "read x"})
			if err == nil {
				v.Close()
				err = w.Terminals().Close(w.ctx, "a", "other")
			}
			return err
		},
		"a terminal of before": func() error {
			v, err := w.Terminals().Open(w.ctx, "a", live.TerminalSpec{Seq: l.Seq})
			if err == nil {
				v.Close()
			}
			return err
		},
		"a port": func() error {
			conn, err := w.Ports().Dial(w.ctx, "a", 1)
			if err == nil {
				conn.Close()
			}
			if errors.Is(err, errs.WrongState) {
				return err
			}
			return nil // nobody listens there
		},
		"a kernel": func() error {
			_, err := w.Kernels().Interrupt(w.ctx, "a", "none")
			if errors.Is(err, errs.WrongState) {
				return err
			}
			return nil // there is none
		},
		"a cancel of what a command left": func() error {
			_, err := w.Execs().Cancel(w.ctx, "a", left.Exec.Seq)
			return err
		},
		"typing": func() error { return l.Write(w.ctx, []byte("x\r")) },
	} {
		w.sleep("a", true)
		if err := use(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if s := w.get("a").State; s != sandbox.Running {
			t.Errorf("%s: it is %s", name, s)
		}
	}
	l.wait("got-x")
	l.leave()
}

// What runs keeps a sandbox awake, unless it is forced to sleep.
func TestSleepOfOneInUse(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	refused := func(what string) {
		t.Helper()
		if _, err := w.Sandboxes().Sleep(w.ctx, "a", false); !errors.Is(err, errs.InUse) {
			t.Errorf("a sleep during %s: %v, want in use", what, err)
		}
		if s := w.get("a").State; s != sandbox.Running {
			t.Fatalf("%s: it is %s", what, s)
		}
	}
	x := w.launch("a", "echo ready; sleep 1000")
	refused("a command")
	if _, err := w.Execs().Cancel(w.ctx, "a", x.Seq); err != nil {
		t.Fatal(err)
	}
	hold, open := gate(t)
	q := w.queue("a", sandbox.ExecSpec{Shell: hold})
	refused("a command of a session")
	open()
	w.wait("a", q.Seq)
	l := w.look("a", live.TerminalSpec{Shell: "echo hello; read x"})
	l.wait("hello")
	refused("a look at a terminal")
	l.leave()
	w.sh("a", "head -c 4000000 /dev/zero > file")
	r, _, err := w.Files().Read(w.ctx, "a", "file", 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	refused("a transfer")
	r.Close()
	w.sleep("a", false) // the terminal's program alone is no use
}

// A sandbox that is forced to sleep goes on after the wake as if nothing had been:
// a command and who follows it, a queue with its secrets, a terminal and who looks
// at it.
func TestForcedSleepBreaksNothing(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	hold, open := gate(t)
	x := w.launch("a", "echo ready; "+hold+"; seq 1 20000; echo done")
	first := w.queue("a", sandbox.ExecSpec{Shell: hold + "; echo first >> log"})
	second := w.queue("a", sandbox.ExecSpec{Shell: "echo $TOKEN >> log", Secrets: map[string]string{"TOKEN": "secret"}})
	third := w.queue("a", sandbox.ExecSpec{Shell: "echo third ${TOKEN-none} >> log", Env: map[string]string{"E": "v"}})
	l := w.look("a", live.TerminalSpec{Shell: "echo hello; read x; echo got-$x; read y"})
	l.wait("hello")

	var output strings.Builder
	var exit *sandbox.Exit
	var waiting sync.WaitGroup
	waiting.Go(func() {
		for e, err := range w.Execs().Output(w.ctx, "a", x.Seq, 0, true) {
			if err != nil {
				t.Errorf("the follower got %v", err)
				return
			}
			if exit = e.Exit; exit == nil {
				if e.Output.Offset != int64(output.Len()) {
					t.Errorf("there is output at %d after %d", e.Output.Offset, output.Len())
				}
				output.Write(e.Output.Data)
			}
		}
	})
	ended := make(chan sandbox.Exec, 3)
	for _, seq := range []int64{x.Seq, first.Seq, third.Seq} {
		waiting.Go(func() {
			x, err := w.Execs().Wait(w.ctx, "a", seq, -1)
			if err != nil {
				t.Errorf("who waited for %d got %v", seq, err)
			}
			ended <- x
		})
	}
	for range 3 {
		w.sleep("a", true)
		// Somebody comes who follows while it sleeps, and sees what there is.
		ctx, cancel := context.WithCancel(w.ctx)
		for e, err := range w.Execs().Output(ctx, "a", x.Seq, 0, true) {
			if err != nil || string(e.Output.Data) != "ready\n" {
				t.Errorf("a follower of one that sleeps gets %q, %v", e.Output.Data, err)
			}
			break
		}
		cancel()
		if now, err := w.Execs().Wait(w.ctx, "a", x.Seq, time.Millisecond); err != nil || now.Status != sandbox.ExecRunning {
			t.Errorf("meanwhile the command is %s, %v", now.Status, err)
		}
		if w.get("a").State != sandbox.Sleeping {
			t.Error("it has been woken")
		}
		if _, err := w.Sandboxes().Wake(w.ctx, "a"); err != nil {
			t.Fatal(err)
		}
	}
	if b := w.get("a"); !b.IdleAt.IsZero() {
		t.Errorf("it idles at %s although it is in use", b.IdleAt)
	}
	w.sleep("a", true)
	open() // while it sleeps: the fake's commands go on unreached
	if _, err := w.Sandboxes().Wake(w.ctx, "a"); err != nil {
		t.Fatal(err)
	}
	waiting.Wait()
	for range 3 {
		if x := <-ended; x.Status != sandbox.ExecDone || *x.Exit.Code != 0 {
			t.Errorf("%d ended %s %+v", x.Seq, x.Status, x.Exit)
		}
	}
	if exit == nil || exit.Reason != sandbox.EndExited {
		t.Errorf("the follower saw the end %+v", exit)
	}
	if want := "ready\n" + w.seq(20000) + "done\n"; output.String() != want {
		t.Errorf("the follower has %d bytes, want %d", output.Len(), len(want))
	}
	w.wait("a", second.Seq)
	if r := w.sh("a", "cat log"); string(r.Stdout) != "first\nsecret\nthird none\n" {
		t.Errorf("the queue left %q", r.Stdout)
	}
	l.typed("x\r")
	l.wait("got-x")
	if got := l.shown(); strings.Count(got, "hello") != 1 || l.gaps != 0 {
		t.Errorf("the viewer saw %q with %d bytes missing", got, l.gaps)
	}
	if all, err := w.Terminals().List(w.ctx, "a"); err != nil || len(all) != 1 || all[0].Viewers != 1 {
		t.Errorf("the terminals are %+v, %v", all, err)
	}
	if _, err := w.Sandboxes().Sleep(w.ctx, "a", false); !errors.Is(err, errs.InUse) {
		t.Errorf("the viewer does not count any more: %v", err)
	}
	l.leave()
	w.sleep("a", false)
}

func (w *world) seq(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintln(&b, i+1)
	}
	return b.String()
}

// A terminal and a command whose sandbox ends while it sleeps end too, for those
// who stayed.
func TestStopOfASleepingSandbox(t *testing.T) {
	for name, end := range map[string]func(w *world) error{
		"stop":    func(w *world) error { _, err := w.Sandboxes().Stop(w.ctx, "a", 0); return err },
		"destroy": func(w *world) error { return w.Sandboxes().Destroy(w.ctx, "a", false) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.create("a")
			x := w.launch("a", "echo ready; sleep 1000")
			l := w.look("a", live.TerminalSpec{Shell: "echo hello; read x"})
			l.wait("hello")
			w.sleep("a", true)
			ended := make(chan sandbox.Exec)
			go func() {
				x, err := w.Execs().Wait(w.ctx, "a", x.Seq, -1)
				if err != nil {
					t.Error(err)
				}
				ended <- x
			}()
			if err := end(w); err != nil {
				t.Fatal(err)
			}
			if x := <-ended; !x.Status.Finished() || x.Exit.Reason != sandbox.EndStopped && x.Exit.Reason != sandbox.EndDestroyed {
				t.Errorf("it ended %s %+v", x.Status, x.Exit)
			}
			<-l.done
			if l.exit == nil {
				t.Error("the viewer saw no end")
			}
			l.leave()
			if name == "destroy" {
				w.nothingLeft()
			}
		})
	}
}

func TestCancelOfWhatSleeps(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	x := w.launch("a", "echo ready; sleep 1000")
	w.sleep("a", true)
	if x, err := w.Execs().Cancel(w.ctx, "a", x.Seq); err != nil || x.Exit == nil || x.Exit.Reason != sandbox.EndKilled {
		t.Errorf("Cancel = %+v, %v", x.Exit, err)
	}
	hold, open := gate(t)
	w.queue("a", sandbox.ExecSpec{Shell: hold})
	waits := w.queue("a", sandbox.ExecSpec{Shell: "true"})
	w.sleep("a", true)
	if x, err := w.Execs().Cancel(w.ctx, "a", waits.Seq); err != nil || x.Exit == nil || x.Exit.Reason != sandbox.EndNotRun {
		t.Errorf("Cancel of one that waits = %+v, %v", x.Exit, err)
	}
	open()
	stdin, err := w.Execs().Start(w.ctx, "a", sandbox.ExecSpec{Shell: "read x; echo got-$x", Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	w.sleep("a", true)
	if _, err := w.Execs().WriteStdin(w.ctx, "a", stdin.Seq, 0, []byte("x\n"), true); err != nil {
		t.Errorf("WriteStdin: %v", err)
	}
	w.wait("a", stdin.Seq)
	if r, err := w.Execs().Result(w.ctx, "a", stdin.Seq, live.OutputCaps{Stdout: -1}); err != nil || string(r.Stdout) != "got-x\n" {
		t.Errorf("it printed %q, %v", r.Stdout, err)
	}
}
