package core_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/core/lifecycle"
	"github.com/cubbyhq/cubby/internal/core/snapshot"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// createAlone makes a sandbox of a tenant whose files are its own, in a thread.
func (w *world) createAlone(tenant, thread, id string, spec sandbox.Spec) sandbox.Sandbox {
	w.t.Helper()
	no := false
	spec.Thread = thread
	b, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: id, Tenant: tenant, SharedFiles: &no, Spec: spec})
	if err != nil {
		w.t.Fatalf("Create %s: %v", id, err)
	}
	return b
}

// A sleeper was woken for a snapshot or a fork that its row, its tenant's quota or the
// bounds refused, and though its auto_wake is never.
func TestRefusedSnapshotsAndForksWakeNobody(t *testing.T) {
	const disk = 64 << 20
	short := func(free *atomic.Int64) { free.Store(1<<30 + 150<<20) } // two of them, and not three
	for name, tt := range map[string]struct {
		spec   sandbox.Spec
		edit   func(*core.Config)
		before func(w *world, free *atomic.Int64)
		shared bool
		name   string   // of the snapshot
		forks  int      // 0: a snapshot is asked for, and no fork
		ids    []string // of the forks
		want   errs.Kind
	}{
		"snapshot, never":             {spec: sandbox.Spec{AutoWake: sandbox.AutoWakeNever}, want: errs.WrongState},
		"snapshot, shared files":      {shared: true, want: errs.SharedFiles},
		"snapshot, a container":       {spec: sandbox.Spec{Isolation: sandbox.Container}, want: errs.Unsupported},
		"snapshot, a name in use":     {name: "point", want: errs.Conflict},
		"snapshot, too many":          {edit: func(c *core.Config) { c.Snapshots.Count = 1 }, want: errs.OverQuota},
		"snapshot, too many bytes":    {edit: func(c *core.Config) { c.Snapshots.Bytes = 2 << 20 }, before: func(w *world, _ *atomic.Int64) { w.sh("a", "head -c 3000000 /dev/urandom > big") }, want: errs.OverQuota},
		"fork, never":                 {spec: sandbox.Spec{AutoWake: sandbox.AutoWakeNever}, forks: 1, want: errs.WrongState},
		"fork, shared files":          {shared: true, forks: 1, want: errs.SharedFiles},
		"fork, a container":           {spec: sandbox.Spec{Isolation: sandbox.Container}, forks: 1, want: errs.Unsupported},
		"fork, an id that is none":    {forks: 1, ids: []string{"-"}, want: errs.Invalid},
		"fork, an id in use":          {forks: 1, ids: []string{"Used"}, want: errs.Conflict},
		"fork, its own id":            {forks: 1, ids: []string{"a"}, want: errs.Conflict},
		"fork, an id with a disk":     {forks: 1, ids: []string{"kept"}, want: errs.Conflict},
		"fork, places":                {edit: func(c *core.Config) { c.Sandboxes.Caps.All = 3 }, forks: 3, want: errs.Exhausted},
		"fork, places of the tenant":  {edit: func(c *core.Config) { c.Sandboxes.Caps.PerTenant = 3 }, forks: 3, want: errs.OverQuota},
		"fork, places of the thread":  {edit: func(c *core.Config) { c.Sandboxes.Caps.PerThread = 3 }, forks: 3, want: errs.OverQuota},
		"fork, places of threads":     {edit: func(c *core.Config) { c.Sandboxes.Caps.InThreads = 3 }, forks: 3, want: errs.OverQuota},
		"fork, sandboxes of a tenant": {edit: func(c *core.Config) { c.Sandboxes.Caps.OfTenant = 3 }, forks: 3, want: errs.OverQuota},
		"fork, disks of a tenant":     {edit: func(c *core.Config) { c.Sandboxes.Caps.DiskOfTenant = 4 * disk }, forks: 4, want: errs.OverQuota},
		"fork, memory":                {edit: func(c *core.Config) { c.Sandboxes.MemoryReserve = 1 << 30 }, before: func(_ *world, free *atomic.Int64) { short(free) }, forks: 2, want: errs.LowMemory},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var free atomic.Int64
			free.Store(64 << 30)
			edit := tt.edit
			if edit == nil {
				edit = func(*core.Config) {}
			}
			w := newWorld(t, edit, func(c *core.Config) {
				c.Sandboxes.MemAvailable = func() (int64, error) { return free.Load(), nil }
			})
			tt.spec.Limits.DiskBytes = disk
			if tt.shared {
				w.createIn("acme", "a")
			} else {
				w.createAlone("acme", "talk", "a", tt.spec)
			}
			if tt.name != "" || tt.edit != nil && tt.forks == 0 {
				w.keep("a", "point")
			}
			if tt.ids != nil {
				w.create("used")
				w.createAlone("acme", "talk", "kept", sandbox.Spec{})
				if err := w.Sandboxes().Destroy(w.ctx, "kept", true); err != nil {
					t.Fatal(err)
				}
			}
			if tt.before != nil {
				tt.before(w, &free)
			}
			w.sleep("a", true)
			was := w.get("a")
			var err error
			if tt.forks == 0 {
				_, _, err = w.Snapshots().Create(w.ctx, snapshot.Request{Source: "a", Name: tt.name, Memory: true})
			} else {
				_, err = w.Snapshots().Fork(w.ctx, "a", tt.forks, tt.ids)
			}
			if !errors.Is(err, tt.want) {
				t.Errorf("it was answered %v, want %v", err, tt.want)
			}
			if tt.spec.AutoWake == sandbox.AutoWakeNever && errs.Public(orNone(err)).Hint == "" {
				t.Errorf("%v has no hint", err)
			}
			if got := w.get("a"); got.State != sandbox.Sleeping || !got.StartedAt.Equal(was.StartedAt) {
				t.Errorf("after that it is %s, and was started at %v, not %v", got.State, got.StartedAt, was.StartedAt)
			}
		})
	}
}

// With as many places, and as much memory, as it needs, a sleeper is woken and forked.
func TestForkOfASleeperTakesTheLastPlaces(t *testing.T) {
	w := newWorld(t, func(c *core.Config) {
		c.Sandboxes.Caps.All, c.Sandboxes.Caps.OfTenant = 3, 3
		c.Sandboxes.MemoryReserve = 1 << 30
		c.Sandboxes.MemAvailable = func() (int64, error) { return 1<<30 + 192<<20, nil }
	})
	w.createAlone("acme", "talk", "a", sandbox.Spec{})
	w.sleep("a", false)
	if got, err := w.Snapshots().Fork(w.ctx, "a", 2, nil); err != nil || len(got.Sandboxes) != 2 {
		t.Errorf("Fork = %v", err)
	}
	if b := w.get("a"); b.State != sandbox.Running {
		t.Errorf("the parent is %s", b.State)
	}
}

// One that is being woken has its place already: it was counted twice, and the fork was
// refused.
func TestForkOfOneThatIsBeingWokenTakesTheLastPlaces(t *testing.T) {
	w := newWorld(t, func(c *core.Config) {
		c.Sandboxes.Caps.All, c.Sandboxes.Caps.OfTenant = 2, 2
		c.Sandboxes.MemoryReserve = 1 << 30
		c.Sandboxes.MemAvailable = func() (int64, error) { return 1<<30 + 128<<20, nil }
	})
	a := w.createAlone("acme", "talk", "a", sandbox.Spec{})
	w.sleep("a", false)
	wakes, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	w.faults.SetBefore(func(_ context.Context, method string, _ sandbox.UID) {
		if method == "Wake" {
			once.Do(func() { close(wakes); <-goOn })
		}
	})
	var beside sync.WaitGroup
	beside.Go(func() {
		if _, err := w.Sandboxes().Wake(w.ctx, "a"); err != nil {
			t.Errorf("Wake = %v", err)
		}
	})
	<-wakes
	forked := make(chan error, 1)
	beside.Go(func() {
		_, err := w.Snapshots().Fork(w.ctx, "a", 1, nil)
		forked <- err
	})
	w.until("the fork waits for the wake", func() bool { return w.Sandboxes().Waiters(a.UID) == 1 || len(forked) > 0 })
	close(goOn)
	if err := <-forked; err != nil {
		t.Errorf("Fork = %v", err)
	}
	beside.Wait()
}
