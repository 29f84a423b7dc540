package core_test

import (
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/core/lifecycle"
)

// TestWhatStandsAsideIsAsUnusedAsBefore: the end of a long command is a use that the
// store does not hear of, and the next run has to.
func TestWhatStandsAsideIsAsUnusedAsBefore(t *testing.T) {
	for name, act := range map[string]func(w *world){
		"a snapshot": func(w *world) { w.keep("a", "") },
		"a fork": func(w *world) {
			if _, err := w.Snapshots().Fork(w.ctx, "a", 1, nil); err != nil {
				w.t.Error(err)
			}
		},
		"a sleep that fails": func(w *world) {
			w.faults.SetFail("Sleep", errDown)
			if _, err := w.Sandboxes().Sleep(w.ctx, "a", true); err == nil {
				w.t.Error("Sleep succeeded")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := &clock{now: time.Now()}
			w := newWorld(t, func(cfg *core.Config) { cfg.Now = c.Now })
			timeout := 10 * time.Minute
			if _, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: "a", IdleTimeout: &timeout}); err != nil {
				t.Fatal(err)
			}
			hold, open := gate(t)
			x := w.launch("a", "echo ready; "+hold)
			c.add(time.Hour)
			open()
			w.wait("a", x.Seq)
			w.until("the command is no use any more", func() bool { return !w.get("a").IdleAt.IsZero() })
			used := c.Now()
			c.add(time.Minute)
			act(w)
			if b := w.get("a"); b.LastActiveAt.Before(used) || b.IdleAt.Before(used.Add(timeout)) {
				t.Errorf("it was used %s ago and idles in %s, want one minute and nine", c.Now().Sub(b.LastActiveAt), b.IdleAt.Sub(c.Now()))
			}
		})
	}
}
