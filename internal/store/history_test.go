package store

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// boxOf stores a running sandbox of a tenant.
func boxOf(t *testing.T, s *Store, tenant, id string) sandbox.Sandbox {
	t.Helper()
	b := box(id)
	b.Tenant = tenant
	return create(t, s, b)
}

// ran adds a finished exec whose command and result are long.
func ran(t *testing.T, s *Store, b sandbox.UID, text string) int64 {
	t.Helper()
	e := sandbox.Exec{UID: sandbox.NewUID(), Box: b, Spec: sandbox.ExecSpec{Shell: text}}
	seq, err := s.CreateExec(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	e.Seq, e.Status, e.Exit = seq, sandbox.ExecDone, &sandbox.Exit{}
	e.StartedAt, e.FinishedAt, e.Result = s.now(), s.now(), []byte(`"`+text+`"`)
	if _, err := s.FinishStartedExec(t.Context(), e, sandbox.Event{Box: b, Kind: "ended", Payload: []byte(`{}`)}); err != nil {
		t.Fatal(err)
	}
	return seq
}

func historyOf(t *testing.T, s *Store, tenant string) int64 {
	t.Helper()
	all, err := s.HistoryBytes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return all[tenant]
}

// TestHistoryBytesOfATenantFollowEveryChange: commands count with their texts,
// events, and sandboxes once they have ended; what was forgotten does not.
func TestHistoryBytesOfATenantFollowEveryChange(t *testing.T) {
	s, c := fresh(t)
	text := strings.Repeat("x", 10_000)
	b := boxOf(t, s, "acme", "a")
	before := historyOf(t, s, "acme")
	ran(t, s, b.UID, text)
	one := historyOf(t, s, "acme") - before
	if one < 20_000 || one > 23_000 {
		t.Errorf("a command with %d bytes of text and of result counts %d", len(text), one)
	}
	// A long one is cut when it finishes.
	ran(t, s, b.UID, strings.Repeat("y", 100_000))
	if got := historyOf(t, s, "acme") - before - one; got < 100_000 || got > 125_000 {
		t.Errorf("a command of 100,000 bytes with such a result counts %d after its end", got)
	}
	beside := historyOf(t, s, "acme")
	unstarted := boxOf(t, s, "acme", "b")
	e := sandbox.Event{Box: unstarted.UID, Kind: "k", Payload: []byte(`"` + text + `"`)}
	if _, err := s.AppendEvent(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	if got := historyOf(t, s, "acme") - beside; got < 10_000 || got > 12_000 {
		t.Errorf("an event with 10,000 bytes counts %d", got)
	}
	other := boxOf(t, s, "", "c")
	ran(t, s, other.UID, "true")
	if got := historyOf(t, s, ""); got < 500 || got > 5_000 {
		t.Errorf("the history of no tenant is %d bytes", got)
	}
	beside = historyOf(t, s, "acme")
	move(t, s, unstarted.UID, sandbox.Failed, Change{})
	failed := historyOf(t, s, "acme")
	if failed <= beside {
		t.Errorf("a failed sandbox counts %d", failed-beside)
	}
	move(t, s, unstarted.UID, sandbox.Destroyed, Change{})
	if got := historyOf(t, s, "acme"); got != failed {
		t.Errorf("a failed sandbox that is destroyed counts %d bytes more", got-failed)
	}
	move(t, s, b.UID, sandbox.Destroyed, Change{})
	if _, err := s.Prune(t.Context(), c.advance(time.Second)); err != nil {
		t.Fatal(err)
	}
	if got := historyOf(t, s, "acme"); got != 0 {
		t.Errorf("%d bytes of history are left of a tenant without any", got)
	}
	// A sandbox goes with what its cascade takes along.
	d := boxOf(t, s, "acme", "d")
	if _, err := s.CreateExec(t.Context(), sandbox.Exec{UID: sandbox.NewUID(), Box: d.UID}); err != nil {
		t.Fatal(err)
	}
	move(t, s, d.UID, sandbox.Destroyed, Change{})
	if _, err := s.Prune(t.Context(), c.advance(time.Second)); err != nil {
		t.Fatal(err)
	}
	if got := historyOf(t, s, "acme"); got != 0 {
		t.Errorf("%d bytes of history are left after a sandbox that took a pending command along", got)
	}
}

// TestHistoryOfATenantIsEvictedOldestFirst: never another tenant's, what runs,
// or what is too young.
func TestHistoryOfATenantIsEvictedOldestFirst(t *testing.T) {
	s, c := fresh(t)
	beta := boxOf(t, s, "beta", "beta")
	ofBeta := ran(t, s, beta.UID, "true")
	live := boxOf(t, s, "acme", "live")
	pending, err := s.CreateExec(t.Context(), sandbox.Exec{UID: sandbox.NewUID(), Box: live.UID})
	if err != nil {
		t.Fatal(err)
	}
	c.advance(time.Second)
	ended := boxOf(t, s, "acme", "ended")
	first := ran(t, s, ended.UID, "first")
	move(t, s, ended.UID, sandbox.Destroyed, Change{})
	for i := range 2 * evictBatch {
		c.advance(time.Second)
		ran(t, s, live.UID, fmt.Sprint(i))
	}
	young := c.advance(time.Second)
	last := ran(t, s, live.UID, "young")

	gone, err := s.EvictHistory(t.Context(), "acme", young)
	if err != nil || gone.None() || !slices.Contains(gone.Execs, ExecKey{ended.UID, first}) || len(gone.Boxes) != 1 || gone.Boxes[0] != ended.UID || gone.Bytes != historyOf(t, s, "acme") {
		t.Fatalf("the first eviction took %+v, %v, want the oldest", gone, err)
	}
	if len(gone.Execs) > evictBatch || gone.Events > evictBatch {
		t.Errorf("one eviction took %d commands and %d events", len(gone.Execs), gone.Events)
	}
	if _, err := s.Exec(t.Context(), live.UID, pending+2*evictBatch); err != nil {
		t.Errorf("a younger command went before older ones: %v", err)
	}
	for rounds := 0; !gone.None(); rounds++ {
		if gone, err = s.EvictHistory(t.Context(), "acme", young); err != nil || rounds > 20 {
			t.Fatalf("evictions do not end: %+v, %v", gone, err)
		}
	}
	for _, kept := range []ExecKey{{live.UID, pending}, {live.UID, last}, {beta.UID, ofBeta}} {
		if _, err := s.Exec(t.Context(), kept.Box, kept.Seq); err != nil {
			t.Errorf("exec %+v was evicted: %v", kept, err)
		}
	}
	_, err = s.Exec(t.Context(), live.UID, last-1)
	wantKind(t, "the last old command", err, errs.NotFound)
	if gone.Bytes != historyOf(t, s, "acme") || gone.Bytes > 10_000 {
		t.Errorf("%d bytes are left", gone.Bytes)
	}
}

// TestHoldingsOfATenant: what runs and rests, the sizes of their disks, and kept
// disks.
func TestHoldingsOfATenant(t *testing.T) {
	s, _ := fresh(t)
	ctx := t.Context()
	if h, err := s.Holdings(ctx, "acme"); err != nil || h.Sandboxes != 0 || h.DiskBytes != 0 || len(h.KeptDisks) != 0 {
		t.Errorf("Holdings of nothing = %+v, %v", h, err)
	}
	make := func(tenant, id string, disk int64) sandbox.Sandbox {
		b := box(id)
		b.Tenant, b.Spec.Limits.DiskBytes = tenant, disk
		return create(t, s, b)
	}
	a := make("acme", "a", 5<<30)
	stopped := make("acme", "b", 3<<30)
	move(t, s, stopped.UID, sandbox.Stopped, Change{Why: asked})
	failed := make("acme", "c", 1<<40)
	move(t, s, failed.UID, sandbox.Failed, Change{})
	make("beta", "d", 1<<40)
	if h, err := s.Holdings(ctx, "acme"); err != nil || h.Sandboxes != 2 || h.DiskBytes != 8<<30 || len(h.KeptDisks) != 0 {
		t.Errorf("Holdings = %+v, %v, want two sandboxes with 8 GiB", h, err)
	}
	move(t, s, a.UID, sandbox.Destroyed, Change{KeepDisk: true, DiskUID: a.UID})
	if h, err := s.Holdings(ctx, "acme"); err != nil || h.Sandboxes != 1 || h.DiskBytes != 3<<30 || len(h.KeptDisks) != 1 || h.KeptDisks[0] != a.UID {
		t.Errorf("Holdings with a kept disk = %+v, %v", h, err)
	}
}
