package core_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// A sandbox that was being put to sleep when the daemon died sleeps, and keeps
// its memory, however often the next daemons look at it.
func TestAsleepBehindItsRow(t *testing.T) {
	w := newWorld(t)
	b := w.create("a")
	w.stop()
	w.driverOfNext()
	if err := w.fake.Sleep(w.ctx, b.Handle); err != nil {
		t.Fatal(err)
	}
	w.open()
	w.start()
	asleep := func() {
		t.Helper()
		w.until("it is reconciled", func() bool {
			b, err := w.Sandboxes().Get(w.ctx, "a")
			return err == nil && b.State == sandbox.Sleeping && len(w.Ready(w.ctx)) == 0
		})
		if st, err := w.fake.Inspect(w.ctx, b.Handle); err != nil || st.Phase != driver.PhaseAsleep {
			t.Errorf("Inspect = %+v, %v; want that it is asleep", st, err)
		}
	}
	asleep()
	w.restart()
	asleep()
}

// A daemon that comes back learns what runs from one listing, and asks about a
// single sandbox only before it ends one.
func TestReconcileAsksOnce(t *testing.T) {
	w := newWorld(t)
	for _, id := range []string{"a", "b", "c"} {
		w.create(id)
	}
	dead := w.create("d")
	w.stop()
	w.driverOfNext()
	w.fake.Kill(dead.UID, driver.Death{Cause: driver.DeathSignal, Signal: "SIGKILL"})
	var mu sync.Mutex
	var inspected []sandbox.UID
	w.faults.Before = func(_ context.Context, method string, uid sandbox.UID) {
		if method == "Inspect" {
			mu.Lock()
			defer mu.Unlock()
			inspected = append(inspected, uid)
		}
	}
	w.open()
	w.start()
	w.until("it is reconciled", func() bool {
		b, err := w.Sandboxes().Get(w.ctx, "d")
		return err == nil && b.State == sandbox.Stopped && len(w.Ready(w.ctx)) == 0
	})
	for _, id := range []string{"a", "b", "c"} {
		w.sh(id, "true")
	}
	mu.Lock()
	defer mu.Unlock()
	if want := []sandbox.UID{dead.UID}; !slices.Equal(inspected, want) {
		t.Errorf("inspected were %v, want only the dead one, %v", inspected, want)
	}
}

// halfBlind is a driver that cannot read one of its sandboxes.
type halfBlind struct {
	driver.Driver
	cannotRead sandbox.UID
}

func (d halfBlind) List(ctx context.Context) ([]driver.Found, error) {
	list, err := d.Driver.List(ctx)
	for i := range list {
		if list[i].UID == d.cannotRead {
			list[i] = driver.Found{UID: d.cannotRead, Err: errs.E(errs.Unavailable, "its note cannot be read")}
		}
	}
	return list, err
}

func TestOneUnreadableSandboxIsLeftAlone(t *testing.T) {
	var blind sandbox.UID
	w := newWorld(t, func(cfg *core.Config) { cfg.Driver = halfBlind{cfg.Driver, blind} })
	a := w.create("a")
	w.create("b")
	blind = a.UID
	w.restart()
	w.until("it is reconciled", func() bool { p := w.Ready(w.ctx); return len(p) == 1 && p[0].Part == "sandbox a" })
	w.sh("b", "true")
	if b, err := w.Sandboxes().Get(w.ctx, "a"); err != nil || b.State != sandbox.Running {
		t.Errorf("the sandbox is %s, %v, want running", b.State, err)
	}
	if st, err := w.fake.Inspect(w.ctx, a.Handle); err != nil || st.Phase != driver.PhaseRunning {
		t.Errorf("Inspect = %+v, %v; want that it still runs", st, err)
	}
}

func TestUnreadableIsNotEmpty(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	w.stop()
	w.driverOfNext()
	down := errs.E(errs.Unavailable, "the host does not answer")
	w.faults.SetFail("List", down)
	w.faults.SetFail("Inspect", down)
	w.open()
	w.start()
	w.until("it is reconciled", func() bool { p := w.Ready(w.ctx); return len(p) > 0 && p[0].Part != "core" })
	if b, err := w.Sandboxes().Get(w.ctx, "a"); err != nil || b.State != sandbox.Running {
		t.Errorf("the sandbox is %s, %v, want running", b.State, err)
	}
	if _, err := w.Execs().Start(w.ctx, "a", sandbox.ExecSpec{Shell: "true"}); !errors.Is(err, errs.Unavailable) {
		t.Errorf("Exec = %v, want unavailable", err)
	}
	if disks, err := w.disks.List(); err != nil || len(disks) != 1 {
		t.Errorf("the disks are %v, %v", disks, err)
	}
	w.faults.SetFail("List", nil)
	w.faults.SetFail("Inspect", nil)
	w.until("it is adopted", func() bool { return len(w.Ready(w.ctx)) == 0 })
	w.sh("a", "true")
}
