package toolset_test

import (
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/auth"
	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/core/lifecycle"
	"github.com/cubbyhq/cubby/internal/core/pool"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/poll"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

var me = auth.Principal{Name: "me", Tenant: "mine"}

// until waits for a condition of the world.
func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	if err := poll.Until(w.ctx, time.Millisecond, 20*time.Millisecond, func() (bool, error) { return ok(), nil }); err != nil {
		w.t.Fatalf("it never came: %s: %v", what, err)
	}
}

// The first session of a conversation is one that was kept ready.
func TestOwnSessionIsWarm(t *testing.T) {
	w := newWorld(t, func(c *core.Config) { c.Sandboxes.Pool = []pool.Kind{{Count: 1}} })
	w.until("one is ready", func() bool {
		for _, s := range w.Sandboxes().Pool().Status() {
			if s.Ready == 1 {
				return true
			}
		}
		return false
	})
	w.thread("a").good("execute_terminal", object{"command": "true"})
	events, _, err := w.Events().List(auth.WithPrincipal(w.ctx, me), w.sessions("a")[0], 0, 0, event.SandboxCreated)
	if err != nil || len(events) != 1 {
		t.Fatalf("%d events, %v", len(events), err)
	}
	if p, err := event.PayloadOf(events[0]); err != nil || p.(event.Created).Start != event.Warm {
		t.Errorf("it began %+v, %v", p, err)
	}
}

// A session that died is started again for the next call, which hears of it; the call
// that it died under is told what to do.
func TestOwnSessionThatDied(t *testing.T) {
	w := newWorld(t)
	c := w.thread("a")
	c.good("write_file", object{"path": "kept", "content": "kept"})
	id := w.sessions("a")[0]
	ctx := auth.WithPrincipal(w.ctx, me)
	b, err := w.Sandboxes().Get(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	out, r := c.do(c.ctx, "execute_terminal", object{"command": "echo began; sleep 1000", "timeout": 300}, func(string, string, string) {
		w.fake.Kill(b.UID, driver.Death{Cause: driver.DeathSignal, Signal: "SIGKILL"})
	})
	if hint, _ := out["hint"].(string); !r.Failed || !strings.HasPrefix(out["error"].(string), "CONTAINER_DIED: ") || !strings.Contains(hint, "next call starts the session again") {
		t.Errorf("the call that it died under: %s", r.Content)
	}
	w.until("it is stopped", func() bool {
		b, err := w.Sandboxes().Get(ctx, id)
		return err == nil && b.State == sandbox.Stopped
	})
	out = c.good("execute_terminal", object{"command": "cat kept"})
	if again, _ := out["session_restarted"].(string); !strings.HasPrefix(again, "it died (it was killed by SIGKILL") || !strings.Contains(again, "its files are not") || out["stdout"] != "kept" {
		t.Errorf("the next call: %v", out)
	}
	if out := c.good("execute_terminal", object{"command": "true"}); out["session_restarted"] != nil {
		t.Errorf("it is told twice: %v", out)
	}
}

// A session that sleeps or is stopped is used again as it is.
func TestOwnSessionThatRests(t *testing.T) {
	w := newWorld(t)
	c := w.thread("a")
	c.good("execute_terminal", object{"command": "echo x > f"})
	id, ctx := w.sessions("a")[0], auth.WithPrincipal(w.ctx, me)
	if _, err := w.Sandboxes().Sleep(ctx, id, false); err != nil {
		t.Fatal(err)
	}
	if out := c.good("execute_terminal", object{"command": "cat f"}); out["stdout"] != "x\n" || out["session_restarted"] != nil {
		t.Errorf("of one that slept: %v", out)
	}
	if _, err := w.Sandboxes().Stop(ctx, id, 0); err != nil {
		t.Fatal(err)
	}
	out := c.good("execute_terminal", object{"command": "cat f"})
	if again, _ := out["session_restarted"].(string); out["stdout"] != "x\n" || !strings.Contains(again, "was stopped") {
		t.Errorf("of one that was stopped: %v", out)
	}
}

// Somebody else may have the id of the own session: then it has another one, and is
// found again.
func TestOwnSessionWhoseIDIsTaken(t *testing.T) {
	w := newWorld(t)
	c := w.thread("a")
	c.good("write_file", object{"path": "f", "content": "first"})
	id := w.sessions("a")[0]
	c.good("stop_session", object{})
	theirs := auth.WithPrincipal(w.ctx, auth.Principal{Name: "x", Tenant: "others"})
	if _, err := w.Sandboxes().Create(theirs, lifecycle.CreateRequest{ID: id}); err != nil {
		t.Fatal(err)
	}
	c.good("write_file", object{"path": "f", "content": "second"})
	if out := c.good("read_file", object{"path": "f"}); out["content"] != "second" {
		t.Errorf("the file is %v", out)
	}
	if ids := w.sessions("a"); len(ids) != 1 || ids[0] == id {
		t.Errorf("the sessions are %q", ids)
	}
	c.good("stop_session", object{})
	if ids := w.sessions("a"); len(ids) != 0 {
		t.Errorf("there is still %q", ids)
	}
}
