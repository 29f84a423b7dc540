package pool_test

import (
	"context"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/core/pool"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// follower is a world that keeps one container ready, like those that are asked for.
func follower(t *testing.T) *world {
	t.Helper()
	return newWorldOf(t, pool.Config{Containers: 1})
}

// container is a usual one with a limit of processes.
func container(pids int64) pool.Want {
	w := want()
	w.Image, w.Isolation, w.Usual, w.Limits.PIDs = "base", sandbox.Container, true, pids
	return w
}

// cold asks for what is not ready, as a create does that is admitted, and fills the pool.
func (w *world) cold(ask pool.Want) {
	w.t.Helper()
	if m := w.Take(w.ctx, ask); m != nil {
		w.t.Fatalf("a container with %d processes was ready", ask.Limits.PIDs)
	}
	w.Follow(ask)
	w.Turn(w.ctx)
}

// warm has what is ready become a sandbox, destroys that, and fills the pool.
func (w *world) warm(ask pool.Want) {
	w.t.Helper()
	m := w.Take(w.ctx, ask)
	if m == nil {
		w.t.Fatalf("no container with %d processes was ready", ask.Limits.PIDs)
	}
	w.Release(m)
	w.Discard(m)
	w.until("it is gone", func() bool { return len(w.has()) == 0 })
	w.Turn(w.ctx)
}

// TestTheNextContainerIsLikeTheLast: and there is none before the first.
func TestTheNextContainerIsLikeTheLast(t *testing.T) {
	w := follower(t)
	w.Turn(w.ctx)
	w.nothingLeft()
	w.cold(container(100))
	w.wantReady(1)
	w.warm(container(100))
	w.wantReady(1)
	if all := w.Status(); len(all) != 1 || all[0].Count != 1 || all[0].Limits.PIDs != 100 || all[0].Kernel != "" {
		t.Errorf("the pool is %+v", all)
	}
	w.stop()
	w.nothingLeft()
}

// TestWhatIsNotFollowed: gVisor has its sentries, and an enormous disk is not made twice
// for one that was asked for.
func TestWhatIsNotFollowed(t *testing.T) {
	for name, edit := range map[string]func(*pool.Want, *pool.Config){
		"gVisor":          func(ask *pool.Want, _ *pool.Config) { ask.Isolation = sandbox.GVisor },
		"an unusual disk": func(ask *pool.Want, _ *pool.Config) { ask.Usual = false },
		"none":            func(_ *pool.Want, cfg *pool.Config) { cfg.Containers = 0 },
	} {
		ask, cfg := container(100), pool.Config{Containers: 1}
		edit(&ask, &cfg)
		w := newWorldOf(t, cfg)
		w.cold(ask)
		if all := w.Status(); len(all) != 0 {
			t.Errorf("%s: the pool is %+v, want nothing", name, all)
		}
		w.nothingLeft()
	}
}

// TestWhatIsRefusedIsNotFollowed: to ask is not enough, it has to be made.
func TestWhatIsRefusedIsNotFollowed(t *testing.T) {
	w := follower(t)
	w.cold(container(100))
	for range 3 {
		if w.Take(w.ctx, container(200)) != nil {
			t.Fatal("a container with 200 processes was ready")
		}
		w.Turn(w.ctx)
	}
	w.warm(container(100))
}

// TestTwoShapesInTurnKeepOneReady: the other takes its place when it is asked for twice in
// a row.
func TestTwoShapesInTurnKeepOneReady(t *testing.T) {
	w := follower(t)
	w.cold(container(100))
	for range 3 {
		w.cold(container(200))
		w.warm(container(100))
	}
	w.cold(container(200))
	w.cold(container(200))
	w.until("the first shape is gone", func() bool { return len(w.has()) == 1 })
	w.warm(container(200))
	w.cold(container(100))
}

// TestAKindOfTheConfigurationComesFirst: what it has is not made once more.
func TestAKindOfTheConfigurationComesFirst(t *testing.T) {
	ask := container(100)
	w := newWorldOf(t, pool.Config{Containers: 1, Kinds: []pool.Kind{{Image: "base", Isolation: ask.Isolation, Limits: ask.Limits, User: ask.User, Count: 1}}})
	w.Turn(w.ctx)
	w.warm(ask)
	m := w.Take(w.ctx, ask)
	w.Follow(ask) // as when it is empty
	w.Return(m)
	if all := w.Status(); len(all) != 1 {
		t.Errorf("the pool is %+v, want what is configured alone", all)
	}
}

// TestWhatNobodyAsksForIsForgotten after ten minutes, which each create begins anew.
func TestWhatNobodyAsksForIsForgotten(t *testing.T) {
	w := follower(t)
	w.cold(container(100))
	for range 2 {
		w.pass(9 * time.Minute)
		w.Turn(w.ctx)
		w.warm(container(100))
	}
	w.pass(11 * time.Minute)
	w.Turn(w.ctx)
	w.until("nothing is left", func() bool { return len(w.has()) == 0 })
	if all := w.Status(); len(all) != 0 {
		t.Errorf("the pool is %+v, want nothing", all)
	}
	w.cold(container(100))
	w.wantReady(1)
}

// TestWhatCannotBeFollowedWaitsForTheNextCreate: it is no problem of the daemon's, and is not
// tried again and again.
func TestWhatCannotBeFollowedWaitsForTheNextCreate(t *testing.T) {
	w := follower(t)
	w.faults.SetFail("Start", errs.E(errs.Unavailable, "down"))
	w.cold(container(100))
	w.nothingLeft()
	w.faults.SetFail("Start", nil)
	for range 3 {
		w.pass(time.Hour)
		w.Turn(w.ctx)
	}
	w.wantReady(0)
	if err := w.Problem(); err != nil {
		t.Errorf("Problem = %v", err)
	}
	w.cold(container(100))
	w.wantReady(1)
}

// TestOneOfSeveralThatDiesLeavesTheOthers: and it is replaced.
func TestOneOfSeveralThatDiesLeavesTheOthers(t *testing.T) {
	w := newWorldOf(t, pool.Config{Containers: 2})
	w.cold(container(100))
	w.Turn(w.ctx)
	w.wantReady(2)
	dies := w.has()[0]
	w.fake.Kill(dies, driver.Death{Cause: driver.DeathOOM})
	w.until("it is gone", func() bool { return !w.Holds(dies) && len(w.has()) == 1 })
	w.Turn(w.ctx)
	w.wantReady(1) // not at once
	w.pass(time.Minute)
	w.Turn(w.ctx)
	w.wantReady(2)
}

// TestTheFailureOfAnotherShapeIsNotThisOnes: that became what is followed meanwhile.
func TestTheFailureOfAnotherShapeIsNotThisOnes(t *testing.T) {
	w := follower(t)
	w.faults.SetFail("Start", errs.E(errs.Unavailable, "down"))
	w.faults.SetBefore(func(_ context.Context, method string, _ sandbox.UID) {
		if method == "Start" {
			w.Follow(container(200))
		}
	})
	w.cold(container(100))
	w.faults.SetFail("Start", nil)
	w.Turn(w.ctx)
	w.warm(container(200))
}

// TestAContainerOfAnotherShapeThatIsBeingMadeGoes: another became what is followed meanwhile.
func TestAContainerOfAnotherShapeThatIsBeingMadeGoes(t *testing.T) {
	w := follower(t)
	asked := false
	w.faults.SetBefore(func(_ context.Context, method string, _ sandbox.UID) {
		if method == "Start" && !asked {
			asked = true
			w.Follow(container(200))
		}
	})
	w.cold(container(100))
	w.wantReady(0)
	w.nothingLeft()
	w.Turn(w.ctx)
	w.warm(container(200))
}

// TestWhatIsFollowedDoesNotHoldItsImage: until it is taken, or when it is given back.
func TestWhatIsFollowedDoesNotHoldItsImage(t *testing.T) {
	w := follower(t)
	w.cold(container(100))
	pins := func() (n int) {
		w.set(func() { n = len(w.pins) })
		return n
	}
	if n := pins(); n != 0 {
		t.Errorf("while it waits there are %d pins", n)
	}
	m := w.Take(w.ctx, container(100))
	if m == nil || pins() != 1 {
		t.Fatalf("took %v with %d pins, want one", m, pins())
	}
	w.Return(m)
	if n := pins(); n != 0 || w.ready() != 1 {
		t.Errorf("after it was given back there are %d pins and %d ready, want 0 and 1", n, w.ready())
	}
	// Its image is removed, which ends it, also for a create that had found the image.
	gone := errs.E(errs.NotFound, "no image")
	w.set(func() { w.pin = gone })
	if m := w.Take(w.ctx, container(100)); m != nil {
		t.Error("a container was given out whose image is gone")
	}
	w.until("it is gone", func() bool { return len(w.has()) == 0 })
	w.set(func() { w.pin = nil })
	w.Turn(w.ctx)
	w.wantReady(1)
	w.set(func() { w.digest = "" })
	w.Turn(w.ctx)
	w.until("it is gone", func() bool { return len(w.has()) == 0 })
}

// TestAnImageThatIsMadeAgainIsAnother although it has the digest of the one that was removed:
// the files of that are gone from below the container.
func TestAnImageThatIsMadeAgainIsAnother(t *testing.T) {
	w := follower(t)
	for name, next := range map[string]func(){
		"before the pool sees it": func() {
			if m := w.Take(w.ctx, container(100)); m != nil {
				t.Error("a container was given out whose files are gone")
			}
		},
		"after that": func() { w.Turn(w.ctx) },
	} {
		w.cold(container(100))
		old := w.has()[0]
		w.set(func() { w.imageAt = w.imageAt.Add(time.Second) })
		next()
		w.until(name+": the container goes", func() bool { return !w.Holds(old) })
		w.Turn(w.ctx)
		w.warm(container(100))
		w.pass(time.Hour)
		w.Turn(w.ctx)
		w.until("all are gone", func() bool { return len(w.has()) == 0 })
	}
}

// TestWhatCannotLetGoOfItsImageGoes: one that was taken and given back.
func TestWhatCannotLetGoOfItsImageGoes(t *testing.T) {
	w := follower(t)
	w.cold(container(100))
	m := w.Take(w.ctx, container(100))
	w.set(func() { w.unpin = errs.E(errs.Unavailable, "down") })
	w.Return(m)
	w.wantReady(0)
	w.set(func() { w.unpin = nil })
	var left int
	w.set(func() { left = w.left })
	if left != 1 {
		t.Errorf("the reconciler heard %d times that something is left, want once", left)
	}
}
