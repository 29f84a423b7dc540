package core_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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
			conn, err := w.DialPort(w.ctx, "a", 1)
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

// All who use a sleeping sandbox at once wake it once.
func TestUsesAtOnceWakeOnce(t *testing.T) {
	const users = 20
	w := newWorld(t)
	w.create("a")
	w.sleep("a", false)
	var wakes atomic.Int32
	w.faults.Before = func(_ context.Context, method string, _ sandbox.UID) {
		if method == "Wake" {
			wakes.Add(1)
		}
	}
	var all sync.WaitGroup
	for i := range users {
		all.Go(func() {
			if i%2 == 0 {
				w.sh("a", "true")
			} else if _, err := w.Files().Stat(w.ctx, "a", ".", true); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := wakes.Load(); n != 1 {
		t.Errorf("it was woken %d times", n)
	}
}

// Sleeps, wakes and uses at the same time lose nothing.
func TestSleepsAndUsesAtOnce(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	ended := make(chan struct{}, 1) // some command has
	var sleeper sync.WaitGroup
	sleeps := 0
	sleeper.Go(func() {
		for range ended {
			if _, err := w.Sandboxes().Sleep(w.ctx, "a", true); err != nil {
				t.Errorf("Sleep: %v", err)
			}
			sleeps++
			// Who waits for a command uses nothing.
			if _, err := w.Sandboxes().Wake(w.ctx, "a"); err != nil {
				t.Errorf("Wake: %v", err)
			}
		}
	})
	var users sync.WaitGroup
	for i := range 4 {
		users.Go(func() {
			for n := range 4 {
				spec := sandbox.ExecSpec{Shell: fmt.Sprintf("echo %d-%d", i, n)}
				if i%2 == 0 {
					spec.Session = fmt.Sprint("s", i)
				}
				r, err := w.Execs().Run(w.ctx, "a", spec, -1, live.OutputCaps{Stdout: -1})
				// A sandbox that is put to sleep again and again may not be reached.
				for errors.Is(err, errs.Unavailable) && r.Exec.Seq == 0 {
					r, err = w.Execs().Run(w.ctx, "a", spec, -1, live.OutputCaps{Stdout: -1})
				}
				if want := fmt.Sprintf("%d-%d\n", i, n); err != nil || string(r.Stdout) != want {
					t.Errorf("%q printed %q and ended %+v, %v", spec.Shell, r.Stdout, r.Exec.Exit, err)
				}
				select {
				case ended <- struct{}{}:
				default:
				}
			}
		})
	}
	users.Wait()
	close(ended)
	sleeper.Wait()
	if sleeps == 0 {
		t.Error("it never slept")
	}
}

// Where memory cannot be kept a sleep is a stop, which says so and from which a use
// starts again.
func TestStopInsteadOfASleep(t *testing.T) {
	for kind, says := range map[errs.Kind]string{errs.Unsupported: "this host cannot keep", errs.Exhausted: "no room"} {
		w := newWorld(t)
		w.create("a")
		x := w.launch("a", "trap 'echo bye; exit' TERM; echo ready; while :; do sleep 0.01; done")
		w.faults.SetFail("Sleep", errs.E(kind, "it cannot"))
		b, err := w.Sandboxes().Sleep(w.ctx, "a", true)
		if err != nil || b.State != sandbox.Stopped || b.Cause != sandbox.CauseSleep || !strings.Contains(b.Reason, says) {
			t.Errorf("%s: Sleep = %s, %s, %q, %v", kind, b.State, b.Cause, b.Reason, err)
		}
		if p := w.payload("a", event.SandboxStopped); !strings.Contains(p.(event.Stopped).Reason, says) {
			t.Errorf("%s: the event says %+v", kind, p)
		}
		if r, err := w.Execs().Result(w.ctx, "a", x.Seq, live.OutputCaps{Stdout: -1}); err != nil || !r.Exec.Status.Finished() || !strings.Contains(string(r.Stdout), "bye") {
			t.Errorf("%s: the command ended %+v with %q, %v", kind, r.Exec.Exit, r.Stdout, err)
		}
		w.sh("a", "true")
		if b := w.get("a"); b.State != sandbox.Running || b.Reason != "" {
			t.Errorf("%s: after a use it is %s, %q", kind, b.State, b.Reason)
		}
	}
}

func TestAutoWake(t *testing.T) {
	w := newWorld(t)
	for _, tt := range []struct {
		auto        sandbox.AutoWake
		sleep, stop bool // whether a use runs it again
	}{
		{"", true, false}, {sandbox.AutoWakeIdle, true, false}, {sandbox.AutoWakeAlways, true, true}, {sandbox.AutoWakeNever, false, false},
	} {
		id := "box-" + string(tt.auto)
		id = strings.TrimSuffix(id, "-")
		if _, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: id, Spec: sandbox.Spec{AutoWake: tt.auto}}); err != nil {
			t.Fatal(err)
		}
		used := func(what string, want bool) {
			t.Helper()
			_, err := w.Execs().Run(w.ctx, id, sandbox.ExecSpec{Shell: "true"}, -1, live.OutputCaps{})
			if want && err != nil || !want && !errors.Is(err, errs.WrongState) {
				t.Errorf("%q: a use of one that %s: %v", tt.auto, what, err)
			}
			if info := errs.Public(errors.Join(err, nil)); !want && info.Hint == "" {
				t.Errorf("%q: %+v, want a hint", tt.auto, info)
			}
		}
		w.sleep(id, false)
		used("sleeps", tt.sleep)
		if _, err := w.Sandboxes().Start(w.ctx, id); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Sandboxes().Stop(w.ctx, id, 0); err != nil {
			t.Fatal(err)
		}
		// The files of a stopped one are there for everybody.
		if _, err := w.Files().Stat(w.ctx, id, ".", true); err != nil {
			t.Errorf("%q: a file of a stopped one: %v", tt.auto, err)
		}
		used("was stopped", tt.stop)
	}
	always := sandbox.AutoWakeAlways
	if b, err := w.Sandboxes().Update(w.ctx, "box-never", lifecycle.Patch{AutoWake: &always}); err != nil || b.Spec.AutoWake != always {
		t.Errorf("Update = %q, %v", b.Spec.AutoWake, err)
	}
	w.sh("box-never", "true")
}

// A memory that is lost is a cold start from the files, which says so.
func TestMemoryThatIsLost(t *testing.T) {
	w := newWorld(t)
	b := w.create("a")
	x := w.launch("a", "echo kept > file; echo ready; sleep 1000")
	w.sleep("a", true)
	w.faults.SetFail("Wake", errs.E(errs.NotFound, "the memory is damaged"))
	if r := w.sh("a", "cat file"); string(r.Stdout) != "kept\n" {
		t.Errorf("the file has %q", r.Stdout)
	}
	now := w.get("a")
	if now.State != sandbox.Running || now.Cause != sandbox.CauseMemoryLost || !strings.Contains(now.Reason, "lost") {
		t.Errorf("it is %s, %s, %q", now.State, now.Cause, now.Reason)
	}
	if x := w.wait("a", x.Seq); x.Exit.Reason != sandbox.EndLost || x.Exit.Message != now.Reason {
		t.Errorf("the command ended %+v", x.Exit)
	}
	if p, ok := w.payload("a", event.SandboxWoken).(event.Woken); !ok || !p.RestoreIncomplete || p.Reason != now.Reason {
		t.Errorf("the event says %+v", p)
	}
	w.faults.SetFail("Wake", nil)
	w.sleep("a", false)
	if b, err := w.Sandboxes().Wake(w.ctx, "a"); err != nil || b.Reason != "" || b.Cause != sandbox.CauseNone {
		t.Errorf("after the next wake it is %q, %q, %v", b.Cause, b.Reason, err)
	}
	// Somebody has removed the memory of one that sleeps, and the daemon restarts.
	w.sleep("a", false)
	w.stop()
	w.driverOfNext()
	if err := w.fake.Stop(w.ctx, b.Handle, 0); err != nil {
		t.Fatal(err)
	}
	w.open()
	w.start()
	if now = w.get("a"); now.State != sandbox.Stopped || now.Cause != sandbox.CauseMemoryLost {
		t.Errorf("after the restart it is %s, %s", now.State, now.Cause)
	}
	w.sh("a", "true")
	if p, ok := w.payload("a", event.SandboxWoken).(event.Woken); !ok || !p.RestoreIncomplete {
		t.Errorf("the event says %+v", p)
	}
}

// A sleeper has an end as others have.
func TestSleeperEnds(t *testing.T) {
	c := &clock{now: time.Now()}
	w := newWorld(t, func(cfg *core.Config) { cfg.Now = c.Now })
	life := 24 * time.Hour
	if _, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: "a", MaxLifetime: &life}); err != nil {
		t.Fatal(err)
	}
	w.sleep("a", false)
	c.add(23 * time.Hour)
	w.Reap()
	if s := w.get("a").State; s != sandbox.Sleeping {
		t.Errorf("it is %s", s)
	}
	c.add(2 * time.Hour)
	w.until("its time is over", func() bool {
		w.Reap()
		_, err := w.Sandboxes().Get(w.ctx, "a")
		return errors.Is(err, errs.NotFound)
	})
	w.nothingLeft()
}

// A sleeper survives daemons, with all that it sleeps with.
func TestSleeperSurvivesDaemons(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	hold, open := gate(t)
	x := w.launch("a", "echo ready; "+hold+"; echo done")
	w.queue("a", sandbox.ExecSpec{Shell: hold + "; echo first >> log"})
	last := w.queue("a", sandbox.ExecSpec{Shell: "echo last >> log"})
	secret := w.queue("a", sandbox.ExecSpec{Shell: "true", Secrets: map[string]string{"A": "b"}})
	w.sleep("a", true)
	for range 2 {
		w.restart()
		if s := w.get("a").State; s != sandbox.Sleeping {
			t.Fatalf("it is %s", s)
		}
	}
	open()
	w.sh("a", "true")
	w.wait("a", x.Seq)
	w.wait("a", last.Seq)
	if r := w.sh("a", "cat log"); string(r.Stdout) != "first\nlast\n" {
		t.Errorf("the queue left %q", r.Stdout)
	}
	if r, err := w.Execs().Result(w.ctx, "a", x.Seq, live.OutputCaps{Stdout: -1}); err != nil || string(r.Stdout) != "ready\ndone\n" {
		t.Errorf("it printed %q, %v", r.Stdout, err)
	}
	if x := w.wait("a", secret.Seq); x.Exit.Reason != sandbox.EndLost {
		t.Errorf("one whose secrets were in memory only ended %+v", x.Exit)
	}
	if got := w.happened("a"); slices.Contains(got, event.SandboxAdopted) {
		t.Errorf("it happened %v", got)
	}
}

// The time limits of commands do not count the sleep.
func TestTimeLimitsStandStill(t *testing.T) {
	c := &clock{now: time.Now()}
	w := newWorld(t, func(cfg *core.Config) { cfg.Now = c.Now })
	w.create("a")
	hold, open := gate(t)
	limit := time.Hour
	x, err := w.Execs().Start(w.ctx, "a", sandbox.ExecSpec{Shell: "echo ready; " + hold, Timeout: &limit})
	if err != nil {
		t.Fatal(err)
	}
	w.until("it runs", func() bool {
		x, err := w.Execs().Get(w.ctx, "a", x.Seq)
		return err == nil && x.Status == sandbox.ExecRunning
	})
	w.sleep("a", true)
	c.add(1000 * time.Hour)
	if _, err := w.Sandboxes().Wake(w.ctx, "a"); err != nil {
		t.Fatal(err)
	}
	w.restart() // the next daemon does not count it either
	w.sh("a", "true")
	open()
	if x := w.wait("a", x.Seq); x.Exit.Reason != sandbox.EndExited {
		t.Errorf("it ended %+v", x.Exit)
	}
}

// What the daemon has of a sandbox is as the driver has it, whatever breaks.
func TestEveryStepOfASleepCanBreak(t *testing.T) {
	for _, step := range []step{
		onDriver("Sleep"),
		afterDriver("Sleep"),
		moveTo(sandbox.Sleeping),
		onWrite("INSERT ON events", "NEW.kind = 'sandbox.slept'"),
		all(onDriver("Sleep"), onDriver("Inspect")),
		all(afterDriver("Sleep"), onDriver("Inspect")),
	} {
		t.Run(step.name, func(t *testing.T) {
			t.Parallel()
			b := newBreakable(t)
			box := b.create("a")
			hold, open := gate(t)
			x := b.launch("a", "echo ready; "+hold+"; echo done")
			step.breaks(b)
			_, err := b.Sandboxes().Sleep(b.ctx, "a", true)
			b.mend()
			b.until("row and driver agree", func() bool {
				s, phase := b.get("a").State, b.phase(box)
				return s == sandbox.Running && phase == driver.PhaseRunning || s == sandbox.Sleeping && phase == driver.PhaseAsleep
			})
			if s := b.get("a").State; err == nil && s != sandbox.Sleeping {
				t.Errorf("Sleep succeeded and it is %s", s)
			}
			open()
			b.until("it can be used", func() bool {
				_, err := b.Execs().Run(b.ctx, "a", sandbox.ExecSpec{Shell: "true"}, -1, live.OutputCaps{})
				return err == nil
			})
			if x := b.wait("a", x.Seq); x.Status != sandbox.ExecDone {
				t.Errorf("the command ended %+v", x.Exit)
			}
			if r, err := b.Execs().Result(b.ctx, "a", x.Seq, live.OutputCaps{Stdout: -1}); err != nil || string(r.Stdout) != "ready\ndone\n" {
				t.Errorf("it printed %q, %v", r.Stdout, err)
			}
			// Its place is one place.
			b.sleep("a", false)
			b.create("b")
		})
	}
}

func TestEveryStepOfAWakeCanBreak(t *testing.T) {
	for _, step := range []step{
		onDisks("Attach"),
		onDriver("Wake"),
		moveTo(sandbox.Running),
		onWrite("INSERT ON events", "NEW.kind = 'sandbox.woken'"),
	} {
		t.Run(step.name, func(t *testing.T) {
			t.Parallel()
			b := newBreakable(t)
			box := b.create("a")
			hold, open := gate(t)
			x := b.launch("a", "echo ready; "+hold+"; echo done")
			b.sleep("a", true)
			step.breaks(b)
			if _, err := b.Sandboxes().Wake(b.ctx, "a"); err == nil {
				t.Fatal("Wake succeeded")
			}
			b.mend()
			b.until("row and driver agree", func() bool {
				s, phase := b.get("a").State, b.phase(box)
				return s == sandbox.Running && phase == driver.PhaseRunning || s == sandbox.Sleeping && phase == driver.PhaseAsleep
			})
			open()
			b.until("it can be used", func() bool {
				_, err := b.Execs().Run(b.ctx, "a", sandbox.ExecSpec{Shell: "true"}, -1, live.OutputCaps{})
				return err == nil
			})
			if x := b.wait("a", x.Seq); x.Status != sandbox.ExecDone {
				t.Errorf("the command ended %+v", x.Exit)
			}
			b.sleep("a", false)
			b.create("b") // its place is free
		})
	}
}

// A start after a memory was lost can break too, and what was lost is still said.
func TestEveryStepOfAColdStartCanBreak(t *testing.T) {
	for _, step := range []step{moveTo(sandbox.Stopped), onDriver("Start"), moveTo(sandbox.Running), onDisks("Detach")} {
		t.Run(step.name, func(t *testing.T) {
			t.Parallel()
			b := newBreakable(t)
			b.create("a")
			x := b.launch("a", "echo ready; sleep 1000")
			b.sleep("a", true)
			b.faults.SetFail("Wake", errs.E(errs.NotFound, "the memory is damaged"))
			step.breaks(b)
			_, _ = b.Sandboxes().Wake(b.ctx, "a")
			b.mend()
			b.until("it can be used", func() bool {
				_, err := b.Execs().Run(b.ctx, "a", sandbox.ExecSpec{Shell: "true"}, -1, live.OutputCaps{})
				return err == nil
			})
			if x := b.wait("a", x.Seq); x.Exit.Reason != sandbox.EndLost {
				t.Errorf("the command ended %+v", x.Exit)
			}
			if p, ok := b.payload("a", event.SandboxWoken).(event.Woken); !ok || !p.RestoreIncomplete || b.get("a").Cause != sandbox.CauseMemoryLost {
				t.Errorf("the event says %+v, and the row %q", p, b.get("a").Cause)
			}
		})
	}
}

// A daemon that is killed between the driver's act and its note of it is followed
// by one that believes the driver.
func TestDaemonKilledBetweenTheSteps(t *testing.T) {
	for name, phases := range map[string]struct {
		act  func(w *world, b sandbox.Sandbox) error
		want sandbox.State
	}{
		"of a sleep": {func(w *world, b sandbox.Sandbox) error { return w.fake.Sleep(w.ctx, b.Handle) }, sandbox.Sleeping},
		"of a wake":  {func(w *world, b sandbox.Sandbox) error { return w.fake.Wake(w.ctx, b.Handle) }, sandbox.Running},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			b := w.create("a")
			hold, open := gate(t)
			x := w.launch("a", "echo ready; "+hold+"; echo done")
			if phases.want == sandbox.Running {
				w.sleep("a", true)
			}
			w.stop()
			w.driverOfNext()
			if err := phases.act(w, b); err != nil {
				t.Fatal(err)
			}
			w.open()
			w.start()
			if s := w.get("a").State; s != phases.want {
				t.Errorf("it is %s, want %s", s, phases.want)
			}
			open()
			w.sh("a", "true")
			w.wait("a", x.Seq)
			if r, err := w.Execs().Result(w.ctx, "a", x.Seq, live.OutputCaps{Stdout: -1}); err != nil || string(r.Stdout) != "ready\ndone\n" {
				t.Errorf("it printed %q, %v", r.Stdout, err)
			}
		})
	}
}

// A service that ends in the middle of a sleep or a wake does not wait for it.
func TestTheServiceEndsDuringASleep(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	began := make(chan struct{})
	w.faults.Before = func(ctx context.Context, method string, _ sandbox.UID) {
		if method == "Sleep" {
			close(began)
			<-ctx.Done()
		}
	}
	slept := make(chan error, 1)
	go func() {
		_, err := w.Sandboxes().Sleep(w.ctx, "a", false)
		slept <- err
	}()
	<-began
	w.stop()
	if err := <-slept; err == nil {
		t.Error("the sleep succeeded")
	}
	w.driverOfNext()
	w.open()
	w.start()
	w.sh("a", "true")
}

// The disk of one that sleeps can be kept.
func TestKeptDiskOfASleeper(t *testing.T) {
	w := newWorld(t)
	b := w.create("a")
	w.sh("a", "echo kept > file")
	w.sleep("a", false)
	if err := w.Sandboxes().Destroy(w.ctx, "a", true); err != nil {
		t.Fatal(err)
	}
	next := w.create("a")
	if next.DiskUID != b.UID {
		t.Error("the disk was not taken over")
	}
	if r := w.sh("a", "cat file"); string(r.Stdout) != "kept\n" {
		t.Errorf("the file has %q", r.Stdout)
	}
}
