package core_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/core/lifecycle"
	"github.com/cubbyhq/cubby/internal/core/snapshot"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/driver/drivertest"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

func TestRollback(t *testing.T) {
	w := newWorld(t)
	a := w.create("a")
	w.sh("a", "echo then > f")
	w.keep("a", "point")
	w.sh("a", "echo now > f; echo x > later")
	x := w.launch("a", "echo ready; sleep 1000")
	for range 2 { // the snapshot stays
		got, err := w.Snapshots().Rollback(w.ctx, "a", "point")
		if err != nil || got.UID != a.UID || got.State != sandbox.Running || got.Reason != "" || got.Cause != "" {
			t.Fatalf("Rollback = %+v, %v", got, err)
		}
		if got := w.content("a", "/workspace/f") + w.content("a", "/workspace/later"); got != "then\n"+string(errs.NotFound) {
			t.Errorf("the files are %q", got)
		}
		w.sh("a", "echo again > f; echo x > later")
	}
	if x := w.wait("a", x.Seq); x.Exit.Reason != sandbox.EndStopped || !strings.Contains(x.Exit.Message, `rolled back to the snapshot "point"`) {
		t.Errorf("the command of before ended %+v", x.Exit)
	}
	if r := w.sh("a", "true"); r.Exec.Seq != 6 {
		t.Errorf("the next command is %d, want 6", r.Exec.Seq)
	}
	events, _, err := w.Events().List(w.ctx, "a", 0, 0, "sandbox.rolled_back")
	if err != nil || len(events) != 2 || !strings.Contains(string(events[0].Payload), `"name":"point"`) {
		t.Errorf("the history has %+v, %v", events, err)
	}
	// A stopped one is brought back too.
	w.halt("a")
	if got, err := w.Snapshots().Rollback(w.ctx, "a", "point"); err != nil || got.State != sandbox.Running {
		t.Errorf("Rollback of a stopped one = %s, %v", got.State, err)
	}
	w.restart()
	if r := w.sh("a", "cat f"); string(r.Stdout) != "then\n" {
		t.Errorf("after a restart it prints %q", r.Stdout)
	}
	w.destroy("a")
	if err := w.Snapshots().Remove(w.ctx, "point"); err != nil {
		t.Fatal(err)
	}
	w.nothingLeft()
}

// TestRollbackOfFiles: without memory a sandbox begins cold, if it ran.
func TestRollbackOfFiles(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	w.sh("a", "echo then > f")
	w.halt("a")
	if _, _, err := w.Snapshots().Create(w.ctx, snapshot.Request{Source: "a", Name: "point"}); err != nil {
		t.Fatal(err)
	}
	w.write("a", "/workspace/f", "now")
	got, err := w.Snapshots().Rollback(w.ctx, "a", "point")
	if err != nil || got.State != sandbox.Stopped || got.Cause != sandbox.CauseRequest {
		t.Fatalf("Rollback of a stopped one = %+v, %v", got, err)
	}
	if got := w.content("a", "/workspace/f"); got != "then\n" {
		t.Errorf("the file of the stopped one is %q", got)
	}
	if _, err := w.Sandboxes().Start(w.ctx, "a"); err != nil {
		t.Fatal(err)
	}
	w.sh("a", "echo now > f")
	if got, err = w.Snapshots().Rollback(w.ctx, "a", "point"); err != nil || got.State != sandbox.Running {
		t.Fatalf("Rollback of a running one = %+v, %v", got, err)
	}
	if r := w.sh("a", "cat f"); string(r.Stdout) != "then\n" {
		t.Errorf("it prints %q", r.Stdout)
	}
}

func TestRollbackRefusals(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	w.sh("a", "echo now > f")
	if _, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: "small", Spec: sandbox.Spec{Limits: sandbox.Limits{MemoryBytes: 64 << 20}}}); err != nil {
		t.Fatal(err)
	}
	w.keep("small", "small")
	n := w.keep("a", "lost")
	if err := w.fake.RemoveSnapshot(w.ctx, n.UID); err != nil {
		t.Fatal(err)
	}
	w.createIn("acme", "sharing")
	for _, tt := range []struct {
		name, id, snapshot string
		want               errs.Kind
	}{
		{"no such sandbox", "nobody", "small", errs.NotFound},
		{"no such snapshot", "a", "nothing", errs.NotFound},
		{"of other limits", "a", "small", errs.Invalid},
		{"without its memory", "a", "lost", errs.Unavailable},
		{"shared files", "sharing", "small", errs.SharedFiles},
	} {
		if _, err := w.Snapshots().Rollback(w.ctx, tt.id, tt.snapshot); !errors.Is(err, tt.want) {
			t.Errorf("%s: Rollback = %v, want %v", tt.name, err, tt.want)
		}
	}
	if r := w.sh("a", "cat f"); string(r.Stdout) != "now\n" || r.Exec.Seq != 2 {
		t.Errorf("after all that it prints %q", r.Stdout)
	}
}

// TestEveryStepOfARollbackCanBreak: the sandbox goes on as before, or is stopped
// with whole files, says that the rollback is to be repeated, and that succeeds.
func TestEveryStepOfARollbackCanBreak(t *testing.T) {
	for _, tt := range []struct {
		step
		goesOn bool
	}{
		{moveTo(sandbox.Stopped), true},
		{onDriver("Destroy"), true},
		{afterDriver("Destroy"), false},
		{all(onDriver("Destroy"), onDriver("Inspect")), false},
		{all(onDriver("Destroy"), onDriver("Sweep")), true},
		{all(onDriver("Destroy"), moveTo(sandbox.Running)), false},
		{onDisks("Prepare"), true},
		{onDisks("Detach"), false},
		{onDisks("Restore"), false},
		{onDisks("Attach"), false},
		{onPin(), false},
		{onDriver("Restore"), false},
		{afterDriver("Restore"), false},
		{onDriver("Identify"), false},
		{onWrite("UPDATE OF handle ON sandboxes", "NEW.handle IS NOT NULL AND OLD.handle IS NULL"), false},
		{moveTo(sandbox.Running), false},
		{onWrite("INSERT ON events", "NEW.kind = 'sandbox.rolled_back'"), false},
		{all(onDriver("Restore"), onDriver("Sweep")), false},
		{all(moveTo(sandbox.Running), onDriver("Sweep")), false},
		{all(onDriver("Identify"), onceCalled("Identify", onDriver("Destroy"))), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBreakable(t)
			b.create("a")
			b.sh("a", "echo then > f")
			b.keep("a", "point")
			b.sh("a", "echo now > f")
			x := b.launch("a", "echo ready; while [ ! -e go ]; do sleep 0.01; done")
			tt.breaks(b)
			if _, err := b.Snapshots().Rollback(b.ctx, "a", "point"); err == nil {
				t.Fatal("Rollback succeeded")
			}
			b.mend()
			if tt.goesOn {
				b.sh("a", "touch go")
				if x := b.wait("a", x.Seq); *x.Exit.Code != 0 {
					t.Errorf("the command ended %+v", x.Exit)
				}
			} else {
				b.comesTo("a", sandbox.Stopped, `a rollback to the snapshot "point" broke off: repeat it`)
				if got := b.content("a", "/workspace/f"); got != "now\n" && got != "then\n" {
					t.Errorf("the file has %q", got)
				}
				if x := b.wait("a", x.Seq); x.Exit.Reason != sandbox.EndStopped {
					t.Errorf("the command ended %+v", x.Exit)
				}
				b.until("nothing runs", func() bool {
					found, err := b.fake.List(b.ctx)
					return err == nil && (len(found) == 0 || found[0].Status.Phase != "running")
				})
			}
			// Its place is free, whatever broke.
			got, err := b.Snapshots().Rollback(b.ctx, "a", "point")
			if err != nil || got.State != sandbox.Running || got.Reason != "" {
				t.Fatalf("the next Rollback = %+v, %v", got, err)
			}
			if r := b.sh("a", "cat f"); string(r.Stdout) != "then\n" {
				t.Errorf("it prints %q", r.Stdout)
			}
			b.destroy("a")
			b.create("b")
		})
	}
}

// A sleeper that could not be ended was stopped and lost its memory, although nothing
// had been taken from it.
func TestRollbackOfASleeperThatCannotBeEnded(t *testing.T) {
	for _, tt := range []struct {
		step
		goesOn bool
	}{
		{onDriver("Destroy"), true},
		{afterDriver("Destroy"), false},
		{all(onDriver("Destroy"), onDriver("Inspect")), false},
		{all(onDriver("Destroy"), moveTo(sandbox.Sleeping)), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBreakable(t)
			b.create("a")
			b.keep("a", "point")
			x := b.launch("a", "echo ready; while [ ! -e go ]; do sleep 0.01; done")
			was := b.sleep("a", true)
			tt.breaks(b)
			_, err := b.Snapshots().Rollback(b.ctx, "a", "point")
			if err == nil || tt.goesOn != strings.Contains(err.Error(), "the sandbox is sleeping as before") {
				t.Fatalf("Rollback = %v", err)
			}
			b.mend()
			if tt.goesOn {
				if got := b.get("a"); got.State != sandbox.Sleeping || got.Why() != was.Why() {
					t.Errorf("it is %s %+v, want sleeping %+v", got.State, got.Why(), was.Why())
				}
				b.sh("a", "touch go")
				if x := b.wait("a", x.Seq); *x.Exit.Code != 0 {
					t.Errorf("the command ended %+v", x.Exit)
				}
			} else {
				b.comesTo("a", sandbox.Stopped, `a rollback to the snapshot "point" broke off: repeat it`)
				if x := b.wait("a", x.Seq); x.Exit.Reason != sandbox.EndStopped {
					t.Errorf("the command ended %+v", x.Exit)
				}
			}
			if got, err := b.Snapshots().Rollback(b.ctx, "a", "point"); err != nil || got.State != sandbox.Running || got.Reason != "" {
				t.Errorf("the next Rollback = %+v, %v", got, err)
			}
		})
	}
}

// A snapshot that was deleted in the middle of a rollback to it left a sandbox that
// was stopped, and was to be rolled back again.
func TestNobodyDeletesASnapshotThatARollbackIsUnderWayTo(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	w.keep("a", "point")
	var during error
	w.faults.SetBefore(func(ctx context.Context, called string, _ sandbox.UID) {
		if called == "Destroy" {
			during = w.Snapshots().Remove(ctx, "point")
		}
	})
	got, err := w.Snapshots().Rollback(w.ctx, "a", "point")
	w.faults.SetBefore(nil)
	if err != nil || got.State != sandbox.Running {
		t.Errorf("Rollback = %+v, %v", got, err)
	}
	if !errors.Is(during, errs.WrongState) {
		t.Errorf("Remove during the rollback = %v, want wrong state", during)
	}
	if err := w.Snapshots().Remove(w.ctx, "point"); err != nil {
		t.Errorf("Remove = %v", err)
	}
}

// pinning are images of which each pin is told of.
type pinning struct {
	core.Images
	told func(ctx context.Context)
}

func (p pinning) Pin(ctx context.Context, digest string, owner sandbox.UID) error {
	p.told(ctx)
	return p.Images.Pin(ctx, digest, owner)
}

// A snapshot that was deleted when a create from it had copied its files, and not read
// its memory, left neither.
func TestNobodyDeletesASnapshotThatACreateIsUnderWayFrom(t *testing.T) {
	var w *world
	var once sync.Once
	var during error
	w = newWorld(t, func(c *core.Config) {
		c.Images = pinning{c.Images, func(ctx context.Context) {
			if w != nil && w.Service != nil {
				if _, err := w.Sandboxes().Get(ctx, "b"); err == nil {
					once.Do(func() { during = w.Snapshots().Remove(ctx, "point") })
				}
			}
		}}
	})
	w.create("a")
	w.sh("a", "echo then > f")
	w.keep("a", "point")
	b, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: "b", Snapshot: "point"})
	if err != nil || b.State != sandbox.Running {
		t.Errorf("Create = %s, %v", b.State, err)
	}
	if !errors.Is(during, errs.WrongState) {
		t.Errorf("Remove during the create = %v, want wrong state", during)
	}
	if r := w.sh("b", "cat f"); string(r.Stdout) != "then\n" {
		t.Errorf("it prints %q", r.Stdout)
	}
	if err := w.Snapshots().Remove(w.ctx, "point"); err != nil {
		t.Errorf("Remove = %v", err)
	}
}

// onceCalled breaks something as soon as a method of the driver is called.
func onceCalled(method string, then step) step {
	return step{then.name + " once in " + method, func(b *breakable) {
		var once sync.Once
		b.faults.SetBefore(func(_ context.Context, called string, _ sandbox.UID) {
			if called == method {
				once.Do(func() { then.breaks(b) })
			}
		})
	}}
}

// crashesIn runs an act that is cut off when it calls a method of the driver: what
// there is then the next daemon finds, while the first does nothing more.
func (w *world) crashesIn(method string, act func(), look func(next *world)) {
	w.t.Helper()
	reached, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	w.faults.SetBefore(func(_ context.Context, called string, _ sandbox.UID) {
		if called == method {
			once.Do(func() { close(reached) })
			<-release
		}
	})
	var acting sync.WaitGroup
	acting.Go(act)
	<-reached
	// The first daemon can do nothing to the host that the next one has.
	defer acting.Wait()
	defer close(release)
	for _, method := range []string{"Restore", "Snapshot", "Destroy", "Sweep", "Identify", "Stop", "RemoveSnapshot"} {
		w.faults.SetFail(method, errDown)
	}
	next := *w
	next.fake = w.fake.Restart(w.t)
	next.faults = drivertest.NewFaulty(next.fake)
	next.open()
	next.start()
	defer next.stop()
	if _, err := next.Sandboxes().List(w.ctx, lifecycle.Query{}); err != nil { // which waits for the first look
		w.t.Fatal(err)
	}
	look(&next)
}

func TestKilledInTheMiddleOfARollback(t *testing.T) {
	for _, method := range []string{"Destroy", "Restore", "Identify"} {
		t.Run(method, func(t *testing.T) {
			w := newWorld(t)
			w.create("a")
			w.sh("a", "echo then > f")
			w.keep("a", "point")
			w.sh("a", "echo now > f")
			w.crashesIn(method, func() { _, _ = w.Snapshots().Rollback(w.ctx, "a", "point") }, func(next *world) {
				got, err := next.Sandboxes().Get(next.ctx, "a")
				if err != nil || got.State != sandbox.Stopped || got.Cause != sandbox.CauseRollback || !strings.Contains(got.Reason, "repeat it") {
					t.Fatalf("the next daemon has %s %q, %v", got.State, got.Reason, err)
				}
				if _, err := next.Execs().Start(next.ctx, "a", sandbox.ExecSpec{Shell: "true"}); !errors.Is(err, errs.WrongState) || !strings.Contains(err.Error(), "repeat it") {
					t.Fatalf("a command in what may be either = %v, want that it says to repeat the rollback", err)
				}
				if got := next.content("a", "/workspace/f"); got != "now\n" && got != "then\n" {
					t.Errorf("the file has %q", got)
				}
				next.until("nothing of it runs", func() bool {
					next.Sandboxes().Reconciler().Turn(next.ctx)
					found, err := next.fake.List(next.ctx)
					return err == nil && (len(found) == 0 || found[0].Status.Phase != driver.PhaseRunning)
				})
				if got, err := next.Snapshots().Rollback(next.ctx, "a", "point"); err != nil || got.State != sandbox.Running {
					t.Fatalf("Rollback again = %s, %v", got.State, err)
				}
				if r := next.sh("a", "cat f"); string(r.Stdout) != "then\n" {
					t.Errorf("it prints %q", r.Stdout)
				}
				next.destroy("a")
			})
		})
	}
}

func TestKilledInTheMiddleOfAFork(t *testing.T) {
	for _, method := range []string{"Snapshot", "Restore", "Identify", "RemoveSnapshot"} {
		t.Run(method, func(t *testing.T) {
			w := newWorld(t)
			w.create("a")
			w.sh("a", "echo x > f")
			w.crashesIn(method, func() { _, _ = w.Snapshots().Fork(w.ctx, "a", 2, []string{"one", "two"}) }, func(next *world) {
				whole := 1
				if method == "RemoveSnapshot" { // all of them run
					whole = 3
				}
				next.until("there are all or none", func() bool {
					next.Sandboxes().Reconciler().Turn(next.ctx)
					page, err := next.Sandboxes().List(next.ctx, lifecycle.Query{States: []sandbox.State{sandbox.Running, sandbox.Creating, sandbox.Stopped}})
					traces, listErr := next.fake.List(next.ctx)
					disks, diskErr := next.disks.List()
					kept, keptErr := next.fake.Snapshots(next.ctx)
					return errors.Join(err, listErr, diskErr, keptErr) == nil &&
						len(page.Sandboxes) == whole && len(traces) == whole && len(disks) == whole && len(kept) == 0 && next.images.pinned() == whole
				})
				if r := next.sh("a", "cat f"); string(r.Stdout) != "x\n" {
					t.Errorf("the parent prints %q", r.Stdout)
				}
			})
		})
	}
}

func TestKilledInTheMiddleOfASnapshot(t *testing.T) {
	for _, method := range []string{"Snapshot", "RemoveSnapshot"} {
		t.Run(method, func(t *testing.T) {
			w := newWorld(t)
			w.create("a")
			act := func() {
				_, _, _ = w.Snapshots().Create(w.ctx, snapshot.Request{Source: "a", Name: "point", Memory: true})
			}
			if method == "RemoveSnapshot" {
				act()
				act = func() { _ = w.Snapshots().Remove(w.ctx, "point") }
			}
			w.crashesIn(method, act, func(next *world) {
				if _, err := next.Snapshots().Get(next.ctx, "point"); !errors.Is(err, errs.NotFound) {
					t.Errorf("Get = %v, want not found", err)
				}
				next.until("nothing is left of it", func() bool {
					next.Sandboxes().Reconciler().Turn(next.ctx)
					disks, err := next.disks.List()
					kept, keptErr := next.fake.Snapshots(next.ctx)
					return errors.Join(err, keptErr) == nil && len(disks) == 1 && len(kept) == 0 && next.images.pinned() == 1
				})
				next.keep("a", "point")
			})
		})
	}
}
