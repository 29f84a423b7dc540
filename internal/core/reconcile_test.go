package core_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/core/lifecycle"
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

// late is a driver whose listing is from another time.
type late struct {
	driver.Driver
	phase driver.Phase // of all sandboxes then; "" for none
}

func (d *late) List(ctx context.Context) ([]driver.Found, error) {
	list, err := d.Driver.List(ctx)
	if d.phase == "" {
		return nil, err
	}
	for i := range list {
		list[i].Status = driver.Status{Phase: d.phase}
	}
	return list, err
}

// Much happens between a listing and the look at one sandbox: what was listed
// neither ends one that runs nor brings back one that does not.
func TestALateListingEndsNothing(t *testing.T) {
	for _, phase := range []driver.Phase{"", driver.PhaseGone, driver.PhaseDead, driver.PhaseCreated, driver.PhaseAsleep, driver.PhaseRunning} {
		t.Run("listed as "+string(phase), func(t *testing.T) {
			w := newWorld(t, func(cfg *core.Config) { cfg.Driver = &late{cfg.Driver, phase} })
			runs, rests := w.create("runs"), w.create("rests")
			w.sh("rests", "echo kept > f")
			if _, err := w.Sandboxes().Stop(w.ctx, "rests", 0); err != nil {
				t.Fatal(err)
			}
			before, err := w.fake.Inspect(w.ctx, rests.Handle)
			if err != nil {
				t.Fatal(err)
			}
			var mu sync.Mutex
			var ended []sandbox.UID
			w.stop()
			w.driverOfNext()
			w.faults.Before = func(_ context.Context, method string, uid sandbox.UID) {
				if method == "Destroy" || method == "Sweep" || method == "Stop" && uid == runs.UID {
					mu.Lock()
					defer mu.Unlock()
					ended = append(ended, uid)
				}
			}
			w.open()
			w.start()
			w.until("it is reconciled", func() bool { return len(w.Ready(w.ctx)) == 0 })
			w.sh("runs", "true")
			if b, err := w.Sandboxes().Get(w.ctx, "rests"); err != nil || b.State != sandbox.Stopped {
				t.Errorf("the stopped one is %s, %v", b.State, err)
			}
			if after, err := w.fake.Inspect(w.ctx, rests.Handle); err != nil || after.Phase != before.Phase {
				t.Errorf("the driver has the stopped one as %q, %v, want %q", after.Phase, err, before.Phase)
			}
			if got := w.read("rests", "f", 0, -1); got != "kept\n" {
				t.Errorf("its file is %q", got)
			}
			mu.Lock()
			defer mu.Unlock()
			if len(ended) != 0 {
				t.Errorf("%v were ended", ended)
			}
		})
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

// renamed is a driver that has come in the place of another.
type renamed struct {
	driver.Driver
	name string
}

func (d renamed) Name() string { return d.name }

// What another driver made is left as it is, by every act and by every look, and
// the operator is told. It comes back with its driver.
func TestSandboxesOfAnotherDriver(t *testing.T) {
	name := "fake"
	w := newWorld(t, func(cfg *core.Config) { cfg.Driver = renamed{cfg.Driver, name} })
	a := w.create("a")
	w.create("b")
	if _, err := w.Sandboxes().Stop(w.ctx, "b", 0); err != nil {
		t.Fatal(err)
	}
	name = "other"
	w.restart()
	w.until("it is reconciled", func() bool { p := w.Ready(w.ctx); return len(p) == 0 || p[0].Part != "core" })
	p := w.Ready(w.ctx)
	if len(p) != 1 || p[0].Part != "other drivers" || !strings.HasPrefix(p[0].Message, "2 sandboxes") || !strings.Contains(p[0].Message, `"fake"`) || p[0].Hint == "" {
		t.Errorf("Ready = %+v, want the two sandboxes and what to do", p)
	}
	acts := map[string]func() error{
		"Start":                    func() error { _, err := w.Sandboxes().Start(w.ctx, "b"); return err },
		"EnsureRunning":            func() error { _, _, err := w.Sandboxes().EnsureRunning(w.ctx, "b", lifecycle.UseAny); return err },
		"Stop":                     func() error { _, err := w.Sandboxes().Stop(w.ctx, "a", 0); return err },
		"Destroy":                  func() error { return w.Sandboxes().Destroy(w.ctx, "a", false) },
		"Destroy of a stopped one": func() error { return w.Sandboxes().Destroy(w.ctx, "b", true) },
		"Purge":                    func() error { _, err := w.Sandboxes().Purge(w.ctx, "a"); return err },
		"Exec":                     func() error { _, err := w.Execs().Start(w.ctx, "a", sandbox.ExecSpec{Shell: "true"}); return err },
	}
	for what, act := range acts {
		if err := act(); !errors.Is(err, errs.Unsupported) || errs.Public(err).Hint == "" {
			t.Errorf("%s = %v, want unsupported and a hint", what, err)
		}
	}
	for id, want := range map[string]sandbox.State{"a": sandbox.Running, "b": sandbox.Stopped} {
		if b, err := w.Sandboxes().Get(w.ctx, id); err != nil || b.State != want {
			t.Errorf("%s is %s, %v; want %s", id, b.State, err, want)
		}
	}
	if st, err := w.fake.Inspect(w.ctx, a.Handle); err != nil || st.Phase != driver.PhaseRunning {
		t.Errorf("Inspect = %+v, %v; want that it still runs", st, err)
	}
	if c := w.create("c"); c.Driver != "other" {
		t.Errorf("a new one has the driver %q, want other", c.Driver)
	}
	if err := w.Sandboxes().Destroy(w.ctx, "c", false); err != nil {
		t.Errorf("Destroy of a new one: %v", err)
	}

	name = "fake"
	w.restart()
	w.until("it is adopted", func() bool { return len(w.Ready(w.ctx)) == 0 })
	w.sh("a", "true")
	if _, err := w.Sandboxes().Start(w.ctx, "b"); err != nil {
		t.Errorf("Start: %v", err)
	}
}
