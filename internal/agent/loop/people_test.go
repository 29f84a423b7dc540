package loop_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/agent/loop"
	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/llm"
)

func asks(tools ...string) conversation.Policy {
	p := conversation.Policy{Tools: map[string]conversation.Rule{}}
	for _, tool := range tools {
		p.Tools[tool] = conversation.Rule{Decision: conversation.Ask}
	}
	return p
}

// TestApproval: a run waits before tools that a person decides about, and goes on with
// each kind of decision.
func TestApproval(t *testing.T) {
	for _, c := range []struct {
		name, resume string
		made         []string
		said         []string // from the third message on
	}{
		{"approve", `{"decisions":[{"type":"approve"}]}`, []string{`run{"a":1}`}, []string{"tool:did run", "ai:ok"}},
		{"a word", `"approve"`, []string{`run{"a":1}`}, []string{"tool:did run", "ai:ok"}},
		{
			"edit", `{"decisions":[{"type":"edit","edited_action":{"name":"look","args":{"b":2}}}]}`,
			[]string{`look{"b":2}`},
			[]string{"tool:did look", "ai:ok"},
		},
		{
			"reject", `{"decisions":[{"type":"reject","message":"too dear"}]}`, nil,
			[]string{"tool:The user did not allow this call. They said: too dear!", "ai:ok"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, calls("run", `{"a":1}`), says("ok"))
			b.config.Policy = asks("run")
			ended := b.run(t.Context(), human("go"))
			if ended.Status != conversation.RunSuccess || len(ended.Interrupts) != 1 {
				t.Fatalf("ended %+v", ended)
			}
			var q struct {
				Requests []struct{ Name string } `json:"action_requests"`
				Reviews  []struct {
					Allowed []string `json:"allowed_decisions"`
				} `json:"review_configs"`
			}
			if err := json.Unmarshal(ended.Interrupts[0].Value, &q); err != nil || q.Requests[0].Name != "run" || len(q.Reviews[0].Allowed) != 3 {
				t.Errorf("question = %s, %v", ended.Interrupts[0].Value, err)
			}
			if got := b.memory.head().Checkpoint.Tasks[0].Interrupts; len(got) != 1 || len(got[0].ID) != 32 {
				t.Errorf("the checkpoint has %+v", got)
			}
			if len(b.hands.made) > 0 {
				t.Fatalf("made %q before anybody decided", b.hands.made)
			}
			b.run(t.Context(), resume(c.resume))
			equal(t, "made", b.hands.made, c.made)
			equal(t, "said", b.memory.said()[2:], c.said)
		})
	}
}

// TestDecisionsThatAreNone leave the thread waiting.
func TestDecisionsThatAreNone(t *testing.T) {
	for _, raw := range []string{`{"decisions":[]}`, `{"decisions":[{"type":"approve"},{"type":"approve"}]}`, `{"decisions":[{"type":"dance"}]}`, `7`} {
		t.Run(raw, func(t *testing.T) {
			b := newBench(t, calls("run", `{}`), says("ok"))
			b.config.Policy = asks("run")
			b.run(t.Context(), human("go"))
			if ended := b.run(t.Context(), resume(raw)); ended.Status != conversation.RunFailed || ended.Error != "ValueError" {
				t.Errorf("ended %+v", ended)
			}
			b.run(t.Context(), resume(`{"decisions":[{"type":"approve"}]}`))
			equal(t, "made", b.hands.made, []string{"run{}"})
		})
	}
}

func TestPolicyDenies(t *testing.T) {
	b := newBench(t, calls("run", `{}`, "look", `{}`), says("ok"))
	b.config.Policy = conversation.Policy{Tools: map[string]conversation.Rule{"run": {Decision: conversation.Deny}}}
	b.run(t.Context(), human("go"))
	equal(t, "made", b.hands.made, []string{"look{}"})
	if said := b.memory.said(); !strings.Contains(said[2], "does not allow") || said[3] != "tool:did look" {
		t.Errorf("said %q", said)
	}
}

func TestBreakpoints(t *testing.T) {
	b := newBench(t, calls("run", `{}`), says("ok"))
	b.config.InterruptBefore = []string{"tools"}
	ended := b.run(t.Context(), human("go"))
	if ended.Status != conversation.RunSuccess || len(b.hands.made) > 0 {
		t.Errorf("ended %+v, made %q", ended, b.hands.made)
	}
	equal(t, "next", b.memory.head().Checkpoint.Next, []string{"tools"})
	b.run(t.Context(), loop.Start{})
	equal(t, "said", b.memory.said(), []string{"human:go", "ai:", "tool:did run", "ai:ok"})

	b = newBench(t, calls("run", `{}`), says("ok"))
	b.config.InterruptAfter = []string{"*"}
	b.run(t.Context(), human("go"))
	equal(t, "next after the model", b.memory.head().Checkpoint.Next, []string{"tools"})
}

// TestGoto ends a turn that waits.
func TestGoto(t *testing.T) {
	b := newBench(t, calls("run", `{}`), says("fine"))
	b.config.Policy = asks("run")
	b.run(t.Context(), human("go"))
	b.run(t.Context(), loop.Start{Command: &conversation.Command{Goto: json.RawMessage(`"__end__"`)}})
	if head := b.memory.head().Checkpoint; len(head.Next) != 0 || head.Source != conversation.SourceUpdate {
		t.Errorf("head = %+v", head)
	}
	// Providers want a result of each call.
	b.run(t.Context(), human("never mind"))
	result, ok := b.model.asked[1].Messages[2].Parts[0].(llm.ToolResult)
	if !ok || !result.Failed {
		t.Errorf("asked %+v", b.model.asked[1].Messages)
	}
}

// TestCancel keeps what the model had said, and what tools had done.
func TestCancel(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	b := newBench(t, turn{events: []llm.Event{llm.TextDelta{Text: "half a"}}, then: func() { cancel(loop.ErrCanceled) }}, says("ok"))
	equal(t, "ended", b.run(ctx, human("go")), conversation.Ended{Status: conversation.RunInterrupted})
	equal(t, "said", b.memory.said(), []string{"human:go", "ai:half a"})

	ctx, cancel = context.WithCancelCause(t.Context())
	b = newBench(t, calls("run", `{}`, "look", `{}`), says("ok"))
	b.hands.then = func(loop.Call) { cancel(loop.ErrCanceled) }
	equal(t, "ended", b.run(ctx, human("go")), conversation.Ended{Status: conversation.RunInterrupted})
	equal(t, "said", b.memory.said(), []string{"human:go", "ai:", "tool:did run", "tool:This was not run: the turn was interrupted before.!"})
	b.hands.then = nil
	b.run(t.Context(), loop.Start{})
	equal(t, "last", b.memory.said()[4], "ai:ok")
}

// TestNextDaemonTakesUp: a run whose daemon stopped goes on, and tools are not run twice.
func TestNextDaemonTakesUp(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	b := newBench(t, calls("run", `{}`), says("ok"))
	b.hands.then = func(loop.Call) { cancel(loop.ErrStopping) }
	if _, err := loop.Run(ctx, b.config, loop.Start{RunID: "run", Input: human("go").Input}); !errors.Is(err, loop.ErrStopping) {
		t.Fatalf("Run = %v", err)
	}
	equal(t, "next", b.memory.head().Checkpoint.Next, []string{"tools"})
	s := human("go")
	s.Again = true
	equal(t, "ended", b.run(t.Context(), s), conversation.Ended{Status: conversation.RunSuccess})
	equal(t, "made", b.hands.made, []string{"run{}"})
	if said := b.memory.said(); len(said) != 4 || !strings.Contains(said[2], "restarted") || said[3] != "ai:ok" {
		t.Errorf("said %q", said)
	}
	// Between the checkpoint of the input and the next one.
	b = newBench(t, says("ok"))
	first := b.memory
	b.config.Record = &dies{memory: first, after: 1}
	if _, err := loop.Run(t.Context(), b.config, loop.Start{RunID: "run", Input: human("go").Input}); err == nil {
		t.Fatal("the recorder did not die")
	}
	b.config.Record = first
	b.run(t.Context(), s)
	equal(t, "trail", first.trail(), []string{"input 0 __start__", "loop 1 agent human", "loop 2  human ai"})
}

// dies is a recorder that fails after some checkpoints.
type dies struct {
	*memory
	after int
}

func (d *dies) Commit(ctx context.Context, c conversation.Checkpoint, state []conversation.Entry) (conversation.Checkpoint, []conversation.Entry, error) {
	if d.after--; d.after < 0 {
		return c, nil, errors.New("the disk is full")
	}
	return d.memory.Commit(ctx, c, state)
}

// TestTooLong: a model that cannot take in a long conversation is shown older turns in
// short, and that is said; the state stays whole.
func TestTooLong(t *testing.T) {
	long := &llm.Error{Fault: llm.TooLong, Provider: "p", Message: "too long"}
	var turns []turn
	for range 8 {
		turns = append(turns, says("answer"))
	}
	turns = append(turns, turn{err: long}, turn{err: long}, says("folded"), says("next"))
	b := newBench(t, turns...)
	for i := range 8 {
		b.run(t.Context(), human(fmt.Sprintf("question %d", i)))
	}
	b.run(t.Context(), human("the last one"))
	if n := len(b.memory.said()); n != 18 {
		t.Errorf("the state has %d messages", n)
	}
	whole, once, twice := b.model.asked[8], b.model.asked[9], b.model.asked[10]
	if len(whole.Messages) != 17 || len(once.Messages) != 7 || len(twice.Messages) != 3 {
		t.Errorf("asked with %d, %d and %d messages", len(whole.Messages), len(once.Messages), len(twice.Messages))
	}
	if !strings.Contains(twice.System, "question 6") || strings.Contains(whole.System, "question") {
		t.Errorf("system = %q", twice.System)
	}
	folded := 0
	for _, n := range b.notices() {
		if n.Type == conversation.NoticeFolded {
			folded = n.Messages
		}
	}
	if folded != 7 {
		t.Errorf("told that %d turns are folded", folded)
	}
	b.run(t.Context(), human("more"))
	if n := len(b.model.asked[11].Messages); n >= 17 {
		t.Errorf("the next run begins with %d messages", n)
	}
}

// TestBlindModel is asked again without images, once for all runs.
func TestBlindModel(t *testing.T) {
	b := newBench(t, turn{err: &llm.Error{Fault: llm.Unsupported, Message: "no images"}}, says("ok"), says("ok"))
	start := loop.Start{Input: []conversation.Message{{
		Type: conversation.Human, Content: json.RawMessage(`[{"type":"text","text":"see"},{"type":"image","mimeType":"image/png","data":"AQ=="}]`),
	}}}
	b.run(t.Context(), start)
	b.run(t.Context(), human("again"))
	for i, want := range []bool{true, false, false} {
		seen := false
		for _, p := range b.model.asked[i].Messages[0].Parts {
			_, ok := p.(llm.Image)
			seen = seen || ok
		}
		if seen != want {
			t.Errorf("request %d has an image: %t", i, seen)
		}
	}
}

// TestThoughts go to clients as blocks, and back to the provider with its own marks.
func TestThoughts(t *testing.T) {
	first := turn{events: []llm.Event{
		llm.ReasoningDelta{Text: "hm"}, llm.ReasoningDelta{Text: "m", Opaque: json.RawMessage(`{"signature":"s"}`)},
		llm.TextDelta{Text: "say"}, llm.TextDelta{Text: "ing"}, llm.Done{Stop: llm.StopEnd},
	}}
	b := newBench(t, first, says("ok"))
	b.run(t.Context(), human("go"))
	b.run(t.Context(), human("on"))
	parts := b.model.asked[1].Messages[1].Parts
	equal(t, "parts", parts, []llm.Part{llm.Reasoning{Text: "hmm", Opaque: json.RawMessage(`{"signature":"s"}`)}, llm.Text{Text: "saying"}})
	// Clients join the pieces of blocks by their index.
	joined := map[int]string{}
	for _, e := range b.memory.events {
		var blocks []struct {
			Index           int
			Text, Reasoning string
		}
		if e.Chunk != nil && e.Chunk.Step == 1 && json.Unmarshal(e.Chunk.Message.Content, &blocks) == nil {
			for _, b := range blocks {
				joined[b.Index] += b.Text + b.Reasoning
			}
		}
	}
	equal(t, "joined", joined, map[int]string{0: "hmm", 1: "saying"})
}
