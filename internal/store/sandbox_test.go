package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

func TestSandboxRoundTrip(t *testing.T) {
	s, c := fresh(t)
	want := box("Box-1")
	want.Tenant, want.Driver, want.ImageDigest, want.DiskUID = "acme", "oci", "sha256:1", want.UID
	want.Spec.Labels = map[string]string{"team": "a"}
	want.Spec.Ports = []int{80, 3000}
	want.Spec.ExecTimeout = 5 * time.Minute
	want.Spec.External = sandbox.External{UserID: "u", ProjectID: "p"}
	want.State = sandbox.Creating
	want.CreatedAt, want.UpdatedAt, want.LastActiveAt = c.Now(), c.Now(), c.Now()
	if err := s.CreateSandbox(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	for _, id := range []sandbox.ID{"Box-1", "box-1", "BOX-1"} {
		got, err := s.Sandbox(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("Sandbox(%s) (-want +got):\n%s", id, diff)
		}
	}

	at := c.advance(time.Second)
	got := move(t, s, want.UID, sandbox.Running, Change{Handle: []byte{0, 1}, ImageDigest: "sha256:2"})
	want.State, want.Handle, want.ImageDigest = sandbox.Running, []byte{0, 1}, "sha256:2"
	want.UpdatedAt, want.StartedAt, want.LastActiveAt = at, at, at
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Move (-want +got):\n%s", diff)
	}
	stored, err := s.SandboxByUID(t.Context(), want.UID)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, stored); diff != "" {
		t.Errorf("SandboxByUID after Move (-want +got):\n%s", diff)
	}
}

// TestMoves walks every pair of states: what CanBecome forbids is refused and
// changes nothing.
func TestMoves(t *testing.T) {
	s, _ := fresh(t)
	ways := map[sandbox.State][]sandbox.State{
		sandbox.Creating:  {},
		sandbox.Running:   {sandbox.Running},
		sandbox.Sleeping:  {sandbox.Running, sandbox.Sleeping},
		sandbox.Stopped:   {sandbox.Running, sandbox.Stopped},
		sandbox.Failed:    {sandbox.Failed},
		sandbox.Destroyed: {sandbox.Destroyed},
	}
	for _, from := range sandbox.States() {
		for _, to := range sandbox.States() {
			b := box(fmt.Sprintf("%s-%s", from, to))
			if err := s.CreateSandbox(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			for _, step := range ways[from] {
				move(t, s, b.UID, step, Change{Why: sandbox.Why{Cause: sandbox.CauseUndone, Reason: "on the way"}})
			}
			before, err := s.SandboxByUID(t.Context(), b.UID)
			if err != nil {
				t.Fatal(err)
			}
			if before.State != from {
				t.Fatalf("the way to %s ends in %s", from, before.State)
			}
			_, err = s.Move(t.Context(), b.UID, to, Change{Why: sandbox.Why{Cause: sandbox.CauseUndone, Reason: "test"}, Events: []sandbox.Event{{Box: b.UID, Kind: "moved"}}})
			after, getErr := s.SandboxByUID(t.Context(), b.UID)
			events, eventErr := s.Events(t.Context(), b.UID, 0, 0)
			if getErr != nil || eventErr != nil {
				t.Fatal(getErr, eventErr)
			}
			if from.CanBecome(to) {
				if err != nil || after.State != to || after.Reason != "test" || len(events) != 1 {
					t.Errorf("%s → %s: err %v, state %s, reason %q, %d events", from, to, err, after.State, after.Reason, len(events))
				}
				continue
			}
			wantKind(t, fmt.Sprintf("%s → %s", from, to), err, errs.WrongState)
			if diff := cmp.Diff(before, after); diff != "" || len(events) != 0 {
				t.Errorf("%s → %s was refused and changed something: %d events\n%s", from, to, len(events), diff)
			}
		}
	}
	_, err := s.Move(t.Context(), sandbox.NewUID(), sandbox.Running, Change{})
	wantKind(t, "Move of an unknown sandbox", err, errs.NotFound)
}

func TestEndedSandboxKeepsNoSecrets(t *testing.T) {
	for _, end := range []sandbox.State{sandbox.Failed, sandbox.Destroyed} {
		s, _ := fresh(t)
		b := create(t, s, box("a"))
		if err := s.SetHandle(t.Context(), b.UID, []byte("h")); err != nil {
			t.Fatal(err)
		}
		move(t, s, b.UID, end, Change{})
		got, err := s.SandboxByUID(t.Context(), b.UID)
		if err != nil {
			t.Fatal(err)
		}
		if got.Spec.Env != nil || got.Handle != nil {
			t.Errorf("%s: env %v, handle %q, want none", end, got.Spec.Env, got.Handle)
		}
	}
}

func TestIDs(t *testing.T) {
	s, _ := fresh(t)
	first := create(t, s, box("Alpha"))

	other := box("aLPHA")
	other.Tenant = "other"
	wantKind(t, "CreateSandbox with a live id in another case", s.CreateSandbox(t.Context(), other), errs.Conflict)
	wantKind(t, "CreateSandbox with a known uid", s.CreateSandbox(t.Context(), sandbox.Sandbox{UID: first.UID, ID: "b"}), errs.Conflict)

	move(t, s, first.UID, sandbox.Failed, Change{Why: sandbox.Why{Cause: sandbox.CauseUndone, Reason: "gone wrong"}})
	got, err := s.Sandbox(t.Context(), "alpha")
	if err != nil || got.UID != first.UID || got.Reason != "gone wrong" {
		t.Errorf("Sandbox of a failed id = %s %q, %v; want the failed one", got.UID, got.Reason, err)
	}

	second := create(t, s, box("alpha"))
	got, err = s.Sandbox(t.Context(), "Alpha")
	if err != nil || got.UID != second.UID {
		t.Errorf("Sandbox after the id was used again = %s, %v, want %s", got.UID, err, second.UID)
	}
	got, err = s.SandboxByUID(t.Context(), first.UID)
	if err != nil || got.State != sandbox.Destroyed || got.Reason != "gone wrong" {
		t.Errorf("the failed predecessor = %s %q, %v; want destroyed with its reason", got.State, got.Reason, err)
	}

	move(t, s, second.UID, sandbox.Destroyed, Change{})
	_, err = s.Sandbox(t.Context(), "alpha")
	wantKind(t, "Sandbox of a destroyed id", err, errs.NotFound)
	third := create(t, s, box("ALPHA"))
	seq, err := s.CreateExec(t.Context(), sandbox.Exec{UID: sandbox.NewUID(), Box: third.UID})
	if err != nil || seq != 1 {
		t.Errorf("first exec of a reused id = %d, %v, want 1", seq, err)
	}
}

func TestUpdateSpec(t *testing.T) {
	s, c := fresh(t)
	b := create(t, s, box("a"))
	c.advance(time.Minute)
	got, err := s.UpdateSpec(t.Context(), b.UID, func(spec *sandbox.Spec) error {
		spec.Labels = map[string]string{"k": "v"}
		spec.External.UserID = "u2"
		return nil
	}, sandbox.Event{Box: b.UID, Kind: "updated"})
	if err != nil {
		t.Fatal(err)
	}
	if !got.UpdatedAt.Equal(c.Now()) || got.Spec.Labels["k"] != "v" || got.Spec.Env["SECRET"] != "s3cret" {
		t.Errorf("UpdateSpec = %+v", got)
	}
	items, _, err := s.Sandboxes(t.Context(), Query{Labels: map[string]string{"k": "v"}, External: sandbox.External{UserID: "u2"}})
	if err != nil || len(items) != 1 {
		t.Errorf("Sandboxes by the changed label and user = %d, %v, want 1", len(items), err)
	}

	_, err = s.UpdateSpec(t.Context(), b.UID, func(spec *sandbox.Spec) error {
		spec.Image = "other"
		return errs.E(errs.Invalid, "no")
	})
	wantKind(t, "UpdateSpec with a refusing function", err, errs.Invalid)
	if after, err := s.SandboxByUID(t.Context(), b.UID); err != nil || after.Spec.Image != "base" {
		t.Errorf("a refused update left image %q, %v", after.Spec.Image, err)
	}
	move(t, s, b.UID, sandbox.Destroyed, Change{})
	nothing := func(*sandbox.Spec) error { return nil }
	_, err = s.UpdateSpec(t.Context(), b.UID, nothing)
	wantKind(t, "UpdateSpec of a destroyed sandbox", err, errs.WrongState)
	_, err = s.UpdateSpec(t.Context(), sandbox.NewUID(), nothing)
	wantKind(t, "UpdateSpec of an unknown sandbox", err, errs.NotFound)
	wantKind(t, "SetHandle of an unknown sandbox", s.SetHandle(t.Context(), sandbox.NewUID(), nil), errs.NotFound)
}

// TestPanicInAChange must not leave the writing connection in a transaction.
func TestPanicInAChange(t *testing.T) {
	s, _ := fresh(t)
	b := create(t, s, box("a"))
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		_, err := s.UpdateSpec(t.Context(), b.UID, func(*sandbox.Spec) error { panic("a bug") })
		t.Errorf("UpdateSpec returned %v", err)
	}()
	move(t, s, b.UID, sandbox.Stopped, Change{Why: asked})
}

func TestTouchOnlyForward(t *testing.T) {
	s, c := fresh(t)
	b := create(t, s, box("a"))
	later := c.Now().Add(time.Hour)
	for _, at := range []time.Time{later, c.Now()} {
		if err := s.Touch(t.Context(), b.UID, at); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.SandboxByUID(t.Context(), b.UID)
	if err != nil || !got.LastActiveAt.Equal(later) {
		t.Errorf("LastActiveAt = %v, %v, want %v", got.LastActiveAt, err, later)
	}
	if err := s.Touch(t.Context(), sandbox.NewUID(), later); err != nil {
		t.Errorf("Touch of an unknown sandbox = %v", err)
	}
}

// TestNoSandboxRestsWithoutAReason: a sandbox comes to rest for a reason that its users
// can be told, whatever the way, or because somebody asked for just that.
func TestNoSandboxRestsWithoutAReason(t *testing.T) {
	s, _ := fresh(t)
	b := create(t, s, box("a"))
	explained := sandbox.Why{Cause: sandbox.CauseInterrupted, Reason: "it broke off"}
	for _, to := range []sandbox.State{sandbox.Stopped, sandbox.Sleeping} {
		for _, why := range []sandbox.Why{{}, {Reason: "only words"}, {Cause: sandbox.CauseInterrupted}, {Cause: sandbox.CauseIdle}, {Cause: sandbox.CauseDied}} {
			_, err := s.Move(t.Context(), b.UID, to, Change{Why: why})
			wantKind(t, fmt.Sprintf("Move to %s for %+v", to, why), err, errs.Internal)
			_, err = s.MoveAll(t.Context(), []Moving{{UID: b.UID, To: to, Change: Change{Why: why}}})
			wantKind(t, fmt.Sprintf("MoveAll to %s for %+v", to, why), err, errs.Internal)
		}
	}
	if got, err := s.SandboxByUID(t.Context(), b.UID); err != nil || got.State != sandbox.Running {
		t.Fatalf("it is %s, %v", got.State, err)
	}
	move(t, s, b.UID, sandbox.Sleeping, Change{Why: sandbox.Why{Cause: sandbox.CauseSleep}})
	_, err := s.Move(t.Context(), b.UID, sandbox.Stopped, Change{Why: sandbox.Why{Cause: sandbox.CauseSleep}})
	wantKind(t, "a stop in the place of a sleep", err, errs.Internal)
	move(t, s, b.UID, sandbox.Stopped, Change{Why: explained})
	_, err = s.Restate(t.Context(), b.UID, Change{Why: sandbox.Why{Cause: sandbox.CauseRollback}})
	wantKind(t, "Restate", err, errs.Internal)
	if got, err := s.Restate(t.Context(), b.UID, Change{Why: explained, Handle: []byte{}}); err != nil || got.Why() != explained {
		t.Errorf("Restate = %+v, %v", got.Why(), err)
	}
}
