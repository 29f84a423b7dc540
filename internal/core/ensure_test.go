package core_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cubbyhq/cubby/internal/core/lifecycle"
	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/core/scope"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// startGate holds the driver's starts from when it is shut until it is opened, and
// counts them.
type startGate struct {
	shut  atomic.Bool
	began chan struct{} // gets a value for each
	open  chan struct{}
	count atomic.Int32
}

// gatedWorld is a world whose starts can be held.
func gatedWorld(t *testing.T) (*world, *startGate) {
	w := stoppedWorld(t)
	g := &startGate{began: make(chan struct{}, 100), open: make(chan struct{})}
	w.faults.Before = func(_ context.Context, method string, _ sandbox.UID) {
		if method == "Start" && g.shut.Load() {
			g.count.Add(1)
			g.began <- struct{}{}
			<-g.open
		}
	}
	w.start()
	return w, g
}

// ensured is what callers of EnsureRunning were told.
type ensured struct {
	how lifecycle.Ensured
	err error
}

// ensureAll asks many times at once.
func (w *world) ensureAll(n int, id string) (wait func() []ensured) {
	all := make([]ensured, n)
	var callers sync.WaitGroup
	for i := range all {
		callers.Go(func() {
			b, how, err := w.Sandboxes().EnsureRunning(w.ctx, id, lifecycle.UseAny)
			if err == nil && b.State != sandbox.Running {
				err = errors.New("it is " + string(b.State))
			}
			all[i] = ensured{how, err}
		})
	}
	return func() []ensured { callers.Wait(); return all }
}

func TestEnsureRunningStartsOnce(t *testing.T) {
	w, g := gatedWorld(t)
	a := w.create("a")
	if _, how, err := w.Sandboxes().EnsureRunning(w.ctx, "a", lifecycle.UseAny); err != nil || how != lifecycle.EnsuredAlready {
		t.Errorf("one that runs: %s, %v", how, err)
	}
	if _, err := w.Sandboxes().Stop(w.ctx, "a", 0); err != nil {
		t.Fatal(err)
	}
	g.shut.Store(true)
	// The first one to ask goes away, and the start goes on.
	leaving, leave := context.WithCancel(w.ctx)
	left := make(chan error, 1)
	go func() {
		_, _, err := w.Sandboxes().EnsureRunning(leaving, "a", lifecycle.UseAny)
		left <- err
	}()
	<-g.began
	wait := w.ensureAll(10, "a")
	w.until("all of them wait", func() bool { return w.Sandboxes().Waiters(a.UID) == 11 })
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("who went away was told %v", err)
	}
	close(g.open)
	for _, e := range wait() {
		if e.err != nil {
			t.Errorf("told %s, %v", e.how, e.err)
		}
	}
	if n := g.count.Load(); n != 1 {
		t.Errorf("it was started %d times", n)
	}
	w.sh("a", "true")
}

func TestEnsureRunningTellsAllOfAFailure(t *testing.T) {
	const callers = 10
	w, g := gatedWorld(t)
	a := w.create("a")
	if _, err := w.Sandboxes().Stop(w.ctx, "a", 0); err != nil {
		t.Fatal(err)
	}
	g.shut.Store(true)
	w.faults.SetFail("Start", errs.E(errs.Unavailable, "no more of them"))
	wait := w.ensureAll(callers, "a")
	<-g.began
	w.until("all of them wait", func() bool { return w.Sandboxes().Waiters(a.UID) == callers })
	close(g.open)
	for _, e := range wait() {
		if !errors.Is(e.err, errs.Unavailable) {
			t.Errorf("told %s, %v", e.how, e.err)
		}
	}
	if n := g.count.Load(); n != 1 {
		t.Errorf("it was started %d times", n)
	}
	w.faults.SetFail("Start", nil)
	if _, how, err := w.Sandboxes().EnsureRunning(w.ctx, "a", lifecycle.UseAny); err != nil || how != lifecycle.EnsuredStarted {
		t.Errorf("after the failure: %s, %v", how, err)
	}
}

func TestEnsureRunningWaitsForACreate(t *testing.T) {
	w, g := gatedWorld(t)
	g.shut.Store(true)
	made := make(chan error, 1)
	go func() {
		_, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: "a"})
		made <- err
	}()
	<-g.began
	wait := w.ensureAll(3, "a")
	close(g.open)
	for _, e := range wait() {
		if e.err != nil || e.how != lifecycle.EnsuredAlready {
			t.Errorf("told %s, %v", e.how, e.err)
		}
	}
	if err := <-made; err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.Sandboxes().EnsureRunning(w.ctx, "nobody", lifecycle.UseAny); !errors.Is(err, errs.NotFound) {
		t.Errorf("one that is not there: %v", err)
	}
}

// A start is given up when nobody waits for it any more, and the next who asks
// begins another.
func TestEnsureRunningGivesUpWithItsCallers(t *testing.T) {
	w, g := gatedWorld(t)
	w.create("a")
	if _, err := w.Sandboxes().Stop(w.ctx, "a", 0); err != nil {
		t.Fatal(err)
	}
	g.shut.Store(true)
	leaving, leave := context.WithCancel(w.ctx)
	left := make(chan error, 1)
	go func() {
		_, _, err := w.Sandboxes().EnsureRunning(leaving, "a", lifecycle.UseAny)
		left <- err
	}()
	<-g.began
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("who went away was told %v", err)
	}
	g.shut.Store(false)
	close(g.open)
	if _, _, err := w.Sandboxes().EnsureRunning(w.ctx, "a", lifecycle.UseAny); err != nil {
		t.Error(err)
	}
	w.sh("a", "true")
}

// Who has to be told of a death first is not given a new run of the sandbox.
func TestEnsureRunningLeavesTheDead(t *testing.T) {
	w := newWorld(t)
	b := w.create("a")
	w.fake.Kill(b.UID, driver.Death{Cause: driver.DeathOOM})
	for {
		_, _, err := w.Sandboxes().EnsureRunning(w.ctx, "a", lifecycle.UseWell)
		if errors.Is(err, errs.WrongState) {
			break
		}
		if err != nil { // nil: it was not seen to be dead yet
			t.Fatal(err)
		}
	}
	if now, err := w.Sandboxes().Get(w.ctx, "a"); err != nil || now.State != sandbox.Stopped || now.Cause != sandbox.CauseOOM {
		t.Errorf("it is %s, %s, %v", now.State, now.Cause, err)
	}
	if _, how, err := w.Sandboxes().EnsureRunning(w.ctx, "a", lifecycle.UseAny); err != nil || how != lifecycle.EnsuredStarted {
		t.Errorf("started with %s, %v", how, err)
	}
}

func TestEnsureRunningHearsOfAFailedCreate(t *testing.T) {
	w, g := gatedWorld(t)
	g.shut.Store(true)
	w.faults.SetFail("Start", errs.E(errs.Unavailable, "no more of them"))
	made := make(chan error, 1)
	go func() {
		_, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: "a"})
		made <- err
	}()
	<-g.began
	wait := w.ensureAll(3, "a")
	b, err := w.Sandboxes().Get(w.ctx, "a")
	if err != nil {
		t.Fatal(err)
	}
	w.until("all of them wait", func() bool { return w.Sandboxes().Waiters(b.UID) == 3 })
	close(g.open)
	if err := <-made; err == nil {
		t.Fatal("it was made")
	}
	for _, e := range wait() {
		if !errors.Is(e.err, errs.WrongState) && !errors.Is(e.err, errs.NotFound) {
			t.Errorf("told %s, %v", e.how, e.err)
		}
	}
}

// A sandbox that took the id of one that was asked for is another sandbox.
func TestEnsureRunningIsOfOneSandbox(t *testing.T) {
	w := newWorld(t)
	first := w.create("a")
	if err := w.Sandboxes().Destroy(w.ctx, "a", false); err != nil {
		t.Fatal(err)
	}
	second := w.create("a")
	if _, err := w.Sandboxes().Stop(w.ctx, "a", 0); err != nil {
		t.Fatal(err)
	}
	if b, _, err := w.Sandboxes().Ensure(w.ctx, first, lifecycle.UseAny); !errors.Is(err, errs.NotFound) {
		t.Errorf("the first: %s, %v", b.State, err)
	}
	if b, err := w.Sandboxes().Get(w.ctx, "a"); err != nil || b.UID != second.UID || b.State != sandbox.Stopped {
		t.Errorf("the second is %s, %v", b.State, err)
	}
}

// TestAllWhoWaitedHearOfALoss: one wake serves all who come meanwhile, and each of
// them is told that the memory was lost. Who comes later, or was served by a sandbox
// that woke whole, is not.
func TestAllWhoWaitedHearOfALoss(t *testing.T) {
	w := newWorld(t)
	a := w.create("a")
	w.sleep("a", true)
	began, open := make(chan struct{}), make(chan struct{})
	w.faults.SetFail("Wake", errs.E(errs.NotFound, "the memory is damaged"))
	w.faults.SetBefore(func(_ context.Context, method string, _ sandbox.UID) {
		if method == "Wake" {
			close(began)
			<-open
		}
	})
	use := func() (string, error) {
		ctx, lost := scope.WithLosses(w.ctx)
		_, err := w.Execs().Run(ctx, "a", sandbox.ExecSpec{Shell: "true"}, -1, live.OutputCaps{})
		return lost.Reason(), err
	}
	ensure := func() (string, error) {
		ctx, lost := scope.WithLosses(w.ctx)
		_, _, err := w.Sandboxes().EnsureRunning(ctx, "a", lifecycle.UseAny) // of another kind: it waits for its turn
		return lost.Reason(), err
	}
	all := []func() (string, error){use, use, use, ensure}
	told := make([]string, len(all))
	var users sync.WaitGroup
	for i, act := range all {
		users.Go(func() {
			var err error
			if told[i], err = act(); err != nil {
				t.Error(err)
			}
		})
	}
	<-began
	w.until("all of them wait", func() bool { return w.Sandboxes().Waiters(a.UID) == len(all) })
	close(open)
	users.Wait()
	for i, reason := range told {
		if want := w.get("a").Reason; reason == "" || reason != want {
			t.Errorf("user %d was told %q, want %q", i, reason, want)
		}
	}
	w.faults.SetBefore(nil)
	w.faults.SetFail("Wake", nil)
	for _, whole := range []bool{false, true} {
		if whole {
			w.sleep("a", true)
		}
		for _, act := range all {
			if reason, err := act(); reason != "" || err != nil {
				t.Errorf("after a sleep: %v; told %q, %v", whole, reason, err)
			}
		}
	}
}
