package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/cubbyhq/cubby/internal/agent"
	"github.com/cubbyhq/cubby/internal/agent/loop"
	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
)

// made is the calls of tools that were made.
type made struct {
	mu    sync.Mutex
	calls []string // guarded by mu
}

func (m *made) list() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.calls)
}

// asking returns a daemon's agent with a thread in which a person is asked about a call
// of a tool, and the calls that are made. restart ends the daemon and starts the next.
func asking(t *testing.T, change func(*agent.NewRun)) (s *agent.Service, thread string, m *made, restart func() *agent.Service) {
	w := newWorld(t)
	m = &made{}
	w.called = func(_ context.Context, c loop.Call) loop.Result {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.calls = append(m.calls, c.Name+string(c.Arguments))
		return loop.Result{Content: "ran"}
	}
	s, stop := w.daemon()
	restart = func() *agent.Service {
		stop()
		s, stop = w.daemon()
		return s
	}
	thread = newThread(t, s)
	n := says("call run")
	change(&n)
	if run, _ := do(t, s, thread, n); run.Status != conversation.RunSuccess || status(t, s, thread) != conversation.ThreadInterrupted {
		t.Fatalf("the run is %+v, the thread %s", run, status(t, s, thread))
	}
	return s, thread, m, restart
}

func onRun(n *agent.NewRun) {
	n.Request.Configurable = map[string]json.RawMessage{"interrupt_on": json.RawMessage(`{"run":true}`)}
}

// bare is a run of a client that does not say again what a person is asked about.
func bare(resume string) agent.NewRun {
	n := agent.NewRun{AssistantID: "agent"}
	if resume != "" {
		n.Request.Command = &conversation.Command{Resume: json.RawMessage(resume)}
	}
	return n
}

const (
	approves = `{"decisions":[{"type":"approve"}]}`
	rejects  = `{"decisions":[{"type":"reject","message":"no"}]}`
	edits    = `{"decisions":[{"type":"edit","edited_action":{"name":"run","args":{"b":2}}}]}`
)

// TestARejectedCallIsNotMade: whoever goes on with a thread in which a person is asked
// about a call, in any of the ways to do so, makes it only with that person's word. The
// run that answers does not say what the one that asked said.
func TestARejectedCallIsNotMade(t *testing.T) {
	t.Parallel()
	raised := map[string]func(*agent.NewRun){
		"interrupt_on":     onRun,
		"interrupt_before": func(n *agent.NewRun) { n.Request.InterruptBefore = []string{"run"} },
		"all": func(n *agent.NewRun) {
			n.Request.Configurable = map[string]json.RawMessage{"interrupt_on": json.RawMessage(`"*"`)}
		},
		"a breakpoint before the tools": func(n *agent.NewRun) { n.Request.InterruptBefore = []string{"tools"} },
	}
	answers := []struct {
		name, resume string
		calls        []string
	}{
		{"approve", approves, []string{"run{}"}},
		{"reject", rejects, nil},
		{"edit", edits, []string{`run{"b":2}`}},
		{"a list", `[{"type":"reject"}]`, nil},
		{"the name", `"reject"`, nil},
	}
	ways := map[string]func(t *testing.T, s *agent.Service, thread string, n *agent.NewRun){
		"plainly":   func(*testing.T, *agent.Service, string, *agent.NewRun) {},
		"reject":    strategy(conversation.MultitaskReject),
		"interrupt": strategy(conversation.MultitaskInterrupt),
		"rollback":  strategy(conversation.MultitaskRollback),
		"enqueue":   strategy(conversation.MultitaskEnqueue),
		"beside an input": func(_ *testing.T, _ *agent.Service, _ string, n *agent.NewRun) {
			n.Request.Input = says("call run").Request.Input
		},
		"from the checkpoint": func(t *testing.T, s *agent.Service, thread string, n *agent.NewRun) {
			n.Request.Checkpoint = head(t, s, thread)
		},
		"a state that was touched": func(t *testing.T, s *agent.Service, thread string, _ *agent.NewRun) {
			if _, err := s.Threads().Change(acme(t), thread, agent.StateChange{}); err != nil {
				t.Fatal(err)
			}
		},
	}
	for raisedBy, change := range raised {
		for _, a := range answers {
			for way, prepare := range ways {
				for _, restarted := range []bool{false, true} {
					if way != "plainly" && (restarted || raisedBy != "interrupt_on" || len(a.resume) < 30) {
						continue // what is stored is the same
					}
					name := raisedBy + "/" + a.name + "/" + way
					if restarted {
						name += "/restarted"
					}
					t.Run(name, func(t *testing.T) {
						s, thread, m, restart := asking(t, change)
						if restarted {
							s = restart()
						}
						n := bare(a.resume)
						prepare(t, s, thread, &n)
						run, _ := do(t, s, thread, n)
						equal(t, "made", m.list(), a.calls)
						if run.Status != conversation.RunSuccess || status(t, s, thread) != conversation.ThreadIdle {
							t.Errorf("the run is %s, the thread %s", run.Status, status(t, s, thread))
						}
					})
				}
			}
		}
	}
}

func strategy(m conversation.Multitask) func(*testing.T, *agent.Service, string, *agent.NewRun) {
	return func(_ *testing.T, _ *agent.Service, _ string, n *agent.NewRun) { n.Multitask = m }
}

func head(t *testing.T, s *agent.Service, thread string) string {
	t.Helper()
	at, err := s.Threads().State(acme(t), thread, "")
	if err != nil {
		t.Fatal(err)
	}
	return at.Checkpoint.ID
}

// TestWhatIsNoAnswerLeavesTheQuestion: it is refused, the question stays, and the call
// is made when somebody approves it.
func TestWhatIsNoAnswerLeavesTheQuestion(t *testing.T) {
	t.Parallel()
	for _, resume := range []string{
		`"yes"`, `"true"`, `true`, `false`, `{}`, `[]`, `7`, `""`, `{"decisions":[]}`, `{"decisions":null}`, `{"decisions":[{}]}`, `{"decisions":[{"type":"dance"}]}`,
		`{"decisions":[{"type":"approve"},{"type":"approve"}]}`, `{"decisions":[{"type":"edit"}]}`, `{"decisions":[{"type":"edit","edited_action":{"args":[]}}]}`,
		`{"decisions":[{"type":"respond","message":"not offered"}]}`, `{"0123456789abcdef0123456789abcdef":{"decisions":[{"type":"approve"}]}}`,
	} {
		t.Run(resume, func(t *testing.T) {
			s, thread, m, restart := asking(t, onRun)
			for range 2 {
				for _, multitask := range []conversation.Multitask{"", conversation.MultitaskEnqueue, conversation.MultitaskRollback} {
					n := bare(resume)
					n.Multitask = multitask
					_, _, err := s.Runs().Create(acme(t), thread, n)
					if !errors.Is(err, errs.Invalid) || !errors.Is(err, conversation.ErrUnprocessable) {
						t.Fatalf("Create = %v", err)
					}
				}
				stillAsked(t, s, thread, m)
				s = restart()
			}
			do(t, s, thread, bare(approves))
			equal(t, "made", m.list(), []string{"run{}"})
		})
	}
}

// stillAsked checks that a person is asked, and nothing was done.
func stillAsked(t *testing.T, s *agent.Service, thread string, m *made) {
	t.Helper()
	view, err := s.Threads().Get(acme(t), thread)
	if err != nil || view.Status != conversation.ThreadInterrupted || len(view.Interrupts) != 1 || len(m.list()) > 0 {
		t.Fatalf("the thread is %s with %v after the calls %q, %v", view.Status, view.Interrupts, m.list(), err)
	}
}

// TestWithoutAnAnswerTheQuestionIsAskedAgain: a run that says nothing, and whatever leads
// to the tools again, ends with the same question as before.
func TestWithoutAnAnswerTheQuestionIsAskedAgain(t *testing.T) {
	replaced := `{"messages":[{"type":"ai","id":"%","content":"","tool_calls":[{"id":"other","name":"run","args":{"c":3}}]}]}`
	for name, do := range map[string]func(t *testing.T, s *agent.Service, thread string){
		"no input":         func(t *testing.T, s *agent.Service, thread string) { do(t, s, thread, bare("")) },
		"an empty command": func(t *testing.T, s *agent.Service, thread string) { do(t, s, thread, bare("null")) },
		"goto the tools":   func(t *testing.T, s *agent.Service, thread string) { do(t, s, thread, commands(`"tools"`, "")) },
		"goto end, and back": func(t *testing.T, s *agent.Service, thread string) {
			do(t, s, thread, commands(`"__end__"`, ""))
			do(t, s, thread, commands(`["tools"]`, ""))
		},
		"an update": func(t *testing.T, s *agent.Service, thread string) { do(t, s, thread, commands("", `{"messages":[]}`)) },
		"the old checkpoint": func(t *testing.T, s *agent.Service, thread string) {
			n := bare("")
			n.Request.Checkpoint = head(t, s, thread)
			do(t, s, thread, says("on"))
			do(t, s, thread, n)
		},
		"the old checkpoint after a rejection": func(t *testing.T, s *agent.Service, thread string) {
			n := bare("")
			n.Request.Checkpoint = head(t, s, thread)
			do(t, s, thread, bare(rejects))
			do(t, s, thread, n)
		},
		"the state of the model": func(t *testing.T, s *agent.Service, thread string) {
			changed(t, s, thread, agent.StateChange{AsNode: "agent"})
			do(t, s, thread, bare(""))
		},
		"another call in the answer": func(t *testing.T, s *agent.Service, thread string) {
			at, err := s.Threads().State(acme(t), thread, "")
			if err != nil {
				t.Fatal(err)
			}
			changed(t, s, thread, agent.StateChange{Values: values(replaced, at.Messages[1].ID), AsNode: "agent"})
			do(t, s, thread, bare(""))
		},
		"what came after is removed": func(t *testing.T, s *agent.Service, thread string) {
			do(t, s, thread, says("on"))
			at, err := s.Threads().State(acme(t), thread, "")
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range at.Messages[2:] {
				changed(t, s, thread, agent.StateChange{Values: values(`{"messages":[{"type":"remove","id":"%"}]}`, m.ID)})
			}
			do(t, s, thread, bare(""))
		},
		"the run after it is rolled back": func(t *testing.T, s *agent.Service, thread string) {
			run, _ := do(t, s, thread, says("on"))
			if _, err := s.Runs().Cancel(acme(t), thread, run.ID, true, true); err != nil {
				t.Fatal(err)
			}
		},
		"the answer that waits is changed behind another one": func(t *testing.T, s *agent.Service, thread string) {
			do(t, s, thread, says("on"))
			at, err := s.Threads().State(acme(t), thread, "")
			if err != nil {
				t.Fatal(err)
			}
			changed(t, s, thread, agent.StateChange{Values: values(replaced, at.Messages[1].ID)})
			for _, m := range at.Messages[2:] {
				changed(t, s, thread, agent.StateChange{Values: values(`{"messages":[{"type":"remove","id":"%"}]}`, m.ID)})
			}
			do(t, s, thread, bare(""))
		},
		"the answer that waits gets another id behind another one": func(t *testing.T, s *agent.Service, thread string) {
			do(t, s, thread, says("on"))
			at, err := s.Threads().State(acme(t), thread, "")
			if err != nil {
				t.Fatal(err)
			}
			all := []any{map[string]string{"type": "remove", "id": conversation.RemoveAll}}
			for i, m := range at.Messages {
				m.ID = fmt.Sprint("m", i)
				all = append(all, m)
			}
			raw, err := json.Marshal(map[string]any{"messages": all})
			if err != nil {
				t.Fatal(err)
			}
			changed(t, s, thread, agent.StateChange{Values: raw})
			for _, id := range []string{"m3", "m2"} {
				changed(t, s, thread, agent.StateChange{Values: values(`{"messages":[{"type":"remove","id":"%"}]}`, id)})
			}
			do(t, s, thread, bare(""))
		},
		"the rejection is removed": func(t *testing.T, s *agent.Service, thread string) {
			do(t, s, thread, bare(rejects))
			at, err := s.Threads().State(acme(t), thread, "")
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range slices.Backward(at.Messages[2:]) {
				changed(t, s, thread, agent.StateChange{Values: values(`{"messages":[{"type":"remove","id":"%"}]}`, m.ID)})
			}
			do(t, s, thread, bare(""))
		},
		"a result of the client's becomes that of another call": func(t *testing.T, s *agent.Service, thread string) {
			at, err := s.Threads().State(acme(t), thread, "")
			if err != nil {
				t.Fatal(err)
			}
			call := at.Messages[1].ToolCalls[0].ID
			changed(t, s, thread, agent.StateChange{Values: values(`{"messages":[{"type":"tool","id":"r","tool_call_id":"%","content":"no"}]}`, call)})
			changed(t, s, thread, agent.StateChange{Values: json.RawMessage(`{"messages":[{"type":"tool","id":"r","tool_call_id":"other","content":"no"}]}`)})
			do(t, s, thread, commands(`"tools"`, ""))
		},
		"a run that fails, and goto": func(t *testing.T, s *agent.Service, thread string) {
			do(t, s, thread, says("fail"))
			do(t, s, thread, commands(`"tools"`, ""))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, thread, m, restart := asking(t, onRun)
			do(t, s, thread)
			stillAsked(t, s, thread, m)
			s = restart()
			_, _, err := s.Runs().Create(acme(t), thread, bare(`"yes"`))
			if !errors.Is(err, errs.Invalid) {
				t.Errorf("Create = %v", err)
			}
			stillAsked(t, s, thread, m)
			run, _, err := s.Runs().Create(acme(t), thread, bare(rejects))
			if err != nil {
				t.Fatal(err)
			}
			wait(t, s, thread, run)
			equal(t, "made", m.list(), []string(nil))
		})
	}
	t.Run("a copy of the thread", func(t *testing.T) {
		s, thread, m, _ := asking(t, onRun)
		copied, err := s.Threads().Copy(acme(t), thread)
		if err != nil {
			t.Fatal(err)
		}
		run, _, err := s.Runs().Create(acme(t), copied.ID, bare(""))
		if err != nil {
			t.Fatal(err)
		}
		wait(t, s, copied.ID, run)
		stillAsked(t, s, copied.ID, m)
	})
}

func commands(to, update string) agent.NewRun {
	return agent.NewRun{AssistantID: "agent", Request: conversation.RunRequest{Command: &conversation.Command{Goto: json.RawMessage(to), Update: json.RawMessage(update)}}}
}

func changed(t *testing.T, s *agent.Service, thread string, c agent.StateChange) {
	t.Helper()
	if _, err := s.Threads().Change(acme(t), thread, c); err != nil {
		t.Fatal(err)
	}
}

func values(text, id string) json.RawMessage {
	return json.RawMessage(slices.Concat([]byte(text[:slices.Index([]byte(text), '%')]), []byte(id), []byte(text[slices.Index([]byte(text), '%')+1:])))
}

// TestANewInputLeavesTheCallUndone: as with LangGraph the conversation goes on without
// it.
func TestANewInputLeavesTheCallUndone(t *testing.T) {
	t.Parallel()
	for _, m := range []conversation.Multitask{"", conversation.MultitaskReject, conversation.MultitaskInterrupt, conversation.MultitaskRollback, conversation.MultitaskEnqueue} {
		_, thread, calls, restart := asking(t, onRun)
		s := restart()
		n := says("on")
		n.Multitask = m
		_, said := do(t, s, thread, n)
		equal(t, "said", said, []string{"human:call run", "ai:", "human:on", "ai:said on"})
		equal(t, "made", calls.list(), []string(nil))
	}
}

// TestAnAnswerThatWaitsIsOfItsOwnQuestion: a person who answers twice has not answered
// the next question.
func TestAnAnswerThatWaitsIsOfItsOwnQuestion(t *testing.T) {
	t.Parallel()
	s, thread, m, _ := asking(t, onRun)
	first, second := bare(approves), bare(approves)
	second.Multitask = conversation.MultitaskEnqueue
	a, _, err := s.Runs().Create(acme(t), thread, first)
	if err != nil {
		t.Fatal(err)
	}
	b, _, err := s.Runs().Create(acme(t), thread, second)
	if err != nil {
		t.Fatal(err)
	}
	wait(t, s, thread, a)
	wait(t, s, thread, b)
	equal(t, "made", m.list(), []string{"run{}"})
}

// TestWishesToBeAskedThatHaveNoMeaning are refused: read as nothing they would let the
// tools run.
func TestWishesToBeAskedThatHaveNoMeaning(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s, _ := w.daemon()
	for _, raw := range []string{
		`"run"`, `["run"]`, `7`, `{"no tool":true}`, `{"run":"yes"}`, `{"run":7}`, `{"run":null}`, `{"run":[]}`, `{"run":["dance"]}`, `{"run":{}}`,
		`{"run":{"allowed_decisions":[]}}`, `{"run":{"allowed":["approve"]}}`, `{"run":{"allowed_decisions":"approve"}}`, `{"*":{"when":"always"}}`,
	} {
		for _, in := range []string{"configurable", "context", "assistant"} {
			n := says("call run")
			switch in {
			case "configurable":
				n.Request.Configurable = map[string]json.RawMessage{"interrupt_on": json.RawMessage(raw)}
			case "context":
				n.Request.Context = json.RawMessage(`{"interrupt_on":` + raw + `}`)
			case "assistant":
				a, err := s.Assistants().Create(acme(t), agent.NewAssistant{GraphID: "agent", Config: json.RawMessage(`{"configurable":{"interrupt_on":` + raw + `}}`)})
				if err != nil {
					t.Fatal(err)
				}
				n.AssistantID = a.ID
			}
			if _, _, err := s.Runs().Create(acme(t), newThread(t, s), n); !errors.Is(err, conversation.ErrUnprocessable) {
				t.Errorf("%s in the %s: %v", raw, in, err)
			}
		}
	}
	for _, change := range []func(*agent.NewRun){
		func(n *agent.NewRun) { n.Request.InterruptBefore = []string{"no tool"} },
		func(n *agent.NewRun) { n.Request.InterruptBefore = []string{"tools", ""} },
		func(n *agent.NewRun) { n.Request.InterruptAfter = []string{"no tool"} },
	} {
		n := says("call run")
		change(&n)
		if _, _, err := s.Runs().Create(acme(t), newThread(t, s), n); !errors.Is(err, conversation.ErrUnprocessable) {
			t.Errorf("%+v: %v", n.Request, err)
		}
	}
	for _, raw := range []string{`true`, `"*"`, `{"run":true}`, `{"*":true}`, `{"run":["approve"]}`, `{"run":{"allowed_decisions":["approve","reject"],"description":"May it?"}}`} {
		_, thread, m, _ := asking(t, func(n *agent.NewRun) {
			n.Request.Configurable = map[string]json.RawMessage{"interrupt_on": json.RawMessage(raw)}
		})
		equal(t, "made in "+thread, m.list(), []string(nil))
	}
}
