package core_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/core/lifecycle"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

func TestCreateFillsTheDefaults(t *testing.T) {
	w := newWorld(t)
	b := w.create("")
	want := sandbox.DefaultSpec()
	if b.State != sandbox.Running || b.Spec.Limits != want.Limits || b.Spec.Image != "base" ||
		b.Spec.Isolation != sandbox.GVisor || b.Spec.ExecTimeout != want.ExecTimeout || b.ImageDigest != digest {
		t.Errorf("Create = %+v", b)
	}
	if _, err := sandbox.ParseUID(string(b.ID)); err != nil {
		t.Errorf("generated id %q is no ULID", b.ID)
	}
	got, err := w.Sandboxes().Get(w.ctx, strings.ToUpper(string(b.ID)))
	if err != nil || got.UID != b.UID {
		t.Errorf("Sandbox by an id in upper case = %v, %v", got.UID, err)
	}
	events, next, err := w.Events().List(w.ctx, string(b.ID), 0, 0)
	if err != nil || len(events) != 2 || events[0].Kind != "sandbox.created" || events[1].Kind != "sandbox.started" || next != events[1].Cursor {
		t.Errorf("Events = %+v, %d, %v", events, next, err)
	}
}

func TestOpenFilesAreWhatIsInForce(t *testing.T) {
	w := newWorld(t) // of a host that gives 100000
	for asked, want := range map[int64]int64{0: 65536, 1024: 1024, 100_000: 100_000, 1 << 20: 100_000} {
		b, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{Spec: sandbox.Spec{Limits: sandbox.Limits{OpenFiles: asked}}})
		if err != nil || b.Spec.Limits.OpenFiles != want {
			t.Errorf("Create with %d = %d, %v, want %d", asked, b.Spec.Limits.OpenFiles, err, want)
		}
	}
}

// A sandbox could take every process id of the host: four million were taken
// for granted where the host has 32768, and in gVisor were an internal error.
func TestProcessesAreAShareOfTheHosts(t *testing.T) {
	w := newWorld(t) // of a host with 32768 process ids
	for asked, want := range map[int64]int64{0: 512, 8192: 8192, 8193: 8192, 4_000_000: 8192} {
		for _, isolation := range []sandbox.Isolation{sandbox.GVisor, sandbox.Container} {
			b, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{Spec: sandbox.Spec{Isolation: isolation, Limits: sandbox.Limits{PIDs: asked}}})
			if err != nil || b.Spec.Limits.PIDs != want {
				t.Errorf("Create in %s with %d = %d, %v, want %d", isolation, asked, b.Spec.Limits.PIDs, err, want)
			}
		}
	}
}

// The processes of one container could open every file that the host can have
// open.
func TestOpenFilesOfAContainerAreAShareOfTheHosts(t *testing.T) {
	w := newWorld(t) // of a host with 8388608 open files
	for _, tt := range []struct{ pids, asked, want int64 }{
		{512, 65536, 8192},
		{64, 1 << 20, 65536},
		{8192, 65536, 4096},
		{512, 1024, 1024},
	} {
		b, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{Spec: sandbox.Spec{
			Isolation: sandbox.Container, Limits: sandbox.Limits{PIDs: tt.pids, OpenFiles: tt.asked},
		}})
		if err != nil || b.Spec.Limits.OpenFiles != tt.want {
			t.Errorf("Create with %d pids and %d files = %d, %v, want %d", tt.pids, tt.asked, b.Spec.Limits.OpenFiles, err, tt.want)
		}
	}
}

func TestCreateRefusesBeforeItActs(t *testing.T) {
	negative := -time.Second
	tests := []struct {
		name string
		req  lifecycle.CreateRequest
		want errs.Kind
	}{
		{"malformed id", lifecycle.CreateRequest{ID: "../etc"}, errs.Invalid},
		{"unknown image", lifecycle.CreateRequest{Spec: sandbox.Spec{Image: "nope"}}, errs.NotFound},
		{"malformed image", lifecycle.CreateRequest{Spec: sandbox.Spec{Image: "../base"}}, errs.Invalid},
		{"unknown isolation", lifecycle.CreateRequest{Spec: sandbox.Spec{Isolation: "vm"}}, errs.Invalid},
		{"more cpus than the host", lifecycle.CreateRequest{Spec: sandbox.Spec{Limits: sandbox.Limits{CPUs: 5}}}, errs.Invalid},
		{"more memory than the host", lifecycle.CreateRequest{Spec: sandbox.Spec{Limits: sandbox.Limits{MemoryBytes: 65 << 30}}}, errs.Invalid},
		{"negative pids", lifecycle.CreateRequest{Spec: sandbox.Spec{Limits: sandbox.Limits{PIDs: -1}}}, errs.Invalid},
		{"env name with =", lifecycle.CreateRequest{Spec: sandbox.Spec{Env: map[string]string{"A=B": ""}}}, errs.Invalid},
		{"port 0", lifecycle.CreateRequest{Spec: sandbox.Spec{Ports: []int{0}}}, errs.Invalid},
		{"negative timeout", lifecycle.CreateRequest{ExecTimeout: &negative}, errs.Invalid},
		{"long idempotency key", lifecycle.CreateRequest{IdempotencyKey: strings.Repeat("k", 300)}, errs.Invalid},
	}
	w := newWorld(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := w.Sandboxes().Create(w.ctx, tt.req); !errors.Is(err, tt.want) {
				t.Errorf("Create = %v, want %v", err, tt.want)
			}
		})
	}
	page, err := w.Sandboxes().List(w.ctx, lifecycle.Query{})
	if err != nil || len(page.Sandboxes) != 0 {
		t.Errorf("there are rows %v, %v, want none", page.Sandboxes, err)
	}
	w.nothingLeft()
}

func TestCreateThatFailsIsUndone(t *testing.T) {
	down := errs.E(errs.Unavailable, "down")
	steps := []struct {
		name   string
		breaks func(w *world)
	}{
		{"pin", func(w *world) { w.images.fail(down) }},
		{"driver create", func(w *world) { w.faults.SetFail("Create", down) }},
		{"driver start", func(w *world) { w.faults.SetFail("Start", down) }},
		{"after driver start", func(w *world) { w.faults.SetFailAfter("Start", down) }},
	}
	for _, step := range steps {
		t.Run(step.name, func(t *testing.T) {
			w := newWorld(t, func(c *core.Config) { c.Sandboxes.Caps.All = 1 })
			step.breaks(w)
			req := lifecycle.CreateRequest{ID: "a", IdempotencyKey: "k"}
			if _, err := w.Sandboxes().Create(w.ctx, req); !errors.Is(err, errs.Unavailable) {
				t.Fatalf("Create = %v, want unavailable", err)
			}
			b, err := w.Sandboxes().Get(w.ctx, "a")
			if err != nil || b.State != sandbox.Failed || b.Reason != "create: down" {
				t.Errorf("the row is %s %q, %v, want failed with the reason", b.State, b.Reason, err)
			}
			w.nothingLeft()

			// The id, the place and the idempotency key are free again.
			w.images.fail(nil)
			w.faults.SetFailAfter("Start", nil)
			w.faults.SetFail("Create", nil)
			w.faults.SetFail("Start", nil)
			if b, err := w.Sandboxes().Create(w.ctx, req); err != nil || b.State != sandbox.Running {
				t.Errorf("the next Create = %s, %v", b.State, err)
			}
		})
	}
}

func TestCreateOfACallerWhoWentAwayIsUndone(t *testing.T) {
	w := stoppedWorld(t)
	ctx, cancel := context.WithCancel(w.ctx)
	w.faults.Before = func(_ context.Context, method string, _ sandbox.UID) {
		if method == "Start" {
			cancel()
		}
	}
	w.start()
	if _, err := w.Sandboxes().Create(ctx, lifecycle.CreateRequest{ID: "a"}); !errors.Is(err, context.Canceled) {
		t.Errorf("Create = %v, want canceled", err)
	}
	if b, err := w.Sandboxes().Get(w.ctx, "a"); err != nil || b.State != sandbox.Failed {
		t.Errorf("the row is %s, %v, want failed", b.State, err)
	}
	w.nothingLeft()
}

func TestIdempotentCreate(t *testing.T) {
	w := newWorld(t)
	req := lifecycle.CreateRequest{Spec: sandbox.Spec{Labels: map[string]string{"a": "1"}}, IdempotencyKey: "k"}
	first, err := w.Sandboxes().Create(w.ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	again, err := w.Sandboxes().Create(w.ctx, req)
	if err != nil || again.UID != first.UID {
		t.Errorf("the repeated Create = %s, %v, want %s", again.UID, err, first.UID)
	}
	req.Spec.Labels = map[string]string{"a": "2"}
	if _, err := w.Sandboxes().Create(w.ctx, req); !errors.Is(err, errs.Conflict) {
		t.Errorf("another request with the key = %v, want conflict", err)
	}
	if b, err := w.Sandboxes().Create(as(w.ctx, "other", ""), req); err != nil || b.UID == first.UID {
		t.Errorf("the key of another principal = %s, %v, want a new sandbox", b.UID, err)
	}
}

func TestConcurrentCreatesOfOneID(t *testing.T) {
	w := newWorld(t)
	var wg sync.WaitGroup
	results := make(chan error, 8)
	for range cap(results) {
		wg.Go(func() {
			_, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: "same"})
			results <- err
		})
	}
	wg.Wait()
	close(results)
	made := 0
	for err := range results {
		switch {
		case err == nil:
			made++
		case !errors.Is(err, errs.Conflict):
			t.Errorf("Create = %v, want conflict", err)
		}
	}
	if made != 1 {
		t.Errorf("%d creates made the sandbox, want 1", made)
	}
}

func TestConcurrentCreates(t *testing.T) {
	w := newWorld(t)
	var wg sync.WaitGroup
	for i := range 30 {
		wg.Go(func() {
			if _, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: fmt.Sprintf("box-%d", i)}); err != nil {
				t.Errorf("Create %d: %v", i, err)
			}
		})
	}
	wg.Wait()
}

func TestIDsAreCompareWithoutCase(t *testing.T) {
	w := newWorld(t)
	w.create("Box")
	if _, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: "bOX"}); !errors.Is(err, errs.Conflict) {
		t.Errorf("Create = %v, want conflict", err)
	}
}

func TestTenantsDoNotSeeEachOther(t *testing.T) {
	w := newWorld(t)
	mine, theirs := as(w.ctx, "me", "one"), as(w.ctx, "them", "two")
	if _, err := w.Sandboxes().Create(mine, lifecycle.CreateRequest{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Sandboxes().Get(theirs, "a"); !errors.Is(err, errs.NotFound) {
		t.Errorf("Sandbox = %v, want not found", err)
	}
	if err := w.Sandboxes().Destroy(theirs, "a", false); !errors.Is(err, errs.NotFound) {
		t.Errorf("Destroy = %v, want not found", err)
	}
	if _, err := w.Execs().Start(theirs, "a", sandbox.ExecSpec{Shell: "true"}); !errors.Is(err, errs.NotFound) {
		t.Errorf("Exec = %v, want not found", err)
	}
	if _, err := w.Files().Stat(theirs, "a", ".", true); !errors.Is(err, errs.NotFound) {
		t.Errorf("Stat = %v, want not found", err)
	}
	if page, err := w.Sandboxes().List(theirs, lifecycle.Query{}); err != nil || len(page.Sandboxes) != 0 {
		t.Errorf("List = %v, %v, want nothing", page.Sandboxes, err)
	}
	if _, err := w.Sandboxes().Create(theirs, lifecycle.CreateRequest{ID: "a"}); !errors.Is(err, errs.Conflict) {
		t.Errorf("Create = %v, want conflict", err)
	}
}

func TestAdmission(t *testing.T) {
	var free int64 = 64 << 30
	w := newWorld(t, func(c *core.Config) {
		c.Sandboxes.Caps.All, c.Sandboxes.MemoryReserve = 2, 1<<30
		c.Sandboxes.MemAvailable = func() (int64, error) { return free, nil }
	})
	w.create("a")
	w.create("b")
	refused := func(when string) {
		t.Helper()
		_, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: "one-too-many"})
		if !errors.Is(err, errs.Exhausted) || errs.Public(err).RetryAfter <= 0 {
			t.Errorf("%s: Create = %v, want exhausted with a time to retry", when, err)
		}
	}
	refused("with all places taken")

	// A stopped sandbox and a dead one take no place.
	if _, err := w.Sandboxes().Stop(w.ctx, "a", 0); err != nil {
		t.Fatal(err)
	}
	w.create("c")
	refused("with all places taken again")
	if _, err := w.Sandboxes().Start(w.ctx, "a"); !errors.Is(err, errs.Exhausted) {
		t.Errorf("Start = %v, want exhausted", err)
	}
	b, err := w.Sandboxes().Get(w.ctx, "b")
	if err != nil {
		t.Fatal(err)
	}
	w.fake.Kill(b.UID, driver.Death{Cause: driver.DeathOOM})
	w.until("the dead sandbox is stopped", func() bool {
		b, err = w.Sandboxes().Get(w.ctx, "b")
		return err == nil && b.State == sandbox.Stopped
	})
	if _, err := w.Sandboxes().Start(w.ctx, "a"); err != nil {
		t.Errorf("Start = %v, want the place of the dead sandbox", err)
	}
	if err := w.Sandboxes().Destroy(w.ctx, "a", false); err != nil {
		t.Fatal(err)
	}
	free = 1 << 30
	if _, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: "d"}); !errors.Is(err, errs.LowMemory) || errs.Public(err).RetryAfter <= 0 {
		t.Errorf("Create without memory = %v, want that the memory is low, with a time to retry", err)
	}
	if _, err := w.Sandboxes().Get(w.ctx, "d"); !errors.Is(err, errs.NotFound) {
		t.Errorf("a refused create left a row: %v", err)
	}
}

func TestUnsupportedIsolationIsNotDowngraded(t *testing.T) {
	w := stoppedWorld(t, func(c *core.Config) { c.Driver = onlyContainers{c.Driver} })
	w.start()
	if _, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{}); !errors.Is(err, errs.Unsupported) {
		t.Errorf("Create = %v, want unsupported", err)
	}
	if p := w.Ready(w.ctx); len(p) != 1 || p[0].Part != "driver" {
		t.Errorf("Ready = %+v, want a problem of the driver", p)
	}
	if b, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{Spec: sandbox.Spec{Isolation: sandbox.Container}}); err != nil || b.Spec.Isolation != sandbox.Container {
		t.Errorf("Create = %s, %v", b.Spec.Isolation, err)
	}
}

type onlyContainers struct{ driver.Driver }

func (onlyContainers) Capabilities() driver.Capabilities {
	return driver.Capabilities{Isolations: []driver.IsolationSupport{
		{Isolation: sandbox.GVisor, Err: errs.E(errs.Unsupported, "no gVisor here")},
		{Isolation: sandbox.Container},
	}}
}

// A preferred image is for those who ask for none, and only where there is one.
func TestPreferredImage(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct{ prefer, asks, gets string }{
		{"base", "", "base"}, {"dev", "", "base"}, {"dev", "base", "base"}, {"base", "nosuch", ""},
	} {
		b, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{Prefer: c.prefer, Spec: sandbox.Spec{Image: c.asks, Limits: sandbox.Limits{DiskBytes: 512 << 20}}})
		if c.gets == "" {
			if !errors.Is(err, errs.NotFound) {
				t.Errorf("%+v: %v", c, err)
			}
			continue
		}
		if err != nil || b.Spec.Image != c.gets {
			t.Errorf("%+v: %s, %v", c, b.Spec.Image, err)
		}
	}
}
