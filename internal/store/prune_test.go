package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

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
