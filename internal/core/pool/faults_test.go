package pool_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
)

// TestFaultsOfEachStep: a member that cannot be made leaves nothing, is tried again
// later and later, and is a problem when that lasts.
func TestFaultsOfEachStep(t *testing.T) {
	for _, method := range []string{"Create", "Start", "DialGuest"} {
		t.Run(method, func(t *testing.T) {
			w := newWorld(t, kind(1))
			w.faults.SetFail(method, errs.E(errs.Unavailable, "down"))
			w.Turn(w.ctx)
			w.nothingLeft()
			w.wantReady(0)
			var pauses []time.Duration
			for range 5 {
				again := w.Turn(w.ctx)
				pauses = append(pauses, again)
				w.pass(again)
				w.Turn(w.ctx)
			}
			if !slices.IsSorted(pauses) || pauses[0] <= 0 {
				t.Errorf("pauses %v, want longer and longer ones", pauses)
			}
			w.pass(time.Minute)
			if err := w.Problem(); !errors.Is(err, errs.Unavailable) {
				t.Errorf("after minutes of failures Problem = %v, want unavailable", err)
			}
			w.faults.SetFail(method, nil)
			w.pass(time.Hour)
			w.Turn(w.ctx)
			w.wantReady(1)
			if err := w.Problem(); err != nil {
				t.Errorf("Problem of a full pool = %v", err)
			}
		})
	}
}

// TestOneFailureIsNoProblem however long ago it is.
func TestOneFailureIsNoProblem(t *testing.T) {
	w := newWorld(t, kind(1))
	w.faults.SetFail("Start", errs.E(errs.Unavailable, "down"))
	w.Turn(w.ctx)
	w.pass(time.Hour)
	if err := w.Problem(); err != nil {
		t.Errorf("Problem = %v", err)
	}
}

// TestWhatAHostLacksForAnOptionalKindIsNoProblem: another kind's is.
func TestWhatAHostLacksForAnOptionalKindIsNoProblem(t *testing.T) {
	for _, optional := range []bool{true, false} {
		k := kind(1)
		k.Optional = optional
		w := newWorld(t, k)
		w.set(func() { w.digest = "" })
		for range 10 {
			w.Turn(w.ctx)
			w.pass(time.Minute)
		}
		if err := w.Problem(); (err == nil) != optional {
			t.Errorf("optional %t: without the image Problem = %v", optional, err)
		}
		w.set(func() { w.digest = digest })
		w.pass(time.Hour)
		w.Turn(w.ctx)
		w.wantReady(1)
	}
}

// TestWhatCannotBeRemovedIsTheReconcilers: it is told, and holds nothing any more.
func TestWhatCannotBeRemovedIsTheReconcilers(t *testing.T) {
	w, m := taken(t)
	w.faults.SetFail("Destroy", errs.E(errs.Unavailable, "down"))
	w.Discard(m)
	w.until("the member is not held", func() bool { return !w.Holds(m.UID) })
	w.until("the reconciler was told", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.left == 1
	})
	if disks, err := w.disks.List(); err != nil || len(disks) != 1 {
		t.Errorf("the disk of what may still run is gone: %v, %v", disks, err)
	}
	w.faults.SetFail("Destroy", nil)
	if err := w.fake.Destroy(w.ctx, m.Handle); err != nil {
		t.Fatal(err)
	}
}
