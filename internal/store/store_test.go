package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// clock is a time that only tests move.
type clock struct {
	mu  sync.Mutex
	now time.Time // guarded by mu
}

func newClock() *clock { return &clock{now: time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	return c.now
}

func open(t testing.TB, path string, c *clock) *Store {
	t.Helper()
	s, err := Open(t.Context(), Config{Path: path, Now: c.Now})
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

func fresh(t testing.TB) (*Store, *clock) {
	t.Helper()
	c := newClock()
	return open(t, filepath.Join(t.TempDir(), "cubby.db"), c), c
}

func box(id string) sandbox.Sandbox {
	return sandbox.Sandbox{UID: sandbox.NewUID(), ID: sandbox.ID(id), Spec: sandbox.Spec{
		Image: "base", Isolation: sandbox.GVisor, Env: map[string]string{"SECRET": "s3cret"},
		Limits: sandbox.Limits{MemoryBytes: 1 << 30, CPUs: 1.5}, Network: sandbox.Policy{Mode: sandbox.NetworkNone},
	}}
}

// create stores a sandbox and moves it to Running.
func create(t testing.TB, s *Store, b sandbox.Sandbox) sandbox.Sandbox {
	t.Helper()
	if err := s.CreateSandbox(t.Context(), b); err != nil {
		t.Fatalf("CreateSandbox %s: %v", b.ID, err)
	}
	return move(t, s, b.UID, sandbox.Running, Change{})
}

func move(t testing.TB, s *Store, uid sandbox.UID, to sandbox.State, c Change) sandbox.Sandbox {
	t.Helper()
	b, err := s.Move(t.Context(), uid, to, c)
	if err != nil {
		t.Fatalf("Move to %s: %v", to, err)
	}
	return b
}

func wantKind(t testing.TB, what string, err error, want error) {
	t.Helper()
	if want == nil && err != nil || want != nil && !errors.Is(err, want) {
		t.Errorf("%s = %v, want %v", what, err, want)
	}
}

func TestSandboxRoundTrip(t *testing.T) {
	s, c := fresh(t)
	want := box("Box-1")
	want.Tenant, want.ImageDigest, want.DiskUID = "acme", "sha256:1", want.UID
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
				move(t, s, b.UID, step, Change{Reason: "on the way"})
			}
			before, err := s.SandboxByUID(t.Context(), b.UID)
			if err != nil {
				t.Fatal(err)
			}
			if before.State != from {
				t.Fatalf("the way to %s ends in %s", from, before.State)
			}
			_, err = s.Move(t.Context(), b.UID, to, Change{Reason: "test", Events: []sandbox.Event{{Box: b.UID, Kind: "moved"}}})
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

	move(t, s, first.UID, sandbox.Failed, Change{Reason: "gone wrong"})
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

func TestList(t *testing.T) {
	s, _ := fresh(t)
	var uids []sandbox.UID // oldest first
	for i := range 12 {
		b := box(fmt.Sprintf("b%d", i))
		// Unlike random ULIDs of one millisecond these have a known order.
		b.UID = sandbox.UID(fmt.Sprintf("01kannnnnnnnnnnnnnnnnnnn%02d", i))
		b.Tenant = []string{"x", "y"}[i%2]
		b.Spec.Labels = map[string]string{"third": fmt.Sprint(i % 3), "all": "1"}
		b.Spec.External = sandbox.External{UserID: fmt.Sprint(i % 4), ProjectID: "p", WorkspaceID: "w"}
		create(t, s, b)
		uids = append(uids, b.UID)
	}
	move(t, s, uids[0], sandbox.Stopped, Change{})
	move(t, s, uids[1], sandbox.Failed, Change{})
	move(t, s, uids[2], sandbox.Destroyed, Change{})

	x, none := "x", ""
	for _, tt := range []struct {
		name  string
		query Query
		want  []int
	}{
		{"all", Query{}, []int{11, 10, 9, 8, 7, 6, 5, 4, 3, 1, 0}},
		{"tenant", Query{Tenant: &x}, []int{10, 8, 6, 4, 0}},
		{"no tenant", Query{Tenant: &none}, nil},
		{"state", Query{States: []sandbox.State{sandbox.Stopped}}, []int{0}},
		{"states", Query{States: []sandbox.State{sandbox.Stopped, sandbox.Failed}}, []int{1, 0}},
		{"destroyed", Query{States: []sandbox.State{sandbox.Destroyed}}, []int{2}},
		{"label", Query{Labels: map[string]string{"third": "0"}}, []int{9, 6, 3, 0}},
		{"labels", Query{Labels: map[string]string{"third": "1", "all": "1"}}, []int{10, 7, 4, 1}},
		{"label of none", Query{Labels: map[string]string{"third": "9"}}, nil},
		{"external user", Query{External: sandbox.External{UserID: "3"}}, []int{11, 7, 3}},
		{"external all", Query{External: sandbox.External{UserID: "3", ProjectID: "p", WorkspaceID: "w"}}, []int{11, 7, 3}},
		{"everything at once", Query{Tenant: &x, Labels: map[string]string{"third": "1"}, External: sandbox.External{UserID: "2"},
			States: []sandbox.State{sandbox.Running}}, []int{10}},
	} {
		for _, size := range []int{0, 1, 2, 100} {
			var got []int
			q := tt.query
			q.Limit = size
			for {
				items, next, err := s.Sandboxes(t.Context(), q)
				if err != nil {
					t.Fatalf("%s, pages of %d: %v", tt.name, size, err)
				}
				if size > 0 && len(items) > size {
					t.Fatalf("%s: a page of %d, want at most %d", tt.name, len(items), size)
				}
				for _, b := range items {
					var i int
					fmt.Sscanf(string(b.ID), "b%d", &i)
					got = append(got, i)
				}
				if next == "" {
					break
				}
				q.After = next
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("%s, pages of %d (-want +got):\n%s", tt.name, size, diff)
			}
		}
	}
	_, _, err := s.Sandboxes(t.Context(), Query{After: "nonsense"})
	wantKind(t, "a malformed cursor", err, errs.Invalid)

	n, err := s.CountSandboxes(t.Context(), sandbox.Running, sandbox.Failed, sandbox.Destroyed)
	if err != nil || n != 11 {
		t.Errorf("CountSandboxes = %d, %v, want 11", n, err)
	}
}

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

func TestIdempotency(t *testing.T) {
	s, _ := fresh(t)
	claim := func(principal, key, hash string) (*Claim, error) {
		return s.Idempotency(t.Context(), principal, key, hash)
	}
	first, err := claim("p", "k", "h")
	if err != nil {
		t.Fatal(err)
	}
	if _, done := first.Result(); done {
		t.Fatal("the first claim has a result")
	}
	_, err = claim("p", "k", "h")
	wantKind(t, "a repetition while the first runs", err, errs.Conflict)
	if errs.Public(err).RetryAfter == 0 {
		t.Error("a repetition while the first runs does not say when to try again")
	}
	_, err = claim("p", "k", "other")
	wantKind(t, "the key with another request", err, errs.Conflict)
	if errs.Public(err).RetryAfter != 0 {
		t.Error("the key with another request asks to try again")
	}
	if _, err := claim("q", "k", "other"); err != nil {
		t.Errorf("another principal's key: %v", err)
	}

	if err := first.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if first, err = claim("p", "k", "other"); err != nil {
		t.Fatalf("a released key: %v", err)
	}
	b := box("a")
	if err := s.CreateSandbox(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	move(t, s, b.UID, sandbox.Running, Change{Claim: first})
	again, err := claim("p", "k", "other")
	if err != nil {
		t.Fatal(err)
	}
	if result, done := again.Result(); !done || result != string(b.UID) {
		t.Errorf("Result = %q, %v, want the sandbox's uid", result, done)
	}
	wantKind(t, "Complete twice", first.Complete(t.Context(), "x"), errs.Internal)
	if err := first.Release(t.Context()); err != nil {
		t.Errorf("Release after Complete = %v", err)
	}
	if again, err = claim("p", "k", "other"); err != nil {
		t.Fatal(err)
	}
	if _, done := again.Result(); !done {
		t.Error("Release took back a completed claim")
	}
}

func TestUnfinishedClaimsEndWithTheProcess(t *testing.T) {
	c := newClock()
	path := filepath.Join(t.TempDir(), "cubby.db")
	s := open(t, path, c)
	done, err := s.Idempotency(t.Context(), "p", "done", "h")
	if err != nil {
		t.Fatal(err)
	}
	if err := done.Complete(t.Context(), "r"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Idempotency(t.Context(), "p", "cut off", "h"); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, path, c)
	for key, wantDone := range map[string]bool{"done": true, "cut off": false} {
		claim, err := s.Idempotency(t.Context(), "p", key, "h")
		if err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		if _, got := claim.Result(); got != wantDone {
			t.Errorf("%s: done = %v, want %v", key, got, wantDone)
		}
	}
}

func TestEvents(t *testing.T) {
	s, c := fresh(t)
	a, b := sandbox.NewUID(), sandbox.NewUID()
	var cursors []int64
	for i, box := range []sandbox.UID{a, b, a} {
		cursor, err := s.AppendEvent(t.Context(), sandbox.Event{Box: box, Kind: fmt.Sprint("k", i), Actor: "me", Payload: []byte(`{"n":1}`)})
		if err != nil {
			t.Fatal(err)
		}
		cursors = append(cursors, cursor)
	}
	got, err := s.Events(t.Context(), a, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := []sandbox.Event{
		{Cursor: cursors[0], Box: a, Kind: "k0", Actor: "me", Payload: []byte(`{"n":1}`), Time: c.Now()},
		{Cursor: cursors[2], Box: a, Kind: "k2", Actor: "me", Payload: []byte(`{"n":1}`), Time: c.Now()},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Events of one (-want +got):\n%s", diff)
	}
	for _, tt := range []struct {
		box   sandbox.UID
		after int64
		limit int
		want  int
	}{{"", 0, 0, 3}, {"", cursors[0], 0, 2}, {"", 0, 2, 2}, {a, cursors[0], 0, 1}, {a, cursors[2], 0, 0}} {
		got, err := s.Events(t.Context(), tt.box, tt.after, tt.limit)
		if err != nil || len(got) != tt.want {
			t.Errorf("Events(%q, %d, %d) = %d, %v, want %d", tt.box, tt.after, tt.limit, len(got), err, tt.want)
		}
	}
}

func TestPrune(t *testing.T) {
	s, c := fresh(t)
	kept := create(t, s, box("kept"))
	oldSeq := finished(t, s, kept.UID)
	failed := create(t, s, box("failed"))
	move(t, s, failed.UID, sandbox.Failed, Change{})
	var want []sandbox.UID
	for i := range pruneBatch + 5 {
		b := create(t, s, box(fmt.Sprint("old", i)))
		finished(t, s, b.UID)
		move(t, s, b.UID, sandbox.Destroyed, Change{Events: []sandbox.Event{{Box: b.UID, Kind: "destroyed"}}})
		want = append(want, b.UID)
	}
	want = append(want, failed.UID)
	claim, err := s.Idempotency(t.Context(), "p", "k", "h")
	if err != nil {
		t.Fatal(err)
	}
	if err := claim.Complete(t.Context(), "r"); err != nil {
		t.Fatal(err)
	}
	before := c.advance(time.Hour)
	young := create(t, s, box("young"))
	move(t, s, young.UID, sandbox.Destroyed, Change{Events: []sandbox.Event{{Box: young.UID, Kind: "destroyed"}}})
	pending, err := s.CreateExec(t.Context(), sandbox.Exec{UID: sandbox.NewUID(), Box: kept.UID})
	if err != nil {
		t.Fatal(err)
	}

	got, err := s.Prune(t.Context(), before)
	if err != nil {
		t.Fatal(err)
	}
	set := func(uids []sandbox.UID) map[sandbox.UID]bool {
		m := map[sandbox.UID]bool{}
		for _, uid := range uids {
			m[uid] = true
		}
		return m
	}
	if diff := cmp.Diff(set(want), set(got)); diff != "" || len(got) != len(want) {
		t.Errorf("Prune returned %d, want %d (-want +got):\n%s", len(got), len(want), diff)
	}
	_, err = s.SandboxByUID(t.Context(), failed.UID)
	wantKind(t, "SandboxByUID after Prune", err, errs.NotFound)
	_, err = s.Exec(t.Context(), kept.UID, oldSeq)
	wantKind(t, "an old exec of a live sandbox", err, errs.NotFound)
	if _, err := s.Exec(t.Context(), kept.UID, pending); err != nil {
		t.Errorf("an unfinished exec was pruned: %v", err)
	}
	for _, uid := range []sandbox.UID{kept.UID, young.UID} {
		if _, err := s.SandboxByUID(t.Context(), uid); err != nil {
			t.Errorf("%s was pruned: %v", uid, err)
		}
	}
	events, err := s.Events(t.Context(), "", 0, 0)
	if err != nil || len(events) != 1 || events[0].Box != young.UID {
		t.Errorf("events after Prune = %v, %v, want the young one's", events, err)
	}
	if again, err := s.Idempotency(t.Context(), "p", "k", "another request"); err != nil {
		t.Errorf("an old idempotency key is not free: %v, %v", again, err)
	}
	if got, err := s.Prune(t.Context(), before); err != nil || len(got) != 0 {
		t.Errorf("Prune again = %v, %v", got, err)
	}
}

func TestFilesAreOnlyForTheDaemon(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	s := open(t, filepath.Join(dir, "cubby.db"), newClock())
	create(t, s, box("a"))
	for _, name := range []string{"", "cubby.db", "cubby.db-wal", "cubby.db-shm"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%q has mode %v", name, info.Mode())
		}
	}
}

func TestClosed(t *testing.T) {
	s, _ := fresh(t)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close again = %v", err)
	}
	_, err := s.Sandbox(t.Context(), "a")
	wantKind(t, "a read after Close", err, errs.Unavailable)
	wantKind(t, "a write after Close", s.CreateSandbox(t.Context(), box("a")), errs.Unavailable)
	wantKind(t, "Ping after Close", s.Ping(t.Context()), errs.Unavailable)
}

func TestCanceledContext(t *testing.T) {
	s, _ := fresh(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wantKind(t, "CreateSandbox", s.CreateSandbox(ctx, box("a")), context.Canceled)
	_, err := s.Sandbox(ctx, "a")
	wantKind(t, "Sandbox", err, context.Canceled)
	if _, err := s.Sandbox(t.Context(), "a"); !errors.Is(err, errs.NotFound) {
		t.Errorf("a canceled create left %v", err)
	}
}

// TestSecretsLeaveTheFiles looks for secrets in the raw files.
func TestSecretsLeaveTheFiles(t *testing.T) {
	c := newClock()
	path := filepath.Join(t.TempDir(), "cubby.db")
	s := open(t, path, c)
	b := box("a")
	b.Spec.Env = map[string]string{"TOKEN": "box-secret-value"}
	b = create(t, s, b)
	e := sandbox.Exec{UID: sandbox.NewUID(), Box: b.UID, Spec: sandbox.ExecSpec{Shell: "true", Env: map[string]string{"T": "exec-secret-value"}}}
	seq, err := s.CreateExec(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.StartExec(t.Context(), b.UID, seq, c.Now()); err != nil {
		t.Fatal(err)
	}
	move(t, s, b.UID, sandbox.Destroyed, Change{})
	if err := s.Close(); err != nil { // checkpoints and removes the WAL
		t.Fatal(err)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"box-secret-value", "exec-secret-value"} {
		if strings.Contains(string(raw), secret) {
			t.Errorf("%s is still in the file", secret)
		}
	}
}
