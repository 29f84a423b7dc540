package loop_test

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/internal/agent/loop"
	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/llm"
)

// turn is what the scripted model does when it is asked: it fails, or says events.
type turn struct {
	events []llm.Event
	err    error
	// then is called before the end, as by somebody who cancels.
	then func()
}

// script is a model that has its answers by heart, and keeps what it was asked.
type script struct {
	turns []turn
	asked []llm.Request
}

func (s *script) Stream(ctx context.Context, q llm.Request) iter.Seq2[llm.Event, error] {
	return func(yield func(llm.Event, error) bool) {
		n := len(s.asked)
		s.asked = append(s.asked, q)
		if n >= len(s.turns) {
			yield(nil, errors.New("the script is over"))
			return
		}
		for _, e := range s.turns[n].events {
			if !yield(e, nil) {
				return
			}
		}
		if s.turns[n].then != nil {
			s.turns[n].then()
		}
		if ctx.Err() != nil {
			yield(nil, ctx.Err())
			return
		}
		if s.turns[n].err != nil {
			yield(nil, s.turns[n].err)
		}
	}
}

func says(text string) turn {
	return turn{events: []llm.Event{
		llm.TextDelta{Text: text[:len(text)/2]}, llm.TextDelta{Text: text[len(text)/2:]}, llm.Usage{Input: 10, Output: 5}, llm.Done{Stop: llm.StopEnd},
	}}
}

// calls is an answer that calls tools: pairs of a name and arguments.
func calls(pairs ...string) turn {
	t := turn{}
	for i := 0; i < len(pairs); i += 2 {
		t.events = append(t.events,
			llm.ToolCallDelta{Index: i / 2, ID: "call" + pairs[i], Name: pairs[i]}, llm.ToolCallDelta{Index: i / 2, Arguments: pairs[i+1]})
	}
	t.events = append(t.events, llm.Usage{Input: 10, Output: 5}, llm.Done{Stop: llm.StopTools})
	return t
}

// hands are tools that say what they were called with.
type hands struct {
	mu   sync.Mutex
	made []string
	then func(loop.Call)
}

func (h *hands) List() []llm.Tool { return []llm.Tool{{Name: "run"}, {Name: "look"}} }

func (h *hands) Call(_ context.Context, c loop.Call) loop.Result {
	h.mu.Lock()
	h.made = append(h.made, c.Name+string(c.Arguments))
	h.mu.Unlock()
	if h.then != nil {
		h.then(c)
	}
	c.Output("box", "stdout", "working")
	return loop.Result{
		Content: "did " + c.Name, Artifact: json.RawMessage(`{"a":1}`), Failed: c.Name == "fails",
		Images: []llm.Image{{MIME: "image/png", Data: []byte{1}}},
	}
}

// memory is a recorder that keeps all.
type memory struct {
	events []conversation.Event
	points []conversation.Checkpoint
	states map[string][]conversation.Entry
	places int64
}

func (m *memory) Tell(e conversation.Event) error {
	m.events = append(m.events, e)
	return nil
}

func (m *memory) Commit(_ context.Context, c conversation.Checkpoint, state []conversation.Entry) (conversation.Checkpoint, []conversation.Entry, error) {
	state = slices.Clone(state)
	for i := range state {
		if state[i].Place == 0 {
			m.places++
			state[i].Place = m.places
		}
		c.Messages.Add(state[i].Place)
	}
	m.points = append(m.points, c)
	if m.states == nil {
		m.states = map[string][]conversation.Entry{}
	}
	m.states[c.ID] = state
	return c, state, nil
}

func (m *memory) Pause(_ context.Context, c conversation.Checkpoint) error {
	for i := range m.points {
		if m.points[i].ID == c.ID {
			m.points[i].Tasks, m.points[i].Approval = c.Tasks, c.Approval
		}
	}
	return nil
}

// head is where the next run of the thread begins.
func (m *memory) head() loop.State {
	if len(m.points) == 0 {
		return loop.State{}
	}
	c := m.points[len(m.points)-1]
	return loop.State{Checkpoint: c, Messages: m.states[c.ID]}
}

// trail is the checkpoints as "source step next messages".
func (m *memory) trail() []string {
	var out []string
	for _, c := range m.points {
		parts := []string{string(c.Source), string(rune('0' + c.Step + 1)), strings.Join(c.Next, "+")}
		for _, e := range m.states[c.ID] {
			parts = append(parts, e.Message.Type)
		}
		out = append(out, strings.Join(parts, " "))
	}
	return out
}

// said is the state as type:text.
func (m *memory) said() []string {
	var out []string
	for _, e := range m.head().Messages {
		text := e.Message.Type + ":" + conversation.TextOf(e.Message.Content)
		if e.Message.Status == conversation.StatusError {
			text += "!"
		}
		out = append(out, text)
	}
	return out
}

type bench struct {
	*testing.T
	model  *script
	hands  *hands
	memory *memory
	config loop.Config
}

func newBench(t *testing.T, turns ...turn) *bench {
	b := &bench{T: t, model: &script{turns: turns}, hands: &hands{}, memory: &memory{}}
	b.config = loop.Config{Model: b.model, Provider: "test", Name: "m", Tools: b.hands, Record: b.memory, Sight: new(loop.Sight)}
	return b
}

func (b *bench) run(ctx context.Context, s loop.Start) conversation.Ended {
	b.Helper()
	s.RunID, s.State = "run", b.memory.head()
	s.Question = s.State.Checkpoint.Question()
	ended, err := loop.Run(ctx, b.config, s)
	if err != nil {
		b.Fatalf("Run: %v", err)
	}
	return ended
}

func human(text string) loop.Start {
	return loop.Start{Input: []conversation.Message{{Type: conversation.Human, Content: conversation.Text(text)}}}
}

func resume(raw string) loop.Start {
	return loop.Start{Command: &conversation.Command{Resume: json.RawMessage(raw)}}
}

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// TestTurnWithTools has the checkpoints that LangGraph makes of one turn with a tool.
func TestTurnWithTools(t *testing.T) {
	b := newBench(t, calls("run", `{"a":1}`), says("done"))
	ended := b.run(t.Context(), human("go"))
	equal(t, "ended", ended, conversation.Ended{Status: conversation.RunSuccess})
	equal(t, "trail", b.memory.trail(), []string{
		"input 0 __start__", "loop 1 agent human", "loop 2 tools human ai", "loop 3 agent human ai tool", "loop 4  human ai tool ai",
	})
	equal(t, "made", b.hands.made, []string{`run{"a":1}`})
	equal(t, "said", b.memory.said(), []string{"human:go", "ai:", "tool:did run", "ai:done"})
	for i, c := range b.memory.points[1:] {
		if c.Parent != b.memory.points[i].ID || c.ID <= c.Parent {
			t.Errorf("checkpoint %d: %s is not after its parent %s", i+1, c.ID, c.Parent)
		}
	}
	// The second request has the call, its result and what the tool showed.
	last := b.model.asked[1].Messages
	result, _ := last[2].Parts[0].(llm.ToolResult)
	if len(last) != 3 || result.CallID != "callrun" || result.Name != "run" || len(result.Parts) != 2 {
		t.Errorf("asked %+v", last)
	}
	// Pieces of the answer joined are the answer.
	text, id := "", ""
	for _, e := range b.memory.events {
		if e.Chunk != nil && e.Chunk.Message.Type == conversation.AI && e.Chunk.Step == 3 {
			text += conversation.TextOf(e.Chunk.Message.Content)
			id = e.Chunk.Message.ID
		}
	}
	if final := b.memory.head().Messages[3].Message; text != "done" || id != final.ID || final.Usage.Total != 15 {
		t.Errorf("pieces = %q of %s, message %+v", text, id, final)
	}
}

func TestSecondTurnGoesOn(t *testing.T) {
	b := newBench(t, says("one"), says("two"))
	b.run(t.Context(), human("first"))
	b.run(t.Context(), human("second"))
	equal(t, "said", b.memory.said(), []string{"human:first", "ai:one", "human:second", "ai:two"})
	equal(t, "steps", b.memory.trail()[3:], []string{"input 3 __start__ human ai", "loop 4 agent human ai human", "loop 5  human ai human ai"})
}

// TestCallsThatCannotBeMade are answered, and the model goes on.
func TestCallsThatCannotBeMade(t *testing.T) {
	b := newBench(t, calls("run", `{"a":`, "look", ``, "other", `[1]`), says("ok"))
	b.run(t.Context(), human("go"))
	equal(t, "made", b.hands.made, []string{"look{}"})
	said := b.memory.said()
	if len(said) != 6 || !strings.HasSuffix(said[2], "!") || !strings.Contains(said[3], "JSON") || said[4] != "tool:did look" {
		t.Errorf("said %q", said)
	}
	for _, p := range b.model.asked[1].Messages[1].Parts {
		if c, ok := p.(llm.ToolCall); ok && !json.Valid([]byte(c.Arguments)) {
			t.Errorf("a provider is sent the arguments %q", c.Arguments)
		}
	}
}

func TestFaultsOfTheModel(t *testing.T) {
	for _, c := range []struct {
		fault llm.Fault
		want  string
	}{
		{llm.Denied, "AuthenticationError"}, {llm.Limited, "RateLimitError"}, {llm.Broken, "BrokenStreamError"}, {llm.Unavailable, "ModelUnavailableError"},
	} {
		t.Run(string(c.fault), func(t *testing.T) {
			b := newBench(t, turn{events: []llm.Event{llm.TextDelta{Text: "half"}}, err: &llm.Error{Fault: c.fault, Provider: "p", Message: "why"}}, says("again"))
			ended := b.run(t.Context(), human("go"))
			equal(t, "ended", ended, conversation.Ended{Status: conversation.RunFailed, Error: c.want, Message: "p: why"})
			task := b.memory.head().Checkpoint.Tasks[0]
			if task.Error == nil || *task.Error != c.want+": p: why" {
				t.Errorf("task = %+v", task)
			}
			// The thread goes on from there, without new input.
			equal(t, "second", b.run(t.Context(), loop.Start{}), conversation.Ended{Status: conversation.RunSuccess})
			equal(t, "said", b.memory.said(), []string{"human:go", "ai:again"})
		})
	}
}

func TestRetriesAreTold(t *testing.T) {
	first := says("ok")
	first.events = append([]llm.Event{llm.Retrying{After: 2e9, Err: &llm.Error{Provider: "p", Message: "busy"}}}, first.events...)
	b := newBench(t, first)
	b.run(t.Context(), human("go"))
	notices := b.notices()
	equal(t, "notices", notices, []conversation.Notice{
		{Type: conversation.NoticeRetry, RetryAfter: 2000, Message: "p: busy"}, {Type: conversation.NoticeUsage, Tokens: 15},
	})
}

func (b *bench) notices() []conversation.Notice {
	var out []conversation.Notice
	for _, e := range b.memory.events {
		var n conversation.Notice
		if e.Custom != nil && json.Unmarshal(e.Custom, &n) == nil {
			out = append(out, n)
		}
	}
	return out
}

func TestLimits(t *testing.T) {
	endless := make([]turn, 10)
	for i := range endless {
		endless[i] = calls("run", `{}`)
	}
	for _, c := range []struct {
		name   string
		set    func(*loop.Config)
		want   string
		asked  int
		onward []string
	}{
		{"turns", func(c *loop.Config) { c.MaxTurns = 3 }, "GraphRecursionError", 3, []string{"agent"}},
		{"steps", func(c *loop.Config) { c.MaxSteps = 3 }, "GraphRecursionError", 2, []string{"tools"}},
		{"tokens", func(c *loop.Config) { c.MaxTokens = 40 }, "TokenBudgetError", 3, []string{"agent"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, endless...)
			c.set(&b.config)
			ended := b.run(t.Context(), human("go"))
			if ended.Status != conversation.RunFailed || ended.Error != c.want || len(b.model.asked) != c.asked {
				t.Errorf("ended %+v after %d", ended, len(b.model.asked))
			}
			equal(t, "next", b.memory.head().Checkpoint.Next, c.onward)
			if again := b.run(t.Context(), loop.Start{}); again.Error != c.want {
				t.Errorf("the next run ended %+v", again)
			}
			if len(b.model.asked) <= c.asked {
				t.Error("the next run did not go on")
			}
		})
	}
}
