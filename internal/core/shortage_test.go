package core_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/core/lifecycle"
	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/driver/drivertest"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// A host that is short of memory puts to sleep what nobody uses, and refuses what
// needs more; what is in use goes on, and what is to be kept goes on until the last
// step.
func TestShortageOfMemory(t *testing.T) {
	const reserve = 1 << 30
	c := &clock{now: time.Now()}
	var free atomic.Int64
	free.Store(64 << 30)
	w := newWorld(t, func(cfg *core.Config) {
		cfg.Now = c.Now
		cfg.Sandboxes.MemoryReserve = reserve
		cfg.Sandboxes.MemAvailable = func() (int64, error) { return free.Load(), nil }
	})
	w.create("used")
	w.launch("used", "echo ready; sleep 1000")
	w.create("old")
	c.add(5 * time.Minute)
	w.create("new")
	w.create("leased")
	long := 24 * time.Hour
	if _, err := w.Sandboxes().Keepalive(w.ctx, "leased", lifecycle.Keepalive{For: &long}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: "always", Spec: sandbox.Spec{IdlePolicy: sandbox.IdleAlwaysOn}}); err != nil {
		t.Fatal(err)
	}
	c.add(time.Minute)
	states := func(when string, want map[string]sandbox.State) {
		t.Helper()
		for id, want := range want {
			w.until(when+": "+id+" is "+string(want), func() bool {
				w.Reap()
				return w.get(id).State == want
			})
		}
	}
	w.Reap()
	states("with much memory", map[string]sandbox.State{"used": sandbox.Running, "old": sandbox.Running, "new": sandbox.Running})

	// The fake's sandboxes have 10 MiB each: one of them is enough.
	free.Store(reserve + 60<<20)
	w.until("the oldest sleeps", func() bool {
		w.Reap()
		return w.get("old").State == sandbox.Sleeping
	})
	if b := w.get("old"); b.Cause != sandbox.CauseMemory || b.Reason == "" {
		t.Errorf("it sleeps for %s, %q", b.Cause, b.Reason)
	}
	if _, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: "more"}); !errors.Is(err, errs.LowMemory) || errs.Public(err).RetryAfter <= 0 {
		t.Errorf("Create = %v, want that the memory is low, with a time to retry", err)
	}
	if _, err := w.Execs().Start(w.ctx, "old", sandbox.ExecSpec{Shell: "true"}); !errors.Is(err, errs.LowMemory) {
		t.Errorf("a wake = %v, want that the memory is low", err)
	}
	free.Store(reserve / 2)
	states("with little memory", map[string]sandbox.State{"new": sandbox.Sleeping, "leased": sandbox.Running, "always": sandbox.Running, "used": sandbox.Running})
	free.Store(reserve/2 - 1)
	states("with very little memory", map[string]sandbox.State{"leased": sandbox.Sleeping, "always": sandbox.Sleeping, "used": sandbox.Running})

	free.Store(64 << 30)
	for _, id := range []string{"old", "new", "leased", "always"} {
		w.sh(id, "true")
	}
}

// Beyond sleep-disk the oldest sleeper is stopped, which says so and from which a
// use starts again.
func TestSleepDisk(t *testing.T) {
	w := newWorld(t, func(cfg *core.Config) {
		cfg.Sandboxes.SleepDiskBytes = 2 << 20 // two of the fake's memories
	})
	for _, id := range []string{"a", "b", "c"} {
		w.create(id)
	}
	x := w.launch("a", "echo ready; sleep 1000")
	w.sleep("a", true)
	w.sleep("b", false)
	w.Reap()
	if s := w.get("a").State; s != sandbox.Sleeping {
		t.Errorf("with two of them the oldest is %s", s)
	}
	w.sleep("c", false)
	w.until("the oldest is stopped", func() bool { return w.get("a").State == sandbox.Stopped })
	if b := w.get("a"); b.Cause != sandbox.CauseSleep || b.Reason == "" {
		t.Errorf("it rests for %s, %q", b.Cause, b.Reason)
	}
	if p, ok := w.payload("a", event.SandboxStopped).(event.Stopped); !ok || p.Reason == "" {
		t.Errorf("the event says %+v", p)
	}
	if x := w.wait("a", x.Seq); x.Exit.Reason != sandbox.EndStopped {
		t.Errorf("its command ended %+v", x.Exit)
	}
	for _, id := range []string{"b", "c"} {
		if s := w.get(id).State; s != sandbox.Sleeping {
			t.Errorf("%s is %s", id, s)
		}
	}
	if _, err := w.Execs().Run(w.ctx, "a", sandbox.ExecSpec{Shell: "true"}, -1, live.OutputCaps{}); err != nil {
		t.Errorf("a use of it: %v", err)
	}
}

// unreadable is a driver that cannot read one sandbox.
type unreadable struct {
	*drivertest.Faulty
	uid atomic.Pointer[sandbox.UID]
}

func (d *unreadable) List(ctx context.Context) ([]driver.Found, error) {
	all, err := d.Faulty.List(ctx)
	for i, f := range all {
		if uid := d.uid.Load(); uid != nil && f.UID == *uid {
			all[i] = driver.Found{UID: f.UID, Err: errDown}
		}
	}
	return all, err
}

// A memory whose size cannot be read is not given up for others.
func TestSleepDiskLeavesWhatCannotBeRead(t *testing.T) {
	d := &unreadable{}
	w := newWorld(t, func(cfg *core.Config) {
		cfg.Sandboxes.SleepDiskBytes = 1 << 20
		d.Faulty = cfg.Driver.(*drivertest.Faulty)
		cfg.Driver = d
	})
	a := w.create("a")
	d.uid.Store(&a.UID)
	w.sleep("a", false)
	for _, id := range []string{"b", "c"} {
		w.create(id)
		w.sleep(id, false)
	}
	w.until("the oldest that can be read is stopped", func() bool { return w.get("b").State == sandbox.Stopped })
	if s := w.get("a").State; s != sandbox.Sleeping {
		t.Errorf("the one that cannot be read is %s", s)
	}
}
