package core_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/core/admission"
	"github.com/cubbyhq/cubby/internal/core/lifecycle"
	"github.com/cubbyhq/cubby/internal/core/pool"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store/storetest"
)

// keepReady makes a world keep sandboxes of the usual kind ready.
func keepReady(n int) func(*core.Config) {
	return func(c *core.Config) { c.Sandboxes.Pool = []pool.Kind{{Count: n}} }
}

// ready counts what waits in the pool.
func (w *world) waiting() (n int) {
	for _, s := range w.Sandboxes().Pool().Status() {
		n += s.Ready
	}
	return n
}

func (w *world) untilReady(n int) {
	w.t.Helper()
	w.until("the pool is full", func() bool { return w.waiting() == n })
}

// begun tells how a sandbox came to run.
func (w *world) begun(id string) event.Start {
	w.t.Helper()
	events, _, err := w.Events().List(w.ctx, id, 0, 0, event.SandboxCreated)
	if err != nil {
		w.t.Fatal(err)
	}
	if len(events) != 1 {
		w.t.Fatalf("%d events of the create of %s", len(events), id)
	}
	p, err := event.PayloadOf(events[0])
	if err != nil {
		w.t.Fatal(err)
	}
	return p.(event.Created).Start
}

// TestACreateTakesWhatIsKeptReady: it is nobody's before, in no list and under no
// bound, and the sandbox's own after it.
func TestACreateTakesWhatIsKeptReady(t *testing.T) {
	w := newWorld(t, keepReady(1), func(c *core.Config) { c.Sandboxes.Caps.All = 1 })
	w.untilReady(1)
	if page, err := w.Sandboxes().List(w.ctx, lifecycle.Query{}); err != nil || len(page.Sandboxes) != 0 {
		t.Errorf("List of a world without sandboxes = %v, %v", page.Sandboxes, err)
	}
	traces, err := w.fake.List(w.ctx)
	if err != nil || len(traces) != 1 {
		t.Fatalf("traces %v, %v", traces, err)
	}
	b, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: "Mine", Spec: sandbox.Spec{
		Env: map[string]string{"OVER": "mine"}, Labels: map[string]string{"a": "b"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if b.UID != traces[0].UID || b.DiskUID != b.UID || b.State != sandbox.Running || b.StartedAt.IsZero() || b.CreatedAt.IsZero() || b.ImageDigest != digest {
		t.Errorf("the sandbox is %+v, want it made of %s", b, traces[0].UID)
	}
	if how := w.begun("Mine"); how != event.Warm {
		t.Errorf("its create was %q, want warm", how)
	}
	if r := w.sh("Mine", `echo "$OVER $IMAGE $HTTP_PROXY"`); string(r.Stdout) != "mine yes http://127.0.0.1:3128\n" {
		t.Errorf("its environment: %q", r.Stdout)
	}
	w.untilReady(1) // beside the one that may run
	if _, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: "two"}); !errors.Is(err, errs.Exhausted) {
		t.Errorf("one more than may run = %v, want exhausted", err)
	}
	if w.waiting() != 1 {
		t.Error("a create that was refused took what is kept ready")
	}
	if err := w.Sandboxes().Destroy(w.ctx, "Mine", false); err != nil {
		t.Fatal(err)
	}
	w.stop()
	w.open()
	w.nothingLeft()
}

// TestWhatDoesNotFitIsMadeCold and takes nothing.
func TestWhatDoesNotFitIsMadeCold(t *testing.T) {
	w := newWorld(t, keepReady(1))
	b, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: "kept", Spec: sandbox.Spec{Isolation: sandbox.Container}})
	if err == nil {
		err = w.Sandboxes().Destroy(w.ctx, string(b.ID), true)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.untilReady(1)
	w.create("source")
	w.keep("source", "point")
	w.untilReady(1)
	packages := installer(t, installs)
	packages.Dependencies = map[string]string{"six": "1.16.0"}
	for name, r := range map[string]lifecycle.CreateRequest{
		"packages":  {Spec: packages},
		"snapshot":  {Snapshot: "point"},
		"container": {Spec: sandbox.Spec{Isolation: sandbox.Container}},
		"memory":    {Spec: sandbox.Spec{Limits: sandbox.Limits{MemoryBytes: 2 << 30}}},
		"root":      {Spec: sandbox.Spec{User: sandbox.UserRoot}},
		"tenant":    {Tenant: "acme"},
		"kept":      {},
	} {
		r.ID = name
		if _, err := w.Sandboxes().Create(w.ctx, r); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if how := w.begun(name); how != event.Cold {
			t.Errorf("%s: %q, want cold", name, how)
		}
		if w.waiting() != 1 {
			t.Fatalf("%s took what is kept ready", name)
		}
	}
}

// TestATenantsSandboxWithFilesOfItsOwnIsWarm: a tenant alone is who owns it.
func TestATenantsSandboxWithFilesOfItsOwnIsWarm(t *testing.T) {
	w := newWorld(t, keepReady(1))
	w.untilReady(1)
	if _, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: "own", Tenant: "acme", SharedFiles: new(bool)}); err != nil {
		t.Fatal(err)
	}
	if how := w.begun("own"); how != event.Warm {
		t.Errorf("%q, want warm", how)
	}
}

// TestAMemberThatCannotBeUsedIsDiscarded: and the create goes on without it.
func TestAMemberThatCannotBeUsedIsDiscarded(t *testing.T) {
	for name, fail := range map[string]error{
		"it does not answer":   errs.E(errs.Unavailable, "down"),
		"it is somebody's":     errs.E(errs.Conflict, "the sandbox has another identity"),
		"it answers nonsense":  errors.New("nonsense"),
		"its agent is too old": errs.E(errs.Unsupported, "old"),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, keepReady(1), func(c *core.Config) { c.Sandboxes.Caps.All = 1 })
			w.untilReady(1)
			traces, _ := w.fake.List(w.ctx)
			w.faults.SetFail("Identify", fail)
			b := w.create("a")
			if b.UID == traces[0].UID || w.begun("a") != event.Cold {
				t.Errorf("the sandbox was made of one that could not be used")
			}
			w.until("the member is gone", func() bool { return !w.Sandboxes().Pool().Holds(traces[0].UID) })
			if r := w.sh("a", "echo yes"); string(r.Stdout) != "yes\n" {
				t.Errorf("it printed %q", r.Stdout)
			}
		})
	}
}

// TestACallerThatGoesAwayWhileItsSandboxIsNamed gets nothing, and leaves nothing.
func TestACallerThatGoesAwayWhileItsSandboxIsNamed(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	w := newWorld(t, keepReady(1))
	w.untilReady(1)
	w.faults.SetFailAfter("Identify", context.Canceled)
	defer cancel()
	cancel()
	if _, err := w.Sandboxes().Create(ctx, lifecycle.CreateRequest{ID: "a"}); err == nil {
		t.Fatal("a create whose caller went away was answered")
	}
	w.faults.SetFailAfter("Identify", nil)
	w.until("its member is replaced", func() bool { return w.waiting() == 1 })
	if _, err := w.Sandboxes().Get(w.ctx, "a"); !errors.Is(err, errs.NotFound) {
		t.Errorf("Get = %v, want not found", err)
	}
}

// TestASandboxThatCannotBeWrittenDownIsUndone: its id, its place and its idempotency key
// are free again.
func TestASandboxThatCannotBeWrittenDownIsUndone(t *testing.T) {
	for _, write := range []string{"INSERT ON sandboxes", "INSERT ON sandbox_activity", "INSERT ON events", "UPDATE OF state ON sandboxes", "UPDATE ON idempotency"} {
		t.Run(write, func(t *testing.T) {
			w := newWorld(t, keepReady(1), func(c *core.Config) { c.Sandboxes.Caps.All = 1 })
			w.untilReady(1)
			traces, _ := w.fake.List(w.ctx)
			mend := storetest.Break(t, filepath.Join(w.dir, "cubby.db"), write, "")
			r := lifecycle.CreateRequest{ID: "a", IdempotencyKey: "k"}
			if _, err := w.Sandboxes().Create(w.ctx, r); err == nil {
				t.Fatal("a create that was not written down succeeded")
			}
			mend()
			w.until("the member is gone", func() bool { return !w.Sandboxes().Pool().Holds(traces[0].UID) })
			w.untilReady(1)
			b, err := w.Sandboxes().Create(w.ctx, r)
			if err != nil || w.begun("a") != event.Warm {
				t.Fatalf("the next create = %v", err)
			}
			again, err := w.Sandboxes().Create(w.ctx, r)
			if err != nil || again.UID != b.UID {
				t.Errorf("the repetition = %s, %v, want %s", again.UID, err, b.UID)
			}
		})
	}
}

// TestTheReconcilerLeavesTheLivingPoolAlone: what waits, what is being made and what
// is being taken.
func TestTheReconcilerLeavesTheLivingPoolAlone(t *testing.T) {
	for _, held := range []string{"", "Start", "Identify"} {
		t.Run(held, func(t *testing.T) {
			begun, goOn := make(chan sandbox.UID, 1), make(chan struct{})
			hold := sync.OnceFunc(func() { <-goOn })
			w := stoppedWorld(t, keepReady(1))
			w.faults.Before = func(_ context.Context, method string, uid sandbox.UID) {
				if method == held {
					select {
					case begun <- uid:
					default:
					}
					hold()
				}
			}
			w.start()
			var uid sandbox.UID
			var create sync.WaitGroup
			switch held {
			case "":
				w.untilReady(1)
				traces, _ := w.fake.List(w.ctx)
				uid = traces[0].UID
			case "Start":
				uid = <-begun
			case "Identify":
				w.untilReady(1)
				create.Go(func() { w.create("a") })
				uid = <-begun
			}
			w.Sandboxes().Reconciler().Turn(w.ctx)
			close(goOn)
			create.Wait()
			if held == "Identify" {
				if how := w.begun("a"); how != event.Warm {
					t.Errorf("the create was %q, want warm", how)
				}
				w.sh("a", "true")
			} else {
				w.untilReady(1)
			}
			w.Sandboxes().Reconciler().Turn(w.ctx)
			traces, err := w.fake.List(w.ctx)
			if err != nil || len(traces) == 0 || traces[0].UID != uid || traces[0].Status.Phase != driver.PhaseRunning {
				t.Errorf("the driver has %v, %v, want %s running", traces, err, uid)
			}
			if _, err := os.Stat(filepath.Join(w.dir, "disks")); err != nil {
				t.Error(err)
			}
			if disks, err := w.disks.List(); err != nil || len(disks) == 0 || disks[0] != uid {
				t.Errorf("disks %v, %v, want that of %s", disks, err, uid)
			}
			if w.images.pinned() == 0 {
				t.Error("its image is not pinned any more")
			}
		})
	}
}

// TestWhatAKilledDaemonKeptReadyIsRemoved, at whatever step it was killed.
func TestWhatAKilledDaemonKeptReadyIsRemoved(t *testing.T) {
	for step, last := range []string{"disk", "pin", "created", "started", "named"} {
		t.Run(last, func(t *testing.T) {
			w := stoppedWorld(t)
			uid := sandbox.NewUID()
			dir := w.newDisk(uid)
			var h driver.Handle
			for i, act := range []func() error{
				func() error { return nil },
				func() error { return w.images.Pin(w.ctx, digest, uid) },
				func() (err error) {
					h, err = w.fake.Create(w.ctx, driver.Spec{
						UID: uid, Isolation: sandbox.GVisor, Limits: sandbox.DefaultSpec().Limits,
						Image: driver.Image{Digest: digest, Dir: w.images.dir}, Volumes: driver.DiskVolumes(dir, ""),
					})
					return err
				},
				func() error { return w.fake.Start(w.ctx, h) },
				func() error {
					_, err := w.fake.Identify(w.ctx, h, driver.Identity{ID: "a"})
					return err
				},
			} {
				if i > step {
					break
				}
				if err := act(); err != nil {
					t.Fatal(err)
				}
			}
			w.stop()
			w.driverOfNext()
			w.open()
			w.start()
			if _, err := w.Sandboxes().List(w.ctx, lifecycle.Query{}); err != nil { // after the first look at the host
				t.Fatal(err)
			}
			w.nothingLeft()
			w.create("a")
		})
	}
}

// TestAPinOfAnotherDaemonStays: daemons may share their images, and of a sandbox
// without a disk nobody knows whose it is.
func TestAPinOfAnotherDaemonStays(t *testing.T) {
	w := stoppedWorld(t)
	if err := w.images.Pin(w.ctx, digest, sandbox.NewUID()); err != nil {
		t.Fatal(err)
	}
	w.start()
	w.Sandboxes().Reconciler().Turn(w.ctx)
	if n := w.images.pinned(); n != 1 {
		t.Errorf("%d pins, want the other daemon's", n)
	}
}

// TestAWarmSandboxSurvivesARestart as any does, with its name and its environment; what
// waited is gone.
func TestAWarmSandboxSurvivesARestart(t *testing.T) {
	w := newWorld(t, keepReady(1))
	w.untilReady(1)
	b, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: "a", Spec: sandbox.Spec{Env: map[string]string{"X": "1"}}})
	if err != nil || w.begun("a") != event.Warm {
		t.Fatalf("Create = %v", err)
	}
	w.untilReady(1)
	w.stop()
	w.driverOfNext()
	w.open()
	if traces, err := w.fake.List(w.ctx); err != nil || len(traces) != 1 || traces[0].UID != b.UID {
		t.Errorf("after the stop there is %v, %v, want the sandbox alone", traces, err)
	}
	w.start()
	if r := w.sh("a", "echo $X"); string(r.Stdout) != "1\n" {
		t.Errorf("after the restart it printed %q", r.Stdout)
	}
	if _, err := w.Sandboxes().Stop(w.ctx, "a", 0); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Sandboxes().Start(w.ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if r := w.sh("a", "echo $X"); string(r.Stdout) != "1\n" {
		t.Errorf("after a stop and a start it printed %q", r.Stdout)
	}
}

// TestThePoolIsGivenUpWhenMemoryIsShort before a create would be refused.
func TestThePoolIsGivenUpWhenMemoryIsShort(t *testing.T) {
	var mu sync.Mutex
	available := int64(64 << 30)
	w := newWorld(t, keepReady(1), func(c *core.Config) {
		c.Sandboxes.MemoryReserve = 1 << 30
		c.Sandboxes.MemAvailable = func() (int64, error) {
			mu.Lock()
			defer mu.Unlock()
			return available, nil
		}
	})
	w.untilReady(1)
	mu.Lock()
	available = 1<<30 + 100<<20
	mu.Unlock()
	w.Sandboxes().Pool().Creating()() // has the pool look
	w.until("the pool is given up", func() bool { return w.waiting() == 0 })
	w.create("a")
	if how := w.begun("a"); how != event.Cold {
		t.Errorf("the create was %q, want cold", how)
	}
}

// TestALastingFailureOfThePoolIsAProblem of readiness.
func TestALastingFailureOfThePoolIsAProblem(t *testing.T) {
	var mu sync.Mutex
	var ahead time.Duration
	began := time.Now()
	w := stoppedWorld(t, keepReady(1), func(c *core.Config) {
		c.Uptime = func() time.Duration {
			mu.Lock()
			defer mu.Unlock()
			return time.Since(began) + ahead
		}
	})
	w.faults.SetFail("Start", errs.E(errs.Unavailable, "down"))
	w.start()
	problem := func() string {
		for _, p := range w.Ready(w.ctx) {
			if p.Part == "pool" {
				return p.Message
			}
		}
		return ""
	}
	pass := func() {
		mu.Lock()
		ahead += time.Hour
		mu.Unlock()
		w.Sandboxes().Pool().Creating()() // has the pool look
	}
	for problem() == "" {
		pass()
		deadline := time.Now().Add(5 * time.Second)
		w.until("the pool has tried again", func() bool { return problem() != "" || time.Now().After(deadline) })
	}
	if text := problem(); !strings.Contains(text, "base, gvisor") {
		t.Errorf("the problem %q does not name the kind", text)
	}
	w.faults.SetFail("Start", nil)
	pass()
	w.until("it is none any more", func() bool { return problem() == "" })
}

// TestThePoolOfAHost: the default is for hosts with the memory, and kinds are completed
// and checked as creates are.
func TestThePoolOfAHost(t *testing.T) {
	w := newWorld(t, func(c *core.Config) {
		c.Sandboxes.DefaultPool, c.Sandboxes.Host.MemoryBytes = true, 3900<<20
		c.Sandboxes.Pool = []pool.Kind{{Image: "other", Isolation: sandbox.Container, Count: 3, Limits: sandbox.Limits{PIDs: 100}}}
	})
	all := w.Sandboxes().Pool().Status()
	if len(all) != 2 {
		t.Fatalf("the pool is %+v, want two kinds", all)
	}
	own, usual := all[0].Kind, all[1].Kind
	if own.Count != 3 || own.Limits.PIDs != 100 || own.Limits.MemoryBytes != w.Sandboxes().Defaults().Limits.MemoryBytes || own.User != sandbox.UserSandbox {
		t.Errorf("the operator's kind is %+v", own)
	}
	if usual.Count != 2 || usual.Image != "base" || usual.Isolation != sandbox.GVisor || usual.Kernel != sandbox.RuntimePython || !usual.Optional {
		t.Errorf("the default is %+v", usual)
	}
	small := newWorld(t, func(c *core.Config) { c.Sandboxes.DefaultPool, c.Sandboxes.Host.MemoryBytes = true, 2<<30 })
	if all := small.Sandboxes().Pool().Status(); len(all) != 0 {
		t.Errorf("a host with 2 GiB keeps %+v ready", all)
	}
	_, err := lifecycle.New(lifecycle.Config{Settings: lifecycle.Settings{
		Host: admission.Host{CPUs: 1, MemoryBytes: 1 << 30, OpenFiles: 10000, PIDs: 10000, Files: 100000},
		Pool: []pool.Kind{{Count: 1, Limits: sandbox.Limits{MemoryBytes: 2 << 30}}},
	}})
	if !errors.Is(err, errs.Invalid) {
		t.Errorf("a kind that the host cannot have = %v, want invalid", err)
	}
}
