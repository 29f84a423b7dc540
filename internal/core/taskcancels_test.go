package core_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store/storetest"
	"github.com/cubbyhq/cubby/internal/task"
)

// heedsNothing is a supervisor that reads that its task is cancelled and goes on.
const heedsNothing = `say status '{"phase":"agent_running"}'; cat > /dev/null`

// A cancel that was answered is carried out by the next daemon, when the one that
// answered ended before the task did.
func TestCancelOfATaskOutlivesTheDaemon(t *testing.T) {
	for name, asleep := range map[string]bool{"of a sandbox that runs": false, "of one that sleeps": true} {
		t.Run(name, func(t *testing.T) {
			var ahead atomic.Int64 // of the clock
			w := newWorld(t, supervisedBy(heedsNothing), func(c *core.Config) {
				c.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
			})
			w.create("a")
			started := w.startTask("a")
			w.until("it has begun", func() bool { return len(w.taskEvents("a", started.ID, 0, false)) == 1 })
			now, err := w.Tasks().Cancel(w.ctx, "a", string(started.ID))
			if err != nil || now.State != task.Running {
				t.Fatalf("Cancel = %+v, %v", now, err)
			}
			if asleep {
				w.sleep("a", true)
			}
			ahead.Store(int64(time.Minute))
			w.restart()
			if r := w.endTask("a", started.ID); r.Status != task.Cancelled {
				t.Errorf("result %+v", r)
			}
		})
	}
}

// What the next daemon would not know of is not answered.
func TestCancelOfATaskThatCannotBeStored(t *testing.T) {
	w := newWorld(t, supervisedBy(heedsNothing))
	b := w.create("a")
	started := w.startTask("a")
	w.until("it is running in the store", func() bool {
		x, err := w.store.Exec(w.ctx, b.UID, started.Seq)
		return err == nil && x.Status == sandbox.ExecRunning
	})
	mend := storetest.Break(t, w.dir+"/cubby.db", "UPDATE OF cancelled_at ON execs", "")
	if now, err := w.Tasks().Cancel(w.ctx, "a", string(started.ID)); err == nil {
		t.Errorf("Cancel = %+v", now)
	}
	mend()
	if _, err := w.Tasks().Cancel(w.ctx, "a", string(started.ID)); err != nil {
		t.Error(err)
	}
	if _, err := w.Execs().Cancel(w.ctx, "a", started.Seq); err != nil {
		t.Error(err)
	}
}
