package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/agent"
	"github.com/cubbyhq/cubby/internal/auth"
	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
)

func TestConversation(t *testing.T) {
	w := newWorld(t)
	s, _ := w.daemon()
	thread := newThread(t, s)
	run, said := do(t, s, thread, says("call run"))
	equal(t, "status", run.Status, conversation.RunSuccess)
	equal(t, "said", said, []string{"human:call run", "ai:", "tool:ran run", "ai:did it"})
	_, said = do(t, s, thread, says("hello"))
	equal(t, "said", said[4:], []string{"human:hello", "ai:said hello"})
	view, err := s.Threads().Get(acme(t), thread)
	if err != nil || view.Status != conversation.ThreadIdle || string(view.Metadata["graph_id"]) != `"agent"` || len(view.Messages) != 6 {
		t.Errorf("Get = %+v, %v", view, err)
	}
	history, err := historyOf(acme(t), s, thread, agent.HistoryQuery{Limit: 100})
	if err != nil || len(history) != 8 || len(history[0].Messages) != 6 || history[7].Checkpoint.Step != -1 {
		t.Errorf("History = %d, %v", len(history), err)
	}
	system := w.model.requests()[0].System
	for _, want := range []string{"You are Cubby", "A test.", "Be kind."} {
		if !strings.Contains(system, want) {
			t.Errorf("the system prompt lacks %q", want)
		}
	}
	// Another tenant knows of nothing.
	other := auth.WithPrincipal(t.Context(), auth.Principal{Name: "eve", Tenant: "evil"})
	for name, err := range map[string]error{
		"get":    second(s.Threads().Get(other, thread)),
		"state":  second(s.Threads().State(other, thread, "")),
		"run":    second(s.Runs().Get(other, thread, run.ID)),
		"delete": s.Threads().Delete(other, thread),
		"cancel": second(s.Runs().Cancel(other, thread, run.ID, true, false)),
	} {
		if !errors.Is(err, errs.NotFound) {
			t.Errorf("%s of another tenant = %v", name, err)
		}
	}
	if ids, n, err := s.Threads().IDs(other, agent.ThreadQuery{}); err != nil || n != 0 || len(ids) != 0 {
		t.Errorf("another tenant found %d threads, %v", n, err)
	}
}

func historyOf(ctx context.Context, s *agent.Service, thread string, q agent.HistoryQuery) (list []agent.State, err error) {
	states, err := s.Threads().History(ctx, thread, q)
	if err != nil {
		return nil, err
	}
	for state, err := range states.All {
		if err != nil {
			return nil, err
		}
		list = append(list, state.Value)
	}
	return list, nil
}

func runsOf(ctx context.Context, s *agent.Service, thread string, q agent.RunQuery) (all []conversation.Run, err error) {
	list, err := s.Runs().List(ctx, thread, q)
	if err != nil {
		return nil, err
	}
	for run, err := range list.All {
		if err != nil {
			return nil, err
		}
		all = append(all, run.Value)
	}
	return all, nil
}

func second[T any](_ T, err error) error { return err }

// TestBranches: a run from an older checkpoint is a sibling of what followed it.
func TestBranches(t *testing.T) {
	s, _ := newWorld(t).daemon()
	thread := newThread(t, s)
	do(t, s, thread, says("one"))
	history, err := historyOf(acme(t), s, thread, agent.HistoryQuery{})
	if err != nil {
		t.Fatal(err)
	}
	// Regenerate: no input, from before the answer.
	again := agent.NewRun{AssistantID: "agent", Request: conversation.RunRequest{Checkpoint: history[1].Checkpoint.ID}}
	_, said := do(t, s, thread, again)
	equal(t, "said", said, []string{"human:one", "ai:said one"})
	// Edit: other words, from before the first.
	edited := says("two")
	edited.Request.Checkpoint = history[2].Checkpoint.ID
	_, said = do(t, s, thread, edited)
	equal(t, "said", said, []string{"human:two", "ai:said two"})
	history, err = historyOf(acme(t), s, thread, agent.HistoryQuery{})
	if err != nil {
		t.Fatal(err)
	}
	children := map[string]int{}
	for _, h := range history {
		children[h.Checkpoint.Parent]++
	}
	if len(history) != 7 || children[history[len(history)-2].Checkpoint.ID] != 2 {
		t.Errorf("%d checkpoints with %v", len(history), children)
	}
}

func TestChangeState(t *testing.T) {
	s, _ := newWorld(t).daemon()
	thread := newThread(t, s)
	do(t, s, thread, says("one"))
	state, err := s.Threads().State(acme(t), thread, "")
	if err != nil {
		t.Fatal(err)
	}
	remove, err := json.Marshal(map[string]any{"messages": []any{map[string]any{"type": "remove", "id": state.Messages[1].ID}}})
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.Threads().Change(acme(t), thread, agent.StateChange{Values: remove, AsNode: "agent"})
	if err != nil || c.Parent != state.Checkpoint.ID || len(c.Next) != 0 {
		t.Errorf("Change = %+v, %v", c, err)
	}
	_, said := do(t, s, thread, says("two"))
	equal(t, "said", said, []string{"human:one", "human:two", "ai:said two"})
	if _, err := s.Threads().Change(acme(t), thread, agent.StateChange{Values: remove}); !errors.Is(err, errs.Invalid) {
		t.Errorf("removing it again = %v", err)
	}
	copied, err := s.Threads().Copy(acme(t), thread)
	if err != nil {
		t.Fatal(err)
	}
	view, err := s.Threads().Get(acme(t), copied.ID)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "copy", texts(view.Messages), said)
}

func TestFailedRun(t *testing.T) {
	s, _ := newWorld(t).daemon()
	thread := newThread(t, s)
	run, _ := do(t, s, thread, says("fail"))
	if run.Status != conversation.RunFailed || !strings.Contains(string(run.Error), "AuthenticationError") {
		t.Errorf("run = %+v", run)
	}
	view, err := s.Threads().Get(acme(t), thread)
	if err != nil || view.Status != conversation.ThreadFailed || !strings.Contains(string(view.Error), "wrong key") {
		t.Errorf("thread = %+v, %v", view.Thread, err)
	}
	_, said := do(t, s, thread, says("on"))
	equal(t, "said", said, []string{"human:fail", "human:on", "ai:said on"})
}

func TestApproval(t *testing.T) {
	w := newWorld(t)
	s, _ := w.daemon()
	thread := newThread(t, s)
	n := says("call run")
	n.Request.Configurable = map[string]json.RawMessage{"interrupt_on": json.RawMessage(`{"run":true}`)}
	run, _ := do(t, s, thread, n)
	equal(t, "status", run.Status, conversation.RunSuccess)
	view, err := s.Threads().Get(acme(t), thread)
	if err != nil || view.Status != conversation.ThreadInterrupted || len(view.Interrupts) != 1 {
		t.Fatalf("thread = %+v, %v", view, err)
	}
	resume := agent.NewRun{AssistantID: "agent", Request: conversation.RunRequest{
		Input: json.RawMessage(`{}`), Command: &conversation.Command{Resume: json.RawMessage(`{"decisions":[{"type":"approve"}]}`)},
		Configurable: n.Request.Configurable,
	}}
	_, said := do(t, s, thread, resume)
	equal(t, "said", said, []string{"human:call run", "ai:", "tool:ran run", "ai:did it"})
	if view, err = s.Threads().Get(acme(t), thread); err != nil || view.Status != conversation.ThreadIdle || len(view.Interrupts) != 0 {
		t.Errorf("thread = %+v, %v", view, err)
	}
}

// TestRunWithoutThread is of a thread that goes with it, but for those who keep it.
func TestRunWithoutThread(t *testing.T) {
	w := newWorld(t)
	s, stop := w.daemon()
	n := says("hello")
	n.Keep = true
	run, thread, err := s.Runs().Create(acme(t), "", n)
	if err != nil {
		t.Fatal(err)
	}
	_, said := wait(t, s, thread.ID, run)
	equal(t, "said", said, []string{"human:hello", "ai:said hello"})
	if _, err := s.Threads().Get(acme(t), thread.ID); err != nil {
		t.Errorf("Get = %v", err)
	}
	n.Keep = false
	run, gone, err := s.Runs().Create(acme(t), "", n)
	if err != nil {
		t.Fatal(err)
	}
	wait(t, s, gone.ID, run)
	// The daemon stops before the time for those who follow is over: the next one
	// removes it.
	stop()
	s, _ = w.daemon()
	if err := s.Threads().Delete(acme(t), "none"); !errors.Is(err, errs.NotFound) { // waits until all is taken up
		t.Errorf("Get = %v", err)
	}
	ids, _, err := s.Threads().IDs(acme(t), agent.ThreadQuery{})
	if err != nil || len(ids) != 1 || ids[0] != thread.ID {
		t.Errorf("IDs = %v, %v", ids, err)
	}
}

func TestNoModel(t *testing.T) {
	w := newWorld(t)
	w.unset = true
	s, _ := w.daemon()
	thread := newThread(t, s)
	if _, _, err := s.Runs().Create(acme(t), thread, says("x")); !errors.Is(err, errs.Unready) {
		t.Errorf("Create = %v", err)
	}
}

// TestDeleteEndsAll: of a thread that is deleted nothing is left, and what ran in it
// has ended.
func TestDeleteEndsAll(t *testing.T) {
	w := newWorld(t)
	s, _ := w.daemon()
	thread := newThread(t, s)
	run := begin(t, s, thread, says("wait"))
	<-w.model.waiting
	if err := s.Threads().Delete(acme(t), thread); err != nil {
		t.Fatal(err)
	}
	equal(t, "ended", w.ended, []string{thread})
	if _, err := s.Runs().Get(acme(t), thread, run.ID); !errors.Is(err, errs.NotFound) {
		t.Errorf("Get = %v", err)
	}
	left, err := filepath.Glob(filepath.Join(w.dir, "agent", "*", "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if err := s.Threads().Delete(acme(t), thread); !errors.Is(err, errs.NotFound) {
		t.Errorf("Delete again = %v", err)
	}
}
