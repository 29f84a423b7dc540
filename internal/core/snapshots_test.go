package core_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/core/lifecycle"
	"github.com/cubbyhq/cubby/internal/core/snapshot"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// keep makes a snapshot, of the memory too.
func (w *world) keep(id, name string) sandbox.Snapshot {
	w.t.Helper()
	n, _, err := w.Snapshots().Create(w.ctx, snapshot.Request{Source: id, Name: name, Memory: true})
	if err != nil {
		w.t.Fatalf("Create snapshot %s of %s: %v", name, id, err)
	}
	return n
}

func (w *world) from(id, name string) (sandbox.Sandbox, error) {
	return w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: id, Snapshot: name})
}

func (w *world) halt(id string) {
	w.t.Helper()
	if _, err := w.Sandboxes().Stop(w.ctx, id, 0); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) destroy(ids ...string) {
	w.t.Helper()
	for _, id := range ids {
		if err := w.Sandboxes().Destroy(w.ctx, id, false); err != nil {
			w.t.Fatal(err)
		}
	}
}

// kinds are the kinds of the events of a sandbox, in their order.
func (w *world) kinds(id string) []string {
	w.t.Helper()
	all, _, err := w.Events().List(w.ctx, id, 0, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	var kinds []string
	for _, e := range all {
		if !ofThisMachine(e) {
			kinds = append(kinds, e.Kind)
		}
	}
	return kinds
}

// remembers checks what the host keeps of memories.
func (w *world) remembers(want int) {
	w.t.Helper()
	if kept, err := w.fake.Snapshots(w.ctx); err != nil || len(kept) != want {
		w.t.Errorf("the driver keeps %v, %v, want %d", kept, err, want)
	}
}

func TestASnapshotOutlivesItsSandbox(t *testing.T) {
	for _, memory := range []bool{false, true} {
		w := newWorld(t)
		spec := sandbox.Spec{Env: map[string]string{"A": "1", "B": "2"}, Isolation: sandbox.Container, Limits: sandbox.Limits{MemoryBytes: 64 << 20}}
		if memory {
			spec.Isolation = sandbox.GVisor
		}
		a, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: "a", Spec: spec})
		if err != nil {
			t.Fatal(err)
		}
		w.write("a", "/workspace/f", "kept\n")
		w.write("a", "/home/sandbox/h", "home\n")
		if !memory {
			w.halt("a") // the writers of a plain directory cannot be held
		}
		n, _, err := w.Snapshots().Create(w.ctx, snapshot.Request{Source: "a", Name: "point", Memory: memory})
		if err != nil || n.Source != "a" || n.SourceUID != a.UID || n.Memory != memory || n.State != sandbox.SnapshotReady || n.DiskBytes == 0 ||
			(n.MemoryBytes != 0) != memory || n.ImageDigest != digest || n.CreatedAt.IsZero() {
			t.Fatalf("Create = %+v, %v", n, err)
		}
		if memory {
			w.sh("a", "echo later > f")
		}
		w.destroy("a")
		w.restart()
		if all, next, err := w.Snapshots().List(w.ctx, snapshot.Query{}); err != nil || len(all) != 1 || all[0].UID != n.UID || next != "" {
			t.Errorf("List = %+v, %q, %v", all, next, err)
		}
		// Any number of times, by its name and its id.
		for id, name := range map[string]string{"b": "point", "c": string(n.UID)} {
			b, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: id, Snapshot: name, Spec: sandbox.Spec{Env: map[string]string{"B": "3"}}})
			if err != nil || b.State != sandbox.Running || b.Spec.Limits != n.Spec.Limits || b.Spec.Isolation != spec.Isolation || b.ImageDigest != digest {
				t.Fatalf("Create from it = %+v, %v", b, err)
			}
			if got := w.content(id, "/workspace/f") + w.content(id, "/home/sandbox/h"); got != "kept\nhome\n" {
				t.Errorf("the sandbox has %q", got)
			}
			if r := w.sh(id, "echo $A$B; echo own > f"); string(r.Stdout) != "13\n" || r.Exec.Seq != 1 {
				t.Errorf("its first command, %d, has the environment %q", r.Exec.Seq, r.Stdout)
			}
		}
		w.destroy("b", "c")
		if err := w.Snapshots().Remove(w.ctx, "point"); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Snapshots().Get(w.ctx, string(n.UID)); !errors.Is(err, errs.NotFound) {
			t.Errorf("Get of a removed one = %v", err)
		}
		if err := w.Snapshots().Remove(w.ctx, "point"); !errors.Is(err, errs.NotFound) {
			t.Errorf("Remove again = %v", err)
		}
		w.nothingLeft()
		w.remembers(0)
		if kinds := strings.Join(w.kinds("a"), " "); !strings.Contains(kinds, "snapshot.created") || !strings.HasSuffix(kinds, "snapshot.removed") {
			t.Errorf("the history of its source has %s", kinds)
		}
	}
}

func TestSnapshotRefusals(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	w.createIn("acme", "sharing")
	w.create("stopped")
	w.halt("stopped")
	if _, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: "container", Spec: sandbox.Spec{Isolation: sandbox.Container}}); err != nil {
		t.Fatal(err)
	}
	n := w.keep("a", "point")
	for _, tt := range []struct {
		name string
		r    snapshot.Request
		want errs.Kind
	}{
		{"no such sandbox", snapshot.Request{Source: "nobody"}, errs.NotFound},
		{"a name that is none", snapshot.Request{Source: "a", Name: "../x"}, errs.Invalid},
		{"the id of another", snapshot.Request{Source: "a", Name: string(n.UID)}, errs.Invalid},
		{"a name that is taken", snapshot.Request{Source: "a", Name: "point", Memory: true}, errs.Conflict},
		{"shared files", snapshot.Request{Source: "sharing", Memory: true}, errs.SharedFiles},
		{"the memory of a stopped one", snapshot.Request{Source: "stopped", Memory: true}, errs.WrongState},
		{"the memory of a container", snapshot.Request{Source: "container", Memory: true}, errs.Unsupported},
	} {
		if _, _, err := w.Snapshots().Create(w.ctx, tt.r); !errors.Is(err, tt.want) {
			t.Errorf("%s: Create = %v, want %v", tt.name, err, tt.want)
		}
	}
	yes := true
	for _, tt := range []struct {
		name string
		r    lifecycle.CreateRequest
		want errs.Kind
	}{
		{"no such snapshot", lifecycle.CreateRequest{Snapshot: "nothing"}, errs.NotFound},
		{"other limits", lifecycle.CreateRequest{Snapshot: "point", Spec: sandbox.Spec{Limits: sandbox.Limits{PIDs: 77}}}, errs.Invalid},
		{"another isolation", lifecycle.CreateRequest{Snapshot: "point", Spec: sandbox.Spec{Isolation: sandbox.Container}}, errs.Invalid},
		{"another user", lifecycle.CreateRequest{Snapshot: "point", Spec: sandbox.Spec{User: "root"}}, errs.Invalid},
		{"another image", lifecycle.CreateRequest{Snapshot: "point", Spec: sandbox.Spec{Image: "r"}}, errs.Invalid},
		{"dependencies", lifecycle.CreateRequest{Snapshot: "point", Spec: sandbox.Spec{Dependencies: map[string]string{"x": ""}}}, errs.Invalid},
		{"an archive too", lifecycle.CreateRequest{Snapshot: "point", Restore: "x"}, errs.Invalid},
		{"shared files", lifecycle.CreateRequest{Snapshot: "point", Tenant: "acme", SharedFiles: &yes}, errs.SharedFiles},
		{"another tenant", lifecycle.CreateRequest{Snapshot: "point", Tenant: "acme"}, errs.NotFound},
	} {
		if _, err := w.Sandboxes().Create(w.ctx, tt.r); !errors.Is(err, tt.want) {
			t.Errorf("%s: Create = %v, want %v", tt.name, err, tt.want)
		}
	}
	// What is said again is no other.
	if _, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{Snapshot: "point", Spec: sandbox.Spec{Image: "base", Limits: sandbox.Limits{PIDs: n.Spec.Limits.PIDs}}}); err != nil {
		t.Errorf("Create with what the snapshot says = %v", err)
	}
	if all, _, err := w.Snapshots().List(w.ctx, snapshot.Query{}); err != nil || len(all) != 1 {
		t.Errorf("List = %+v, %v, want one", all, err)
	}
}

// TestSnapshotsOfAnotherTenant: for others there are none.
func TestSnapshotsOfAnotherTenant(t *testing.T) {
	w := newWorld(t)
	acme, other := as(w.ctx, "alice", "acme"), as(w.ctx, "bob", "other")
	if _, err := w.Sandboxes().Create(acme, lifecycle.CreateRequest{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	n, _, err := w.Snapshots().Create(acme, snapshot.Request{Source: "a", Name: "point", Memory: true})
	if err != nil || n.Tenant != "acme" {
		t.Fatalf("Create = %+v, %v", n, err)
	}
	if _, err := w.Sandboxes().Create(other, lifecycle.CreateRequest{ID: "b"}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"point", string(n.UID)} {
		for what, err := range map[string]error{
			"Get":                      second(w.Snapshots().Get(other, name)),
			"Remove":                   w.Snapshots().Remove(other, name),
			"Create from":              second(w.Sandboxes().Create(other, lifecycle.CreateRequest{Snapshot: name})),
			"Rollback":                 second(w.Snapshots().Rollback(other, "b", name)),
			"Rollback of the operator": second(w.Snapshots().Rollback(w.ctx, "b", name)),
			"Create from, of nobody's": second(w.from("c", name)),
		} {
			if !errors.Is(err, errs.NotFound) {
				t.Errorf("%s of another tenant's = %v, want not found", what, err)
			}
		}
	}
	_, _, err = w.Snapshots().Create(other, snapshot.Request{Source: "a"})
	if !errors.Is(err, errs.NotFound) {
		t.Errorf("Create of another tenant's sandbox = %v, want not found", err)
	}
	if _, err := w.Snapshots().Fork(other, "a", 1, nil); !errors.Is(err, errs.NotFound) {
		t.Errorf("Fork of another tenant's sandbox = %v, want not found", err)
	}
	if all, _, err := w.Snapshots().List(other, snapshot.Query{}); err != nil || len(all) != 0 {
		t.Errorf("List of another tenant = %v, %v", all, err)
	}
	if _, _, err := w.Snapshots().List(other, snapshot.Query{Tenant: "acme"}); !errors.Is(err, errs.Forbidden) {
		t.Errorf("List of another tenant by its name = %v, want forbidden", err)
	}
	// The operator sees all, and may have sandboxes made for a tenant.
	if got, err := w.Snapshots().Get(w.ctx, "point"); err != nil || got.UID != n.UID {
		t.Errorf("Get by the operator = %+v, %v", got, err)
	}
	if b, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{Tenant: "acme", Snapshot: "point"}); err != nil || b.Tenant != "acme" || b.Spec.SharedFiles {
		t.Errorf("Create by the operator = %+v, %v", b, err)
	}
}

func TestSnapshotQuota(t *testing.T) {
	w := newWorld(t, func(c *core.Config) { c.Snapshots = snapshot.Bounds{Count: 2, Bytes: 16 << 20} })
	acme := as(w.ctx, "alice", "acme")
	if _, err := w.Sandboxes().Create(acme, lifecycle.CreateRequest{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	make := func(name string) error {
		_, _, err := w.Snapshots().Create(acme, snapshot.Request{Source: "a", Name: name, Memory: true})
		return err
	}
	if err := errors.Join(make("one"), make("two")); err != nil {
		t.Fatal(err)
	}
	if err := make("three"); !errors.Is(err, errs.OverQuota) {
		t.Errorf("Create over the number = %v, want over quota", err)
	}
	if err := w.Snapshots().Remove(acme, "one"); err != nil {
		t.Fatal(err)
	}
	w.sh("a", "head -c 20000000 /dev/urandom > big")
	if err := make("three"); !errors.Is(err, errs.OverQuota) {
		t.Errorf("Create over the bytes = %v, want over quota", err)
	}
	w.sh("a", "rm big")
	if err := make("three"); err != nil {
		t.Errorf("Create after a removal = %v", err)
	}
	// Sandboxes of no tenant are the operator's.
	w.create("b")
	for _, name := range []string{"one", "two", "three"} {
		w.keep("b", name)
	}
	w.remembers(5)
}

// TestEveryStepOfASnapshotCanBreak: nothing is kept, the sandbox goes on, and the
// next one succeeds.
func TestEveryStepOfASnapshotCanBreak(t *testing.T) {
	for _, step := range []step{
		onWrite("INSERT ON snapshots", ""),
		onPin(),
		onDriver("Snapshot"),
		afterDriver("Snapshot"),
		onDisks("Clone"),
		onWrite("UPDATE ON snapshots", "NEW.state = 'ready'"),
		onWrite("INSERT ON events", "NEW.kind = 'snapshot.created'"),
		// The undo breaks too.
		all(onDriver("Snapshot"), onDriver("RemoveSnapshot")),
		all(onWrite("UPDATE ON snapshots", "NEW.state = 'ready'"), onDriver("RemoveSnapshot")),
		all(onWrite("UPDATE ON snapshots", "NEW.state = 'ready'"), onDisks("Remove")),
		all(onWrite("UPDATE ON snapshots", "NEW.state = 'ready'"), onUnpin()),
		all(onWrite("UPDATE ON snapshots", "NEW.state = 'ready'"), onWrite("DELETE ON snapshots", "")),
	} {
		t.Run(step.name, func(t *testing.T) {
			t.Parallel()
			b := newBreakable(t)
			b.create("a")
			x := b.launch("a", "echo ready; while [ ! -e go ]; do sleep 0.01; done; echo done")
			step.breaks(b)
			if _, _, err := b.Snapshots().Create(b.ctx, snapshot.Request{Source: "a", Name: "point", Memory: true}); err == nil {
				t.Fatal("Create succeeded")
			}
			b.mend()
			if all, _, err := b.Snapshots().List(b.ctx, snapshot.Query{}); err != nil || len(all) != 0 {
				t.Errorf("List = %+v, %v, want none", all, err)
			}
			b.sh("a", "touch go")
			if x := b.wait("a", x.Seq); *x.Exit.Code != 0 {
				t.Errorf("the command of before ended %+v", x.Exit)
			}
			b.restart() // which finishes what could not be undone
			b.until("only the sandbox is left", func() bool {
				kept, err := b.fake.Snapshots(b.ctx)
				disks, diskErr := b.disks.List()
				return err == nil && diskErr == nil && len(kept) == 0 && len(disks) == 1 && b.images.pinned() == 1
			})
			b.keep("a", "point")
		})
	}
}

// TestEveryStepOfACreateFromASnapshotCanBreak: nothing of the sandbox is left, and
// the snapshot stays.
func TestEveryStepOfACreateFromASnapshotCanBreak(t *testing.T) {
	for _, step := range []step{
		onDisks("Clone"),
		onDisks("Attach"),
		onPin(),
		onDriver("Restore"),
		afterDriver("Restore"),
		onDriver("Identify"),
		onWrite("UPDATE OF handle ON sandboxes", "NEW.handle IS NOT NULL"),
		moveTo(sandbox.Running),
		all(onDriver("Identify"), onDriver("Destroy")),
		all(onDriver("Restore"), onDisks("Remove")),
	} {
		t.Run(step.name, func(t *testing.T) {
			t.Parallel()
			b := newBreakable(t)
			b.create("a")
			b.sh("a", "echo kept > f")
			b.keep("a", "point")
			b.destroy("a")
			step.breaks(b)
			if _, err := b.from("b", "point"); err == nil {
				t.Fatal("Create succeeded")
			}
			b.mend()
			b.until("the sandbox is gone", func() bool {
				traces, err := b.fake.List(b.ctx)
				disks, diskErr := b.disks.List()
				return err == nil && diskErr == nil && len(traces) == 0 && len(disks) == 1 && b.images.pinned() == 1
			})
			if got, err := b.from("b", "point"); err != nil || got.State != sandbox.Running {
				t.Fatalf("the next Create = %s, %v", got.State, err)
			}
			if got := b.content("b", "/workspace/f"); got != "kept\n" {
				t.Errorf("it has %q", got)
			}
		})
	}
}

// TestADamagedSnapshotIsRefused: the create that finds out leaves nothing.
func TestADamagedSnapshotIsRefused(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	n := w.keep("a", "point")
	w.fake.DamageSnapshot(n.UID)
	if _, err := w.from("b", "point"); !errors.Is(err, errs.NotFound) {
		t.Errorf("Create from a damaged one = %v, want not found", err)
	}
	if err := w.fake.RemoveSnapshot(w.ctx, n.UID); err != nil {
		t.Fatal(err)
	}
	if _, err := w.from("b", "point"); !errors.Is(err, errs.Unavailable) {
		t.Errorf("Create from one whose memory is gone = %v, want unavailable", err)
	}
	if err := w.Snapshots().Remove(w.ctx, "point"); err != nil {
		t.Error(err)
	}
	w.destroy("a")
	w.nothingLeft()
}
