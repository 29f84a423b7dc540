package core_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// TestHistoryOfATenantIsBounded: commands, events and output of what is there
// and of what was destroyed count together; the oldest go first, and nothing of
// what still runs or of another tenant.
func TestHistoryOfATenantIsBounded(t *testing.T) {
	const bound = 2 << 20
	for _, tenant := range []string{"acme", ""} {
		t.Run("tenant "+tenant, func(t *testing.T) {
			c := &clock{now: time.Now()}
			w := newWorld(t, func(cfg *core.Config) { cfg.Now, cfg.History.Bytes = c.Now, bound })
			in := func(id string) sandbox.Sandbox {
				if tenant == "" {
					return w.create(id)
				}
				return w.createIn(tenant, id)
			}
			other := w.createIn("beta", "other")
			w.sh("other", "echo of another tenant")
			gone := in("gone")
			w.sh("gone", "head -c 900000 /dev/zero")
			if err := w.Sandboxes().Destroy(w.ctx, "gone", false); err != nil {
				t.Fatal(err)
			}
			live := in("live")
			running := w.launch("live", "echo ready; sleep 1000")
			w.sh("live", "head -c 900000 /dev/zero")
			turn := func() int64 {
				t.Helper()
				if err := w.BoundHistory(w.ctx); err != nil {
					t.Fatal(err)
				}
				rows, err := w.store.HistoryBytes(w.ctx)
				if err != nil {
					t.Fatal(err)
				}
				total := rows[tenant]
				for _, b := range []sandbox.Sandbox{gone, live} {
					usage, err := w.journals.Usage(b.UID)
					if err != nil {
						t.Fatal(err)
					}
					total += usage
				}
				return total
			}
			c.add(time.Hour)
			turn()
			if _, err := w.store.SandboxByUID(w.ctx, gone.UID); err != nil {
				t.Fatalf("below the bound the oldest went: %v", err)
			}

			// Output that goes with a destroyed sandbox.
			w.sh("live", "head -c 900000 /dev/zero")
			c.add(time.Hour)
			if total := turn(); total > bound {
				t.Errorf("%d bytes of history, bound %d", total, bound)
			}
			if _, err := w.store.SandboxByUID(w.ctx, gone.UID); !errors.Is(err, errs.NotFound) {
				t.Errorf("the oldest, a destroyed sandbox, is there: %v", err)
			}

			// Output and rows of one that lives: commands with long arguments.
			long := strings.Repeat("x", sandbox.KeptText)
			for range 100 {
				w.sh("live", "true "+long)
				c.add(time.Second)
			}
			w.sh("live", "head -c 900000 /dev/zero")
			c.add(time.Second)
			young := w.sh("live", "echo young").Exec
			c.add(30 * time.Second)
			if total := turn(); total > bound {
				t.Errorf("%d bytes of history with long commands, bound %d", total, bound)
			}
			if _, err := w.Execs().Get(w.ctx, "live", 2); !errors.Is(err, errs.NotFound) {
				t.Errorf("the oldest command is there: %v", err)
			}
			for _, seq := range []int64{running.Seq, young.Seq} {
				if x, err := w.Execs().Get(w.ctx, "live", seq); err != nil || seq == running.Seq && x.Status != sandbox.ExecRunning {
					t.Errorf("command %d: %+v, %v", seq, x.Status, err)
				}
			}
			if _, err := w.store.Exec(w.ctx, other.UID, 1); err != nil {
				t.Errorf("another tenant's command went: %v", err)
			}
			if usage, err := w.journals.Usage(other.UID); err != nil || usage == 0 {
				t.Errorf("another tenant's output went: %d, %v", usage, err)
			}
			if _, err := w.Execs().Cancel(w.ctx, "live", running.Seq); err != nil {
				t.Errorf("the running command: %v", err)
			}
		})
	}
}

// TestOutputWithoutItsCommandGoesFirst: a log that stayed when its command was
// forgotten takes nothing of its tenant's bound for ever.
func TestOutputWithoutItsCommandGoesFirst(t *testing.T) {
	const bound = 1 << 20
	c := &clock{now: time.Now()}
	w := newWorld(t, func(cfg *core.Config) { cfg.Now, cfg.History.Bytes = c.Now, bound })
	b := w.createIn("acme", "a")
	kept := w.sh("a", "head -c 500000 /dev/zero").Exec
	const forgotten = 1000
	log, err := w.journals.Create(b.UID, forgotten)
	if err == nil {
		err = log.Append(sandbox.Output{Stream: sandbox.Stdout, Time: c.Now(), Data: make([]byte, bound)})
	}
	if err == nil {
		err = log.Finish(sandbox.Exit{Reason: sandbox.EndExited})
	}
	if err != nil {
		t.Fatal(err)
	}
	c.add(time.Hour)
	if err := w.BoundHistory(w.ctx); err != nil {
		t.Fatal(err)
	}
	if usage, err := w.journals.LogUsage(b.UID, forgotten); err != nil || usage != 0 {
		t.Errorf("the output without a command takes %d bytes, %v", usage, err)
	}
	if _, err := w.Execs().Get(w.ctx, "a", kept.Seq); err != nil {
		t.Errorf("a command of the history went instead: %v", err)
	}
}
