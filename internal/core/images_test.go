package core_test

import (
	"context"
	"testing"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

func TestImagesInUseAreNotSwept(t *testing.T) {
	w := newWorld(t)
	b := w.create("a")
	if _, err := w.Sandboxes().Stop(w.ctx, "a", 0); err != nil {
		t.Fatal(err)
	}
	// Without the pin its row still speaks for it.
	if err := w.images.Unpin(w.ctx, digest, b.UID); err != nil {
		t.Fatal(err)
	}
	w.Builds().Sweep(w.ctx)
	if _, kept := w.images.sweeps(); !kept {
		t.Error("the image of a stopped sandbox would have been deleted")
	}
	if err := w.Sandboxes().Destroy(w.ctx, "a", false); err != nil {
		t.Fatal(err)
	}
	w.Builds().Sweep(w.ctx)
	if _, kept := w.images.sweeps(); kept {
		t.Error("the image of a destroyed sandbox would have been kept")
	}
	// Rows that cannot be read are not none.
	before, _ := w.images.sweeps()
	gone, cancel := context.WithCancel(w.ctx)
	cancel()
	w.Builds().Sweep(gone)
	if after, _ := w.images.sweeps(); after != before {
		t.Error("images were swept although the rows could not be read")
	}
}

// A pin outlives a destroy that was cut off before it; the next reconciliation
// ends it, and no pin of somebody else.
func TestPinsOfEndedSandboxesGo(t *testing.T) {
	w := newWorld(t)
	b := w.create("a")
	if err := w.Sandboxes().Destroy(w.ctx, "a", false); err != nil {
		t.Fatal(err)
	}
	stranger := sandbox.NewUID()
	for _, owner := range []sandbox.UID{b.UID, stranger} {
		if err := w.images.Pin(w.ctx, digest, owner); err != nil {
			t.Fatal(err)
		}
	}
	w.restart()
	w.until("the pin of the destroyed sandbox is gone", func() bool { return w.images.pinned() == 1 })
	pins, err := w.images.Pins(w.ctx)
	if err != nil || len(pins) != 1 || pins[0].Owner != stranger {
		t.Errorf("Pins = %v, %v, want the stranger's", pins, err)
	}
}
