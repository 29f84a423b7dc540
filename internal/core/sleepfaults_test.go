package core_test

import (
	"context"
	"errors"
	"testing"

	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

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

// A memory that cannot be read now is kept until it can be, or until somebody stops
// the sandbox.
func TestAMemoryThatCannotBeReadIsKept(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	unreadable := func(act string, f func(ctx context.Context, id string) (sandbox.Sandbox, error)) {
		t.Helper()
		w.faults.SetFail("Wake", errs.E(errs.Unavailable, "the memory that was kept cannot be read"))
		if _, err := f(w.ctx, "a"); !errors.Is(err, errs.Unavailable) {
			t.Errorf("%s = %v, want unavailable", act, err)
		}
		w.faults.SetFail("Wake", nil)
		if s := w.get("a").State; s != sandbox.Sleeping {
			t.Errorf("after %s it is %s", act, s)
		}
	}
	hold, open := gate(t)
	x := w.launch("a", "echo ready; "+hold+"; echo done")
	w.sleep("a", true)
	unreadable("a wake", w.Sandboxes().Wake)
	unreadable("a start", w.Sandboxes().Start)
	if _, err := w.Sandboxes().Wake(w.ctx, "a"); err != nil {
		t.Fatal(err)
	}
	open()
	if x := w.wait("a", x.Seq); x.Status != sandbox.ExecDone {
		t.Errorf("the command ended %+v", x.Exit)
	}
	w.sleep("a", true)
	unreadable("another wake", w.Sandboxes().Wake)
	if _, err := w.Sandboxes().Stop(w.ctx, "a", 0); err != nil {
		t.Fatal(err)
	}
	w.faults.SetFail("Wake", errs.E(errs.Internal, "nobody wakes what was stopped"))
	if b, err := w.Sandboxes().Start(w.ctx, "a"); err != nil || b.State != sandbox.Running {
		t.Errorf("Start = %s, %v", b.State, err)
	}
	w.sh("a", "true")
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
	w := stoppedWorld(t)
	began := make(chan struct{})
	w.faults.Before = func(ctx context.Context, method string, _ sandbox.UID) {
		if method == "Sleep" {
			close(began)
			<-ctx.Done()
		}
	}
	w.start()
	w.create("a")
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

// The memory of a sleeper goes with its stop, also when that cannot remove it.
func TestTheMemoryOfAStoppedSleeperGoes(t *testing.T) {
	w := newWorld(t)
	b := w.create("a")
	w.sleep("a", false)
	w.faults.SetFail("Stop", errDown)
	if got, err := w.Sandboxes().Stop(w.ctx, "a", 0); err != nil || got.State != sandbox.Stopped {
		t.Fatalf("Stop = %s, %v", got.State, err)
	}
	w.faults.SetFail("Stop", nil)
	w.until("nothing is left of the memory", func() bool {
		st, err := w.fake.Inspect(w.ctx, b.Handle)
		return err == nil && st.Phase != driver.PhaseAsleep
	})
}
