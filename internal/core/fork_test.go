package core_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/core/lifecycle"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

func TestFork(t *testing.T) {
	w := newWorld(t)
	a, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: "a", Spec: sandbox.Spec{
		Labels: map[string]string{"k": "v"}, Env: map[string]string{"A": "1"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	w.sh("a", "echo same > f")
	x := w.launch("a", "echo ready; while [ ! -e go ]; do sleep 0.01; done; echo done")
	got, err := w.Snapshots().Fork(w.ctx, "a", 3, []string{"one", "two"})
	if err != nil || len(got.Sandboxes) != 3 || got.Paused <= 0 {
		t.Fatalf("Fork = %+v, %v", got, err)
	}
	w.remembers(0)
	ids := map[sandbox.UID]bool{a.UID: true}
	for i, b := range got.Sandboxes {
		if i < 2 && string(b.ID) != []string{"one", "two"}[i] || b.State != sandbox.Running || ids[b.UID] || b.Spec.Labels["k"] != "v" {
			t.Errorf("sandbox %d is %+v", i, b)
		}
		ids[b.UID] = true
		id := string(b.ID)
		if r := w.sh(id, "cat f; echo $A; echo "+id+" > f"); string(r.Stdout) != "same\n1\n" || r.Exec.Seq != 1 {
			t.Errorf("the first command of %s, %d, prints %q", id, r.Exec.Seq, r.Stdout)
		}
		if kinds := strings.Join(w.kinds(id), " "); !strings.HasPrefix(kinds, "sandbox.created sandbox.started") {
			t.Errorf("the history of %s has %s", id, kinds)
		}
	}
	events, _, err := w.Events().List(w.ctx, "one", 0, 0, "sandbox.created")
	if err != nil || len(events) != 1 || !strings.Contains(string(events[0].Payload), `"forked_from":"a"`) {
		t.Errorf("the history of a fork begins with %+v, %v", events, err)
	}
	events, _, err = w.Events().List(w.ctx, "a", 0, 0, "sandbox.forked")
	if err != nil || len(events) != 1 || !strings.Contains(string(events[0].Payload), fmt.Sprintf(`"forks":["one","two","%s"]`, got.Sandboxes[2].ID)) {
		t.Errorf("the history of the parent has %+v, %v", events, err)
	}
	// They and the parent know nothing of each other.
	if got := w.content("a", "/workspace/f") + w.content("one", "/workspace/f") + w.content("two", "/workspace/f"); got != "same\none\ntwo\n" {
		t.Errorf("the files have %q", got)
	}
	w.sh("a", "touch go")
	if x := w.wait("a", x.Seq); *x.Exit.Code != 0 {
		t.Errorf("the command of the parent ended %+v", x.Exit)
	}
	w.destroy("a")
	if r := w.sh("two", "cat f"); string(r.Stdout) != "two\n" {
		t.Errorf("after the parent's end a fork prints %q", r.Stdout)
	}
	w.restart()
	w.destroy("one", "two", string(got.Sandboxes[2].ID))
	w.nothingLeft()
}

// TestSleepersAreKeptAndForked: one whose memory is wanted is woken, and the files
// of one that sleeps on are copied as they are.
func TestSleepersAreKeptAndForked(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	w.sh("a", "echo then > f")
	sleep := func() {
		t.Helper()
		if b, err := w.Sandboxes().Sleep(w.ctx, "a", true); err != nil || b.State != sandbox.Sleeping {
			t.Fatalf("Sleep = %s, %v", b.State, err)
		}
	}
	state := func(want sandbox.State) {
		t.Helper()
		if b, err := w.Sandboxes().Get(w.ctx, "a"); err != nil || b.State != want {
			t.Errorf("the sandbox is %s, %v, want %s", b.State, err, want)
		}
	}
	sleep()
	w.keep("a", "point")
	state(sandbox.Running)
	sleep()
	if _, err := w.Snapshots().Fork(w.ctx, "a", 1, []string{"b"}); err != nil {
		t.Fatal(err)
	}
	state(sandbox.Running)
	w.sh("a", "echo now > f")
	x := w.launch("a", "echo ready; sleep 1000")
	sleep()
	if _, err := w.Snapshots().Rollback(w.ctx, "a", "point"); err != nil {
		t.Fatal(err)
	}
	state(sandbox.Running)
	if x := w.wait("a", x.Seq); !strings.Contains(x.Exit.Message, "rolled back") {
		t.Errorf("the command that slept ended %+v", x.Exit)
	}
	if got := w.content("a", "/workspace/f"); got != "then\n" {
		t.Errorf("the file has %q", got)
	}
}

func TestForkRefusals(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	w.create("taken")
	w.create("kept")
	if err := w.Sandboxes().Destroy(w.ctx, "kept", true); err != nil {
		t.Fatal(err)
	}
	w.create("stopped")
	w.halt("stopped")
	w.createIn("acme", "sharing")
	if _, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: "container", Spec: sandbox.Spec{Isolation: sandbox.Container}}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, id string
		count    int
		ids      []string
		want     errs.Kind
	}{
		{"no such sandbox", "nobody", 1, nil, errs.NotFound},
		{"too many", "a", 101, nil, errs.Invalid},
		{"less than none", "a", -1, nil, errs.Invalid},
		{"more ids than sandboxes", "a", 1, []string{"x", "y"}, errs.Invalid},
		{"an id that is none", "a", 1, []string{"-"}, errs.Invalid},
		{"an id twice", "a", 2, []string{"x", "X"}, errs.Invalid},
		{"an id in use", "a", 2, []string{"x", "Taken"}, errs.Conflict},
		{"its own id", "a", 1, []string{"a"}, errs.Conflict},
		{"an id with a kept disk", "a", 1, []string{"kept"}, errs.Conflict},
		{"stopped", "stopped", 1, nil, errs.WrongState},
		{"shared files", "sharing", 1, nil, errs.SharedFiles},
		{"a container", "container", 1, nil, errs.Unsupported},
	} {
		if _, err := w.Snapshots().Fork(w.ctx, tt.id, tt.count, tt.ids); !errors.Is(err, tt.want) {
			t.Errorf("%s: Fork = %v, want %v", tt.name, err, tt.want)
		}
	}
	if page, err := w.Sandboxes().List(w.ctx, lifecycle.Query{}); err != nil || len(page.Sandboxes) != 5 {
		t.Errorf("there are %d sandboxes, %v, want five", len(page.Sandboxes), err)
	}
}

// TestForksCountAgainstBounds: with one too many there is none of them, and
// nothing of them.
func TestForksCountAgainstBounds(t *testing.T) {
	for name, edit := range map[string]func(*core.Config){
		"running":           func(c *core.Config) { c.Sandboxes.Caps.All = 3 },
		"running of tenant": func(c *core.Config) { c.Sandboxes.Caps.PerTenant = 3 },
		"of tenant":         func(c *core.Config) { c.Sandboxes.Caps.OfTenant = 3 },
		"disks of tenant":   func(c *core.Config) { c.Sandboxes.Caps.DiskOfTenant = 3 * (4 << 30) },
		"memory": func(c *core.Config) {
			c.Sandboxes.MemoryReserve = 1 << 30
			c.Sandboxes.MemAvailable = func() (int64, error) { return 1<<30 + 150<<20, nil }
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, edit)
			acme := as(w.ctx, "alice", "acme")
			if _, err := w.Sandboxes().Create(acme, lifecycle.CreateRequest{ID: "a"}); err != nil {
				t.Fatal(err)
			}
			_, err := w.Snapshots().Fork(acme, "a", 3, nil)
			if !errors.Is(err, errs.OverQuota) && !errors.Is(err, errs.Exhausted) && !errors.Is(err, errs.LowMemory) {
				t.Fatalf("Fork over the bound = %v", err)
			}
			if page, err := w.Sandboxes().List(acme, lifecycle.Query{States: sandbox.States()}); err != nil || len(page.Sandboxes) != 1 {
				t.Errorf("there are %d sandboxes, %v, want the parent", len(page.Sandboxes), err)
			}
			// What was reserved is free again.
			if got, err := w.Snapshots().Fork(acme, "a", 2, nil); err != nil || len(got.Sandboxes) != 2 {
				t.Errorf("Fork within the bound = %v", err)
			}
		})
	}
}

// TestManyForks: more than come up at a time. The first, whose files the others
// are copied from, does not run before they have them.
func TestManyForks(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	w.sh("a", "echo x > f")
	var mu sync.Mutex
	disks := make(map[sandbox.UID]int) // that there were when a sandbox began
	w.faults.SetBefore(func(_ context.Context, method string, uid sandbox.UID) {
		if method == "Restore" {
			list, err := w.disks.List()
			mu.Lock()
			defer mu.Unlock()
			if disks[uid] = len(list); err != nil {
				t.Error(err)
			}
		}
	})
	got, err := w.Snapshots().Fork(w.ctx, "a", 20, nil)
	if err != nil || len(got.Sandboxes) != 20 {
		t.Fatalf("Fork = %d sandboxes, %v", len(got.Sandboxes), err)
	}
	mu.Lock()
	if n := disks[got.Sandboxes[0].UID]; n != 21 {
		t.Errorf("there were %d disks when the first began to run, want all 20 and the parent's", n)
	}
	mu.Unlock()
	for _, b := range got.Sandboxes {
		if r := w.sh(string(b.ID), "cat f"); string(r.Stdout) != "x\n" {
			t.Errorf("%s prints %q", b.ID, r.Stdout)
		}
	}
}

// TestEveryStepOfAForkCanBreak: none of the sandboxes is left, and the parent goes
// on with what runs in it.
func TestEveryStepOfAForkCanBreak(t *testing.T) {
	for _, step := range []step{
		onWrite("INSERT ON sandboxes", "NEW.id = 'two'"),
		onDriver("Snapshot"),
		afterDriver("Snapshot"),
		onDisks("Clone"),
		onDisks("Attach"),
		onPin(),
		onDriver("Restore"),
		afterDriver("Restore"),
		onDriver("Identify"),
		onWrite("UPDATE OF handle ON sandboxes", "NEW.handle IS NOT NULL"),
		onWrite("UPDATE OF state ON sandboxes", "NEW.state = 'running' AND NEW.id = 'two'"),
		all(onDriver("Restore"), onDriver("RemoveSnapshot")),
		all(onDriver("Identify"), onDriver("Destroy"), onDriver("Sweep")),
		all(onDriver("Restore"), onDisks("Remove")),
		all(onDriver("Restore"), moveTo(sandbox.Failed)),
	} {
		t.Run(step.name, func(t *testing.T) {
			t.Parallel()
			b := newBreakable(t, 3)
			b.create("a")
			x := b.launch("a", "echo ready; while [ ! -e go ]; do sleep 0.01; done; echo done")
			step.breaks(b)
			if _, err := b.Snapshots().Fork(b.ctx, "a", 2, []string{"one", "two"}); err == nil {
				t.Fatal("Fork succeeded")
			}
			b.mend()
			b.until("only the parent is left", func() bool {
				traces, err := b.fake.List(b.ctx)
				disks, diskErr := b.disks.List()
				kept, keptErr := b.fake.Snapshots(b.ctx)
				if err != nil || diskErr != nil || keptErr != nil {
					return false
				}
				if len(kept) > 0 { // it could not be removed at once
					b.Sandboxes().Reconciler().Turn(b.ctx)
				}
				return len(traces) == 1 && len(disks) == 1 && len(kept) == 0 && b.images.pinned() == 1
			})
			b.sh("a", "touch go")
			if x := b.wait("a", x.Seq); *x.Exit.Code != 0 {
				t.Errorf("the command of before ended %+v", x.Exit)
			}
			got, err := b.Snapshots().Fork(b.ctx, "a", 2, []string{"one", "two"})
			if err != nil || len(got.Sandboxes) != 2 {
				t.Errorf("the next Fork = %v", err)
			}
		})
	}
}
