package agent_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/cubbyhq/cubby/internal/agent"
	"github.com/cubbyhq/cubby/internal/agent/loop"
	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/store/storetest"
)

// TestEveryWriteBroken: whichever write of the store fails, in this daemon until it
// works again, or until the next one, the runs of a thread end, no tool runs twice,
// and the thread goes on.
func TestEveryWriteBroken(t *testing.T) {
	for _, broken := range []struct{ write, when string }{
		{"INSERT ON runs", ""},
		{"UPDATE OF status ON runs", "NEW.status = 'running'"},
		{"UPDATE OF status ON runs", "NEW.status = 'success'"},
		{"UPDATE OF status ON runs", "NEW.status IN ('success', 'error', 'interrupted')"},
		{"DELETE ON runs", ""},
		{"INSERT ON checkpoints", ""},
		{"INSERT ON checkpoints", "NEW.step = 2"},
		{"UPDATE OF tasks ON checkpoints", ""},
		{"DELETE ON checkpoints", ""},
		{"INSERT ON conversation_messages", "NEW.place = 2"},
		{"UPDATE OF head ON conversations", "NEW.head <> ''"},
		{"UPDATE OF status ON conversations", "NEW.status = 'busy'"},
		{"UPDATE OF status ON conversations", "NEW.status <> 'busy'"},
	} {
		for name, next := range map[string]bool{"": false, ", next daemon": true} {
			t.Run(broken.write+" "+broken.when+name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				var calls atomic.Int64
				w.called = func(_ context.Context, c loop.Call) loop.Result {
					calls.Add(1)
					return loop.Result{Content: "ran " + c.Name}
				}
				close(w.model.release)
				s, stop := w.daemon()
				thread := newThread(t, s)
				mend := storetest.Break(t, w.db(), broken.write, broken.when)
				// All that a client may do, as far as it succeeds; nothing waits for ever.
				_, _, _ = s.Runs().Create(acme(t), thread, says("call run"))
				_, _, _ = s.Runs().Create(acme(t), thread, enqueued("fail"))
				n := says("two")
				n.Multitask = conversation.MultitaskEnqueue
				run, _, made := s.Runs().Create(acme(t), thread, n)
				if made == nil {
					_, _ = s.Runs().Cancel(acme(t), thread, run.ID, true, false)
				}
				if next {
					stop()
				}
				mend()
				if next {
					s, _ = w.daemon()
				}
				if made == nil {
					if _, err := s.Runs().Cancel(acme(t), thread, run.ID, true, true); err != nil && !errors.Is(err, errs.NotFound) && !errors.Is(err, errs.Conflict) {
						t.Errorf("Cancel = %v", err)
					}
				}
				until(t, func() bool {
					runs, err := runsOf(acme(t), s, thread, agent.RunQuery{})
					if err != nil {
						t.Fatal(err)
					}
					for _, run := range runs {
						if !run.Status.Ended() {
							return false
						}
					}
					return true
				})
				settled(t, s, thread)
				if got := status(t, s, thread); got == conversation.ThreadBusy {
					t.Errorf("the thread is %s", got)
				}
				if calls.Load() > 1 {
					t.Errorf("the tool ran %d times", calls.Load())
				}
				_, said := do(t, s, thread, says("on"))
				equal(t, "last", said[len(said)-1], "ai:said on")
			})
		}
	}
}
