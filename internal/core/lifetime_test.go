package core_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/core/admission"
	"github.com/cubbyhq/cubby/internal/core/lifecycle"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// gone waits until a sandbox was destroyed and returns its row.
func (w *world) gone(b sandbox.Sandbox) sandbox.Sandbox {
	w.t.Helper()
	var err error
	w.until("sandbox "+string(b.ID)+" is destroyed", func() bool {
		b, err = w.store.SandboxByUID(w.ctx, b.UID)
		return err == nil && b.State == sandbox.Destroyed
	})
	return b
}

// ready waits until a daemon that was started has taken over what there is.
func (w *world) ready() {
	w.t.Helper()
	w.until("the daemon is ready", func() bool { return len(w.Ready(w.ctx)) == 0 })
}

// At the end of its lifetime a sandbox is destroyed, whether it works, is
// stopped or is always on, also over a restart of the daemon.
func TestMaxLifetime(t *testing.T) {
	c := &clock{now: time.Now()}
	w := newWorld(t, func(cfg *core.Config) { cfg.Now = c.Now })
	life, none := time.Hour, time.Duration(0)
	boxes := map[string]sandbox.Sandbox{}
	for _, id := range []string{"works", "stopped", "always"} {
		b, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: id, Spec: sandbox.Spec{IdlePolicy: sandbox.IdleAlwaysOn}, MaxLifetime: &life, ExecTimeout: &none})
		if err != nil || !b.Ends().Equal(b.CreatedAt.Add(life)) {
			t.Fatalf("Create = ends %s, %v", b.Ends(), err)
		}
		boxes[id] = b
	}
	longer, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: "longer", Spec: sandbox.Spec{IdlePolicy: sandbox.IdleAlwaysOn}})
	if err != nil {
		t.Fatal(err)
	}
	x := w.launch("works", "echo ready; sleep 1000")
	if _, err := w.Sandboxes().Stop(w.ctx, "stopped", 0); err != nil {
		t.Fatal(err)
	}
	c.add(59 * time.Minute)
	w.restart()
	w.ready()
	if _, err := w.Sandboxes().Keepalive(w.ctx, "works", lifecycle.Keepalive{}); err != nil {
		t.Fatal(err)
	}
	if ended := w.Reap(); len(ended) != 0 {
		t.Errorf("before the end of their lifetime %v were ended", ended)
	}
	c.add(2 * time.Minute)
	for id, b := range boxes {
		if b = w.gone(b); b.Reason == "" {
			t.Errorf("%s was destroyed without a reason", id)
		}
	}
	w.until("the command that ran has ended with it", func() bool {
		end, err := w.store.Exec(w.ctx, boxes["works"].UID, x.Seq)
		return err == nil && end.Exit != nil && end.Exit.Reason == sandbox.EndDestroyed
	})
	events, err := w.store.Events(w.ctx, boxes["always"].UID, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	events = slices.DeleteFunc(events, ofThisMachine)
	last, err := event.PayloadOf(events[len(events)-1])
	if d, ok := last.(event.Destroyed); err != nil || !ok || d.Reason == "" {
		t.Errorf("the last event is %+v, %v, want destroyed and why", last, err)
	}
	if b, err := w.Sandboxes().Get(w.ctx, "longer"); err != nil || b.State != sandbox.Running || !longer.Ends().IsZero() {
		t.Errorf("one without a bound is %s, %v", b.State, err)
	}
}

func TestMaxLifetimeCanBeChanged(t *testing.T) {
	c := &clock{now: time.Now()}
	w := newWorld(t, func(cfg *core.Config) { cfg.Now = c.Now })
	life := time.Hour
	if _, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: "a", MaxLifetime: &life, Spec: sandbox.Spec{IdlePolicy: sandbox.IdleAlwaysOn}}); err != nil {
		t.Fatal(err)
	}
	c.add(30 * time.Minute)
	for _, tt := range []struct {
		life time.Duration
		want error
	}{{29 * time.Minute, errs.Invalid}, {-1, errs.Invalid}, {3 * time.Hour, nil}} {
		if _, err := w.Sandboxes().Update(w.ctx, "a", lifecycle.Patch{MaxLifetime: &tt.life}); !errors.Is(err, tt.want) {
			t.Errorf("Update to %s = %v, want %v", tt.life, err, tt.want)
		}
	}
	// What nobody names stays.
	labels := map[string]string{"a": "b"}
	b, err := w.Sandboxes().Update(w.ctx, "a", lifecycle.Patch{Labels: &labels})
	if err != nil || b.Spec.MaxLifetime != 3*time.Hour {
		t.Errorf("after another update max_lifetime is %s, %v", b.Spec.MaxLifetime, err)
	}
	c.add(2 * time.Hour)
	if ended := w.Reap(); len(ended) != 0 {
		t.Errorf("with more time %v were ended", ended)
	}
	c.add(31 * time.Minute)
	w.gone(b)
}

func TestKeepalive(t *testing.T) {
	c := &clock{now: time.Now()}
	w := newWorld(t, func(cfg *core.Config) { cfg.Now = c.Now })
	timeout, life := time.Hour, 10*time.Hour
	for _, id := range []string{"leased", "touched", "unkept"} {
		if _, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: id, IdleTimeout: &timeout, MaxLifetime: &life}); err != nil {
			t.Fatal(err)
		}
	}
	state := func(id string) sandbox.State {
		t.Helper()
		b, err := w.Sandboxes().Get(w.ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		return b.State
	}
	until := c.Now().Add(3 * time.Hour)
	b, err := w.Sandboxes().Keepalive(w.ctx, "leased", lifecycle.Keepalive{Until: until})
	if err != nil || b.Spec.KeptUntil.Sub(until).Abs() > time.Millisecond || b.IdleAt.Sub(until).Abs() > time.Millisecond {
		t.Errorf("Keepalive = until %s, idle at %s, %v; want %s", b.Spec.KeptUntil, b.IdleAt, err, until)
	}
	c.add(50 * time.Minute)
	if b, err := w.Sandboxes().Keepalive(w.ctx, "touched", lifecycle.Keepalive{}); err != nil || !b.Spec.KeptUntil.IsZero() || !b.IdleAt.Equal(c.Now().Add(timeout)) {
		t.Errorf("Keepalive = until %s, idle at %s, %v", b.Spec.KeptUntil, b.IdleAt, err)
	}
	w.restart() // a lease outlives the daemon, and the timeout is what it was
	w.ready()
	c.add(20 * time.Minute)
	w.until("the one that nobody kept sleeps", func() bool { return state("unkept") == sandbox.Sleeping })
	if ended := w.Reap(); len(ended) != 0 || state("touched") != sandbox.Running || state("leased") != sandbox.Running {
		t.Errorf("%v were ended, touched is %s, leased is %s", ended, state("touched"), state("leased"))
	}
	c.add(time.Hour)
	w.until("the one that was kept once sleeps", func() bool { return state("touched") == sandbox.Sleeping })
	c.add(40 * time.Minute) // 2:50
	if ended := w.Reap(); len(ended) != 0 {
		t.Errorf("within the lease %v were ended", ended)
	}
	if b, err := w.Sandboxes().Get(w.ctx, "leased"); err != nil || b.Spec.IdleTimeout != timeout {
		t.Errorf("the timeout is %s, %v, want what it was created with", b.Spec.IdleTimeout, err)
	}
	// Not beyond the end of its lifetime.
	far := c.Now().Add(200 * time.Hour)
	if b, err = w.Sandboxes().Keepalive(w.ctx, "leased", lifecycle.Keepalive{Until: far}); err != nil || b.Spec.KeptUntil.Sub(b.Ends()).Abs() > time.Millisecond {
		t.Errorf("Keepalive = until %s, %v, want the end of its lifetime %s", b.Spec.KeptUntil, err, b.Ends())
	}
	// Given up.
	none := time.Duration(0)
	if b, err = w.Sandboxes().Keepalive(w.ctx, "leased", lifecycle.Keepalive{For: &none}); err != nil || !b.Spec.KeptUntil.IsZero() {
		t.Errorf("Keepalive = until %s, %v, want none", b.Spec.KeptUntil, err)
	}
	if events, err := w.store.Events(w.ctx, b.UID, 0, 0); err != nil || count(events, event.SandboxKept) != 3 {
		t.Errorf("there are %d events of leases, %v, want 3", count(events, event.SandboxKept), err)
	}
	c.add(time.Hour)
	w.until("the one without a lease sleeps", func() bool { return state("leased") == sandbox.Sleeping })

	// Refusals.
	past, seconds := c.Now().Add(-time.Hour), time.Hour
	for name, tt := range map[string]struct {
		id   string
		k    lifecycle.Keepalive
		want error
	}{
		"a sleeping one": {"leased", lifecycle.Keepalive{}, errs.WrongState},
		"unknown":        {"nobody", lifecycle.Keepalive{}, errs.NotFound},
		"both":           {"leased", lifecycle.Keepalive{Until: c.Now().Add(time.Hour), For: &seconds}, errs.Invalid},
		"of all tenants": {"leased", lifecycle.Keepalive{}, errs.NotFound},
	} {
		ctx := w.ctx
		if name == "of all tenants" {
			ctx = as(ctx, "mallory", "other")
		}
		if _, err := w.Sandboxes().Keepalive(ctx, tt.id, tt.k); !errors.Is(err, tt.want) {
			t.Errorf("%s: Keepalive = %v, want %v", name, err, tt.want)
		}
	}
	if _, err := w.Sandboxes().Start(w.ctx, "touched"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Sandboxes().Keepalive(w.ctx, "touched", lifecycle.Keepalive{Until: past}); !errors.Is(err, errs.Invalid) {
		t.Errorf("Keepalive until the past = %v, want invalid", err)
	}
}

func count(events []sandbox.Event, kind string) (n int) {
	for _, e := range events {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

// A daemon that was away for longer than a timeout gives users a moment.
func TestUsersCanComeBackAfterTheDaemonWasAway(t *testing.T) {
	c := &clock{now: time.Now()}
	w := newWorld(t, func(cfg *core.Config) { cfg.Now = c.Now })
	w.create("a")
	w.stop()
	c.add(24 * time.Hour)
	w.driverOfNext()
	w.open()
	w.start()
	w.ready()
	if ended := w.Reap(); len(ended) != 0 {
		t.Errorf("at once %v were ended", ended)
	}
	c.add(2 * time.Minute)
	w.until("it sleeps", func() bool {
		b, err := w.Sandboxes().Get(w.ctx, "a")
		return err == nil && b.State == sandbox.Sleeping
	})
}

// The bounds hold exactly when fifty want in at once.
func TestBoundsAreExact(t *testing.T) {
	const at = 50
	tests := []struct {
		name string
		caps admission.Caps
		want int // of fifty, of two tenants and four threads
		kind errs.Kind
	}{
		{"all", admission.Caps{All: 7}, 7, errs.Exhausted},
		{"tenants", admission.Caps{PerTenant: 3}, 6, errs.OverQuota},
		{"threads", admission.Caps{PerThread: 2}, 8, errs.OverQuota},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, func(c *core.Config) { c.Sandboxes.Caps = tt.caps })
			who := func(i int) (context.Context, lifecycle.CreateRequest) {
				tenant := fmt.Sprint("tenant", i%2)
				return as(w.ctx, tenant, tenant), lifecycle.CreateRequest{
					ID: fmt.Sprint("box", i), Spec: sandbox.Spec{Thread: fmt.Sprint("thread", i/2%2)},
				}
			}
			results := make([]error, at)
			var g sync.WaitGroup
			for i := range at {
				g.Go(func() {
					ctx, req := who(i)
					_, results[i] = w.Sandboxes().Create(ctx, req)
				})
			}
			g.Wait()
			made, first := 0, -1
			for i, err := range results {
				switch {
				case err == nil:
					made++
					if first < 0 {
						first = i
					}
				case !errors.Is(err, tt.kind) || errs.Public(err).RetryAfter <= 0:
					t.Errorf("Create = %v, want %v with a time to retry", err, tt.kind)
				}
			}
			if made != tt.want {
				t.Fatalf("%d of %d were made, want %d", made, at, tt.want)
			}
			// A dead one gives its place away, to its own kind.
			ctx, req := who(first)
			b, err := w.Sandboxes().Get(ctx, req.ID)
			if err != nil {
				t.Fatal(err)
			}
			w.fake.Kill(b.UID, driver.Death{Cause: driver.DeathSignal, Signal: "SIGKILL"})
			w.until("the dead one is stopped", func() bool {
				b, err = w.Sandboxes().Get(ctx, req.ID)
				return err == nil && b.State == sandbox.Stopped
			})
			req.ID = "next"
			if _, err := w.Sandboxes().Create(ctx, req); err != nil {
				t.Errorf("Create in the place of the dead one = %v", err)
			}
			// The bounds outlive the daemon.
			w.restart()
			if _, err := w.Sandboxes().Start(ctx, string(b.ID)); !errors.Is(err, tt.kind) {
				t.Errorf("Start = %v, want %v", err, tt.kind)
			}
		})
	}
}

func TestDestroyAll(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	w.create("stopped")
	if _, err := w.Sandboxes().Stop(w.ctx, "stopped", 0); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Sandboxes().Create(as(w.ctx, "bob", "other"), lifecycle.CreateRequest{ID: "theirs"}); err != nil {
		t.Fatal(err)
	}
	if n, stayed, err := w.Sandboxes().DestroyAll(w.ctx); n != 3 || len(stayed) != 0 || err != nil {
		t.Errorf("DestroyAll = %d, %v, %v", n, stayed, err)
	}
	w.nothingLeft()
}

// What hangs does not hold the daemon's end up, and is said to stay.
func TestDestroyAllHasATimeLimit(t *testing.T) {
	w := stoppedWorld(t)
	var hangs sandbox.UID
	began := make(chan struct{})
	w.faults.Before = func(ctx context.Context, method string, uid sandbox.UID) {
		if method == "Destroy" && uid == hangs {
			close(began)
			<-ctx.Done()
		}
	}
	w.start()
	hangs = w.create("a").UID
	other := w.create("b")
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	go func() {
		<-began
		for w.ctx.Err() == nil {
			b, err := w.store.SandboxByUID(w.ctx, other.UID)
			traces, listErr := w.fake.List(w.ctx)
			if err == nil && listErr == nil && b.State == sandbox.Destroyed && !slices.ContainsFunc(traces, func(f driver.Found) bool { return f.UID == other.UID }) {
				break
			}
		}
		cancel()
	}()
	n, stayed, err := w.Sandboxes().DestroyAll(ctx)
	if n != 1 || len(stayed) != 1 || stayed[0] != "a" || err == nil {
		t.Errorf("DestroyAll = %d, %v, %v, want that a stays", n, stayed, err)
	}
	hangs = ""
	w.restart() // the next daemon removes it
	w.until("nothing is left", func() bool {
		traces, err := w.fake.List(w.ctx)
		return err == nil && len(traces) == 0
	})
}

// Who has heard that a command has ended finds the sandbox unused, though its end
// may not be stored yet.
func TestACommandThatHasEndedIsNoUse(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	for i := range 50 {
		w.sh("a", "true")
		if w.get("a").IdleAt.IsZero() {
			t.Fatalf("command %d has ended and the sandbox is in use", i)
		}
		w.in("a", "true")
		if w.get("a").IdleAt.IsZero() {
			t.Fatalf("command %d of a session has ended and the sandbox is in use", i)
		}
	}
}
