package store

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store/column"
)

func snapshotOf(tenant, name string) sandbox.Snapshot {
	b := box("source")
	return sandbox.Snapshot{
		UID: sandbox.NewUID(), Name: name, Tenant: tenant, Source: b.ID, SourceUID: b.UID, Spec: b.Spec,
		ImageDigest: "digest", Driver: "oci", Memory: true,
	}
}

func TestSnapshots(t *testing.T) {
	s, clock := fresh(t)
	ctx := t.Context()
	n := snapshotOf("acme", "first")
	n.Spec.Env = map[string]string{"SECRET": "xyzzy"}
	if err := s.CreateSnapshot(ctx, n); err != nil {
		t.Fatal(err)
	}
	n.State, n.CreatedAt = sandbox.SnapshotCreating, column.FromMicros(column.Micros(clock.Now()))
	got, err := s.SnapshotByUID(ctx, n.UID)
	if diff := cmp.Diff(n, got); err != nil || diff != "" {
		t.Errorf("SnapshotByUID = %v (-want +got):\n%s", err, diff)
	}
	var spec, env string
	if err := s.reads.Row(ctx, `SELECT spec, env FROM snapshots WHERE uid = $1`, n.UID).Scan(&spec, &env); err != nil || strings.Contains(spec+env, "xyzzy") || env == "" {
		t.Errorf("the row has %q and %q, %v: want the env sealed", spec, env, err)
	}

	// Nobody sees one that is not ready, but it counts.
	acme, other := "acme", "other"
	if _, err := s.Snapshot(ctx, &acme, "first"); !errors.Is(err, errs.NotFound) {
		t.Errorf("Snapshot of one that is not ready = %v, want not found", err)
	}
	if all, _, err := s.Snapshots(ctx, SnapshotQuery{Tenant: &acme}); err != nil || len(all) != 0 {
		t.Errorf("Snapshots = %v, %v, want none", all, err)
	}
	if use, err := s.SnapshotUse(ctx, acme); err != nil || use != (SnapshotUse{Count: 1}) {
		t.Errorf("SnapshotUse = %+v, %v, want one", use, err)
	}
	if err := s.ReadySnapshot(ctx, n.UID, 10, 20); err != nil {
		t.Fatal(err)
	}
	wantKind(t, "ReadySnapshot again", s.ReadySnapshot(ctx, n.UID, 10, 20), errs.NotFound)
	n.State, n.DiskBytes, n.MemoryBytes = sandbox.SnapshotReady, 10, 20
	got, err = s.Snapshot(ctx, &acme, "first")
	if diff := cmp.Diff(n, got); err != nil || diff != "" {
		t.Errorf("Snapshot = %v (-want +got):\n%s", err, diff)
	}
	if _, err := s.Snapshot(ctx, &other, "first"); !errors.Is(err, errs.NotFound) {
		t.Errorf("Snapshot of another tenant = %v, want not found", err)
	}

	second := snapshotOf("acme", "second")
	if err := errors.Join(s.CreateSnapshot(ctx, second), s.ReadySnapshot(ctx, second.UID, 1, 0)); err != nil {
		t.Fatal(err)
	}
	page, more, err := s.Snapshots(ctx, SnapshotQuery{Tenant: &acme, Source: "source", Limit: 1})
	if err != nil || !more || len(page) != 1 || page[0].UID != second.UID {
		t.Errorf("Snapshots = %+v, %v, want the newest", page, err)
	}
	if page, _, err = s.Snapshots(ctx, SnapshotQuery{Before: page[0].UID, Limit: 1}); err != nil || len(page) != 1 || page[0].UID != n.UID {
		t.Errorf("Snapshots, next page = %+v, %v", page, err)
	}
	if page, _, err = s.Snapshots(ctx, SnapshotQuery{Source: "another"}); err != nil || len(page) != 0 {
		t.Errorf("Snapshots of another sandbox = %+v, %v", page, err)
	}
	if use, err := s.SnapshotUse(ctx, acme); err != nil || use != (SnapshotUse{2, 31}) {
		t.Errorf("SnapshotUse = %+v, %v", use, err)
	}

	wantKind(t, "DropSnapshot of one that is ready", s.DropSnapshot(ctx, n.UID), errs.NotFound)
	for range 2 {
		if err := s.RemoveSnapshot(ctx, n.UID); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Snapshot(ctx, &acme, "first"); !errors.Is(err, errs.NotFound) {
		t.Errorf("Snapshot of one that is being removed = %v, want not found", err)
	}
	if unready, err := s.UnreadySnapshots(ctx); err != nil || len(unready) != 1 || unready[0].UID != n.UID || unready[0].State != sandbox.SnapshotRemoving {
		t.Errorf("UnreadySnapshots = %+v, %v", unready, err)
	}
	if use, err := s.SnapshotUse(ctx, acme); err != nil || use != (SnapshotUse{1, 1}) {
		t.Errorf("SnapshotUse = %+v, %v", use, err)
	}
	if err := s.DropSnapshot(ctx, n.UID); err != nil {
		t.Fatal(err)
	}
	wantKind(t, "RemoveSnapshot of one that is gone", s.RemoveSnapshot(ctx, n.UID), errs.NotFound)
}

// TestSnapshotNames: a name is one snapshot's of a tenant, until that is removed.
func TestSnapshotNames(t *testing.T) {
	s, _ := fresh(t)
	ctx := t.Context()
	make := func(tenant string) sandbox.UID {
		n := snapshotOf(tenant, "name")
		if err := errors.Join(s.CreateSnapshot(ctx, n), s.ReadySnapshot(ctx, n.UID, 1, 1)); err != nil {
			t.Fatal(err)
		}
		return n.UID
	}
	first := make("acme")
	wantKind(t, "CreateSnapshot of a name that is taken", s.CreateSnapshot(ctx, snapshotOf("acme", "name")), errs.Conflict)
	if n, err := s.Snapshot(ctx, nil, "name"); err != nil || n.UID != first {
		t.Errorf("Snapshot of any tenant = %s, %v", n.UID, err)
	}
	make("other")
	_, err := s.Snapshot(ctx, nil, "name")
	wantKind(t, "Snapshot of a name that two tenants have", err, errs.Conflict)
	if err := s.RemoveSnapshot(ctx, first); err != nil {
		t.Fatal(err)
	}
	make("acme")
}

// TestMoveAll: of several moves all happen, or none.
func TestMoveAll(t *testing.T) {
	s, _ := fresh(t)
	a, b := box("a"), box("b")
	if err := errors.Join(s.CreateSandbox(t.Context(), a), s.CreateSandbox(t.Context(), b)); err != nil {
		t.Fatal(err)
	}
	moved, err := s.MoveAll(t.Context(), []Moving{{UID: a.UID, To: sandbox.Running}, {UID: b.UID, To: sandbox.Running, Change: Change{Handle: []byte("h")}}})
	if err != nil || len(moved) != 2 || moved[0].State != sandbox.Running || string(moved[1].Handle) != "h" {
		t.Fatalf("MoveAll = %+v, %v", moved, err)
	}
	_, err = s.MoveAll(t.Context(), []Moving{{UID: a.UID, To: sandbox.Stopped, Change: Change{Why: asked}}, {UID: b.UID, To: sandbox.Creating}})
	wantKind(t, "MoveAll with a move that is not allowed", err, errs.WrongState)
	if got, err := s.SandboxByUID(t.Context(), a.UID); err != nil || got.State != sandbox.Running {
		t.Errorf("after it the first is %s, %v, want running", got.State, err)
	}
}

// TestRestate: only a stopped sandbox is given another reason.
func TestRestate(t *testing.T) {
	s, _ := fresh(t)
	b := box("a")
	if err := s.CreateSandbox(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	why := Change{Why: sandbox.Why{Cause: sandbox.CauseRollback, Reason: "why"}, Handle: []byte{}}
	_, err := s.Restate(t.Context(), b.UID, why)
	wantKind(t, "Restate of one that is being made", err, errs.WrongState)
	if _, err := s.MoveAll(t.Context(), []Moving{{UID: b.UID, To: sandbox.Running, Change: Change{Handle: []byte("h")}}, {UID: b.UID, To: sandbox.Stopped, Change: Change{Why: asked}}}); err != nil {
		t.Fatal(err)
	}
	why.Events = []sandbox.Event{event.New(b.UID, "ann", event.Rollback{Name: "point"})}
	if _, err := s.Restate(t.Context(), b.UID, why); err != nil {
		t.Fatal(err)
	}
	if events, err := s.Events(t.Context(), b.UID, 0, 0); err != nil || len(events) != 1 || events[0].Kind != event.SandboxRolled || events[0].Actor != "ann" || events[0].Time.IsZero() {
		t.Errorf("its history has %+v, %v", events, err)
	}
	if got, err := s.SandboxByUID(t.Context(), b.UID); err != nil || got.Why() != why.Why || got.Handle != nil {
		t.Errorf("the sandbox is stopped for %+v with the handle %q, %v", got.Why(), got.Handle, err)
	}
}
