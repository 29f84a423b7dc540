package core_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/storage"
)

// faultyDisks are disks of which one can be broken, until all its users let go of it.
type faultyDisks struct {
	storage.Storage

	mu    sync.Mutex
	fault *storage.Fault // guarded by mu
	full  bool           // the host has no room; guarded by mu
	over  func()         // hears that it is broken no more
}

func (d *faultyDisks) set(fault *storage.Fault, full bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fault, d.full = fault, full
}

func (d *faultyDisks) Faults() []storage.Fault {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fault == nil {
		return nil
	}
	f := *d.fault
	f.Users = slices.Clone(f.Users)
	return []storage.Fault{f}
}

func (d *faultyDisks) Admit() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.full {
		return errs.E(errs.Exhausted, "full")
	}
	return d.Storage.Admit()
}

func (d *faultyDisks) Writable(user sandbox.UID) error {
	for _, f := range d.Faults() {
		if slices.Contains(f.Users, user) {
			return f.Err()
		}
	}
	return nil
}

func (d *faultyDisks) Examine(user sandbox.UID) error { return d.Writable(user) }

func (d *faultyDisks) Detach(ctx context.Context, user, own sandbox.UID) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fault != nil {
		d.fault.Users = slices.DeleteFunc(d.fault.Users, func(uid sandbox.UID) bool { return uid == user })
		if len(d.fault.Users) == 0 {
			d.fault = nil
			d.over()
		}
	}
	return d.Storage.Detach(ctx, user, own)
}

// TestSandboxesOfABrokenDiskAreRestarted: of a disk that several share, all are, once
// there is room, and none else is.
func TestSandboxesOfABrokenDiskAreRestarted(t *testing.T) {
	var disks *faultyDisks
	w := newWorld(t, func(c *core.Config) {
		disks = &faultyDisks{Storage: c.Disks}
		c.Disks = disks
	})
	a, b, other := w.create("a"), w.create("b"), w.create("c")
	ran := w.launch("a", "echo ready; sleep 1000")
	fault := storage.Fault{Disk: sandbox.NewUID(), Shared: true, Users: []sandbox.UID{a.UID, b.UID}, Since: time.Now()}
	told := fault
	told.Users = slices.Clone(fault.Users)
	disks.over = func() { w.DiskFault(told, true) }
	disks.set(&fault, true)
	w.DiskFault(fault, false)

	for id, want := range map[string]int{"a": 1, "b": 1, "c": 0} {
		box := w.get(id)
		if len(box.Conditions) != want || want > 0 && (box.Conditions[0].Type != sandbox.ConditionDiskFailed || box.State != sandbox.Running) {
			t.Errorf("%s is %s with the conditions %+v", id, box.State, box.Conditions)
		}
	}
	if _, err := w.Files().Write(w.ctx, "a", "f", strings.NewReader("x"), sandbox.FileWrite{}); !errors.Is(err, errs.Unavailable) {
		t.Errorf("Write = %v, want unavailable", err)
	}
	if _, err := w.Sandboxes().Sleep(w.ctx, "a", true); !errors.Is(err, errs.Unavailable) {
		t.Errorf("Sleep = %v, want unavailable", err)
	}
	if len(disks.Faults()) == 0 {
		t.Fatal("it was repaired without room")
	}
	disks.set(&fault, false)
	w.until("the disk is repaired", func() bool {
		return slices.Contains(w.kinds("b"), event.DiskRepaired) && w.get("a").State == sandbox.Running && w.get("b").State == sandbox.Running
	})
	for _, id := range []string{"a", "b"} {
		box := w.get(id)
		if box.State != sandbox.Running || len(box.Conditions) > 0 {
			t.Errorf("%s is %s with the conditions %+v", id, box.State, box.Conditions)
		}
		kinds := w.kinds(id)
		for _, kind := range []string{event.DiskFailed, event.SandboxStopped, event.DiskRepaired} {
			if !slices.Contains(kinds, kind) {
				t.Errorf("the history of %s has %v, want %s too", id, kinds, kind)
			}
		}
	}
	if x := w.wait("a", ran.Seq); x.Exit == nil || x.Exit.Reason != sandbox.EndStopped || !strings.Contains(x.Exit.Message, "repair") {
		t.Errorf("the command ended as %+v", x.Exit)
	}
	if now := w.get("c"); !now.StartedAt.Equal(other.StartedAt) {
		t.Error("a sandbox that does not use the disk was restarted")
	}
}
