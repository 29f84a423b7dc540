//go:build root

package oci

import (
	"context"
	"os"
	"testing"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// A note that is damaged hides neither its sandbox nor another one.
func TestListWithADamagedNote(t *testing.T) {
	ctx := context.Background()
	m := newMachine(t, runsc)
	d := m.open(t)
	create := func() sandbox.UID {
		spec := testSpec(t, sandbox.GVisor)
		h, err := d.Create(ctx, spec)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = d.Destroy(ctx, h) })
		return spec.UID
	}
	damaged, whole := create(), create()
	if err := os.WriteFile(d.box(damaged).runFile(), []byte("{damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	list, err := d.List(ctx)
	if err != nil || len(list) != 2 {
		t.Fatalf("List = %+v, %v; want two", list, err)
	}
	for _, f := range list {
		switch f.UID {
		case damaged:
			if f.Err == nil || f.Status != (driver.Status{}) {
				t.Errorf("of the damaged one it says %+v", f)
			}
		case whole:
			if f.Err != nil || f.Status.Phase != driver.PhaseCreated {
				t.Errorf("of the other one it says %+v", f)
			}
		}
	}
}

// A host that loses its power can leave an empty copy of a handle that is
// in the store: its sandbox is listed as dead all the same.
func TestListOfADeadOneWithoutItsNote(t *testing.T) {
	ctx := context.Background()
	m := newMachine(t, runsc)
	d := m.open(t)
	spec := testSpec(t, sandbox.GVisor)
	h, err := d.Create(ctx, spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Destroy(ctx, h) })
	if err := d.Start(ctx, h); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(d.box(spec.UID).noteFile(), 0); err != nil {
		t.Fatal(err)
	}
	m.crash(t, spec.UID)
	if _, err := d.Wait(ctx, h); err != nil {
		t.Fatal(err)
	}
	list, err := d.List(ctx)
	if err != nil || len(list) != 1 || list[0].Err != nil || list[0].Status.Phase != driver.PhaseDead {
		t.Errorf("List = %+v, %v; want one that is dead", list, err)
	}
}
