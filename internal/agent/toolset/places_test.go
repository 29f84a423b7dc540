package toolset_test

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/auth"
	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

func fivePlaces(c *core.Config) { c.Sandboxes.Caps.InThreads = 5 }

// turn is a run of the agent in a thread.
func (w *world) turn(thread string) (end func()) {
	return w.Sandboxes().Engage(w.mine(), thread)
}

func (w *world) mine() context.Context {
	return auth.WithPrincipal(w.ctx, auth.Principal{Name: "me", Tenant: "mine"})
}

// TestSixthConversationHasTools: with the places of its tenant taken by conversations in
// which nothing goes on, one more puts the longest unused to sleep, and that one wakes
// when it goes on.
func TestSixthConversationHasTools(t *testing.T) {
	testOneConversationMore(t, newWorld(t, fivePlaces), 5, sandbox.Sleeping)
}

func testOneConversationMore(t *testing.T, w *world, places int, rests sandbox.State) {
	for i := range places + 1 {
		thread := strconv.Itoa(i)
		end := w.turn(thread)
		w.thread(thread).good("execute_terminal", object{"command": "true"})
		end()
	}
	state := func(thread string) sandbox.Sandbox {
		t.Helper()
		all, err := w.Threads().Sandboxes(w.mine(), thread)
		if err != nil || len(all) != 1 {
			t.Fatalf("thread %s has %v, %v", thread, all, err)
		}
		return all[0]
	}
	if b := state("0"); b.State != rests || !strings.HasPrefix(b.Reason, "another thread needed its place") {
		t.Errorf("the longest unused is %s: %q", b.State, b.Reason)
	}
	for i := 1; i <= places; i++ {
		if b := state(strconv.Itoa(i)); b.State != sandbox.Running {
			t.Errorf("%d is %s", i, b.State)
		}
	}
	end := w.turn("0")
	defer end()
	w.thread("0").good("execute_terminal", object{"command": "true"})
	if b := state("1"); b.State != rests {
		t.Errorf("the next one is %s", b.State)
	}
}

// TestConversationsThatGoOnKeepTheirPlaces: no sandbox sleeps whose thread has a run, or
// that a person uses, and the refusal says which limit it is.
func TestConversationsThatGoOnKeepTheirPlaces(t *testing.T) {
	w := newWorld(t, fivePlaces)
	for i := range 5 {
		thread := strconv.Itoa(i)
		defer w.turn(thread)()
		w.thread(thread).good("execute_terminal", object{"command": "true"})
	}
	end := w.turn("5")
	defer end()
	out, r := w.thread("5").call("execute_terminal", object{"command": "true"})
	if !r.Failed || !strings.Contains(r.Content, "tenant limit reached") || !strings.Contains(r.Content, "max-thread-sandboxes") {
		t.Errorf("the sixth: %v", out)
	}
	for i := range 5 {
		if all, err := w.Threads().Sandboxes(w.mine(), strconv.Itoa(i)); err != nil || len(all) != 1 || all[0].State != sandbox.Running {
			t.Errorf("%d: %+v, %v", i, all, err)
		}
	}
}

// TestSandboxThatAPersonUsesKeepsItsPlace, though no run goes on in its thread.
func TestSandboxThatAPersonUsesKeepsItsPlace(t *testing.T) {
	w := newWorld(t, fivePlaces)
	for i := range 5 {
		w.thread(strconv.Itoa(i)).good("execute_terminal", object{"command": "true"})
	}
	w.thread("0").good("start_command", object{"command": "sleep 600"})
	defer w.turn("5")()
	w.thread("5").good("execute_terminal", object{"command": "true"})
	for thread, want := range map[string]sandbox.State{"0": sandbox.Running, "1": sandbox.Sleeping} {
		if all, err := w.Threads().Sandboxes(w.mine(), thread); err != nil || all[0].State != want {
			t.Errorf("%s: %+v, %v", thread, all, err)
		}
	}
}

// TestThreadWithARunIsNotEvicted: while the model thinks, a further thread takes the
// place of one without a run, though that was used later.
func TestThreadWithARunIsNotEvicted(t *testing.T) {
	w := newWorld(t, func(c *core.Config) { c.Sandboxes.Threads.MaxActive = 2 })
	defer w.turn("thinks")()
	for _, thread := range []string{"thinks", "idle", "new"} {
		w.thread(thread).good("execute_terminal", object{"command": "true"})
	}
	for thread, want := range map[string]int{"thinks": 1, "idle": 0, "new": 1} {
		if all, err := w.Threads().Sandboxes(w.mine(), thread); err != nil || len(all) != want {
			t.Errorf("%s has %+v, %v", thread, all, err)
		}
	}
}
