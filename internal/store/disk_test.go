package store

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

func TestKeptDisks(t *testing.T) {
	s, c := fresh(t)
	first := box("Box")
	first.Tenant, first.Spec.External.UserID = "acme", "u"
	first = create(t, s, first)
	move(t, s, first.UID, sandbox.Destroyed, Change{KeepDisk: true})

	disks, err := s.KeptDisks(t.Context())
	want := []KeptDisk{{IDKey: "box", Tenant: "acme", External: sandbox.External{UserID: "u"}, DiskUID: first.UID, At: c.Now()}}
	if diff := cmp.Diff(want, disks); err != nil || diff != "" {
		t.Errorf("KeptDisks: %v (-want +got):\n%s", err, diff)
	}

	owner := sandbox.External{UserID: "u", ProjectID: "another"}
	_, _, err = s.TakeKeptDisk(t.Context(), "box", "evil", owner)
	wantKind(t, "TakeKeptDisk by another tenant", err, errs.Conflict)
	_, _, err = s.TakeKeptDisk(t.Context(), "box", "acme", sandbox.External{UserID: "v"})
	wantKind(t, "TakeKeptDisk by another user", err, errs.Conflict)
	if _, ok, err := s.TakeKeptDisk(t.Context(), "other", "acme", owner); ok || err != nil {
		t.Errorf("TakeKeptDisk of nothing = %v, %v", ok, err)
	}
	uid, ok, err := s.TakeKeptDisk(t.Context(), "box", "acme", owner)
	if uid != first.UID || !ok || err != nil {
		t.Fatalf("TakeKeptDisk = %s, %v, %v, want %s", uid, ok, err, first.UID)
	}

	second := box("box")
	second.Tenant, second.Spec.External, second.DiskUID = "acme", owner, uid
	if err := s.CreateSandbox(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	if disks, err := s.KeptDisks(t.Context()); err != nil || len(disks) != 0 {
		t.Errorf("KeptDisks after the disk was taken = %v, %v", disks, err)
	}
	// The create is undone: the disk waits again, and only for its owner.
	move(t, s, second.UID, sandbox.Failed, Change{KeepDisk: true})
	if uid, ok, err := s.TakeKeptDisk(t.Context(), "box", "acme", owner); uid != first.UID || !ok || err != nil {
		t.Errorf("TakeKeptDisk after an undone create = %s, %v, %v", uid, ok, err)
	}

	thief := box("box")
	thief.DiskUID = first.UID
	wantKind(t, "CreateSandbox with somebody else's disk", s.CreateSandbox(t.Context(), thief), errs.Conflict)
	if got, err := s.Sandbox(t.Context(), "box"); err != nil || got.UID != second.UID {
		t.Errorf("the refused create changed the id's holder: %s, %v", got.UID, err)
	}

	wantKind(t, "KeepDisk of another disk under a used id",
		s.KeepDisk(t.Context(), KeptDisk{IDKey: "box", DiskUID: sandbox.NewUID()}), errs.Conflict)
	wantKind(t, "KeepDisk twice", s.KeepDisk(t.Context(), KeptDisk{IDKey: "box", DiskUID: first.UID}), nil)
	d, ok, err := s.DropKeptDisk(t.Context(), "box")
	if !ok || err != nil || d.DiskUID != first.UID || d.Tenant != "acme" {
		t.Errorf("DropKeptDisk = %+v, %v, %v", d, ok, err)
	}
	if _, ok, err := s.DropKeptDisk(t.Context(), "box"); ok || err != nil {
		t.Errorf("DropKeptDisk again = %v, %v", ok, err)
	}
}
