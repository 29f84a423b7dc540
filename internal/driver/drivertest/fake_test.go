package drivertest

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func fakeSpec(t *testing.T) driver.Spec {
	disk := t.TempDir()
	for _, v := range driver.DiskVolumes(disk, "") {
		if err := os.Mkdir(v.Dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return driver.Spec{
		UID: sandbox.NewUID(), Isolation: sandbox.GVisor, Image: driver.Image{Dir: "/"}, Volumes: driver.DiskVolumes(disk, ""),
		Limits:   sandbox.Limits{MemoryBytes: 1 << 30, CPUs: 1, PIDs: 100, DiskBytes: 1 << 30, OpenFiles: 1024},
		Identity: driver.Identity{ID: "box", Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin"}},
	}
}

func TestFakeContract(t *testing.T) { Run(t, fakeEnv) }

func fakeEnv(t *testing.T) (driver.Driver, Env) {
	f := NewFake(t)
	return f, Env{
		Spec:           fakeSpec,
		DamageSnapshot: func(_ *testing.T, name sandbox.UID) { f.DamageSnapshot(name) },
		Reopen:         func(t *testing.T) driver.Driver { f = f.Restart(t); return f },
		Crash: func(t *testing.T, uid sandbox.UID) {
			f.Kill(uid, driver.Death{Cause: driver.DeathSignal, Signal: "SIGKILL"})
		},
		Egress: func(t *testing.T, uid sandbox.UID) string {
			conn, err := net.Dial("tcp", f.EgressAddr(uid))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := conn.Write([]byte("ping")); err != nil {
				t.Fatal(err)
			}
			answer, err := io.ReadAll(conn)
			if err != nil {
				t.Fatal(err)
			}
			return string(answer)
		},
	}
}

// A driver that is decorated keeps the contract, and its abilities.
func TestFaultyContract(t *testing.T) {
	Run(t, func(t *testing.T) (driver.Driver, Env) {
		d, env := fakeEnv(t)
		reopen := env.Reopen
		env.Reopen = func(t *testing.T) driver.Driver { return NewFaulty(reopen(t)) }
		return NewFaulty(d), env
	})
}

func TestFaults(t *testing.T) {
	down := errs.E(errs.Unavailable, "down")
	ctx := context.Background()
	spec := fakeSpec(t)
	f := NewFaulty(NewFake(t))
	var began []string
	f.Before = func(_ context.Context, method string, uid sandbox.UID) {
		if uid != spec.UID {
			t.Errorf("%s of %q, want of %q", method, uid, spec.UID)
		}
		began = append(began, method)
	}
	f.SetFail("Create", down)
	if _, err := f.Create(ctx, spec); !errors.Is(err, errs.Unavailable) {
		t.Errorf("Create = %v, want unavailable", err)
	}
	f.SetFail("Create", nil)
	f.SetFailAfter("Create", down)
	if h, err := f.Create(ctx, spec); !errors.Is(err, errs.Unavailable) || h != nil {
		t.Errorf("Create = %q, %v, want unavailable", h, err)
	}
	f.SetFailAfter("Create", nil)
	h, err := f.Create(ctx, spec)
	if err != nil {
		t.Fatalf("Create: %v; want that the one that failed left nothing", err)
	}
	inspect := func(after string, want driver.Phase) {
		t.Helper()
		if status, err := f.Inspect(ctx, h); err != nil || status.Phase != want {
			t.Errorf("after %s: Inspect = %+v, %v; want %s", after, status, err, want)
		}
	}
	f.SetFailAfter("Start", down)
	if err := f.Start(ctx, h); !errors.Is(err, errs.Unavailable) {
		t.Errorf("Start = %v, want unavailable", err)
	}
	inspect("a start that failed after its work", driver.PhaseRunning)
	sleeper, ok := driver.As[driver.Sleeper](f)
	if !ok {
		t.Fatal("it does not sleep any more")
	}
	f.SetFail("Sleep", down)
	if err := sleeper.Sleep(ctx, h); !errors.Is(err, errs.Unavailable) {
		t.Errorf("Sleep = %v, want unavailable", err)
	}
	inspect("a sleep that failed before its work", driver.PhaseRunning)
	f.SetFail("Sleep", nil)
	f.SetFailAfter("Sleep", down)
	if err := sleeper.Sleep(ctx, h); !errors.Is(err, errs.Unavailable) {
		t.Errorf("Sleep = %v, want unavailable", err)
	}
	inspect("a sleep that failed after its work", driver.PhaseAsleep)
	want := []string{"Create", "Create", "Create", "Start", "Inspect", "Sleep", "Inspect", "Sleep", "Inspect"}
	if !slices.Equal(began, want) {
		t.Errorf("the methods that began are %v, want %v", began, want)
	}
	if _, ok := driver.As[driver.TreeKiller](f); ok {
		t.Error("it has an ability that what it decorates has not")
	}
}
