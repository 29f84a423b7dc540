package modes_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front/agentapi/modes"
)

var update = flag.Bool("update", false, "rewrite golden files")

// journal is a run as it is written down, with the states that it names.
type journal struct {
	run    modes.Run
	events []conversation.Event
	states map[string]conversation.Checkpoint
	texts  map[string][]conversation.Message
	before []conversation.Message // of the newest state
}

func (j *journal) State(_ context.Context, id string) (conversation.Checkpoint, []conversation.Message, error) {
	c, ok := j.states[id]
	if !ok {
		return c, nil, errs.E(errs.NotFound, "no checkpoint %s", id)
	}
	return c, j.texts[id], nil
}

func at(n int) time.Time { return time.Date(2026, 11, 25, 10, 0, n, 0, time.UTC) }

func newJournal(attempt int) *journal {
	j := &journal{
		run: modes.Run{
			Run:      conversation.Run{ID: "run", AssistantID: "assistant", Request: conversation.RunRequest{Input: json.RawMessage(`{"messages":[{"role":"user","content":"hi"}]}`)}},
			ThreadID: "thread", GraphID: "agent", Version: "1",
		},
		states: map[string]conversation.Checkpoint{}, texts: map[string][]conversation.Message{},
	}
	j.add(conversation.Event{Begun: &conversation.Begun{RunID: "run", ThreadID: "thread", Attempt: attempt}})
	return j
}

func (j *journal) add(e conversation.Event) {
	e.Time = at(len(j.events))
	j.events = append(j.events, e)
}

// state adds a state to the thread.
func (j *journal) state(s conversation.Step, more ...conversation.Message) {
	j.before = append(slices.Clip(j.before), more...)
	c := conversation.Checkpoint{ID: s.ID, Parent: s.Parent, Source: s.Source, Step: s.Step, Next: s.Next}
	for _, node := range s.Next {
		c.Tasks = append(c.Tasks, conversation.Task{ID: "task-" + s.ID, Name: node})
	}
	j.states[s.ID], j.texts[s.ID] = c, j.before
}

// checkpoint is a state that the run made.
func (j *journal) checkpoint(s conversation.Step, more ...conversation.Message) {
	j.state(s, more...)
	j.add(conversation.Event{Checkpoint: &s})
}

func (j *journal) started(node, checkpoint string, step int) {
	j.add(conversation.Event{TaskStarted: &conversation.TaskStarted{
		ID: "task-" + checkpoint, Node: node, Step: step, Checkpoint: checkpoint, Triggers: []string{"branch:to:" + node},
	}})
}

func (j *journal) piece(node string, step int, m conversation.Message, chunks ...conversation.ToolCallChunk) {
	c := conversation.Chunk{Node: node, Step: step, Message: conversation.MessageChunk{Message: m, ToolCallChunks: chunks}}
	if m.Type == conversation.AI {
		c.Model, c.Provider = "scripted", "openai"
	}
	j.add(conversation.Event{Chunk: &c})
}

func (j *journal) done(node, checkpoint string, step int, e conversation.TaskEnded) {
	e.ID, e.Node, e.Step = "task-"+checkpoint, node, step
	j.add(conversation.Event{TaskEnded: &e})
}

func ai(id, text string) conversation.Message {
	return conversation.Message{Type: conversation.AI, ID: id, Content: conversation.Text(text)}
}

var (
	human  = conversation.Message{Type: conversation.Human, ID: "h1", Content: conversation.Text("hi")}
	called = conversation.Message{
		Type: conversation.AI, ID: "a1", Content: conversation.Text("I look."),
		ToolCalls: []conversation.ToolCall{{Name: "look", Args: json.RawMessage(`{"at":"it"}`), ID: "c1", Type: "tool_call"}},
		Usage:     &conversation.Usage{Input: 3, Output: 2, Total: 5},
	}
	result = conversation.Message{Type: conversation.Tool, ID: "t1", Name: "look", ToolCallID: "c1", Status: conversation.StatusSuccess, Content: conversation.Text("seen")}
)

// asks is the first turn of a conversation: a question, and an answer with a call.
func asks(j *journal) {
	j.checkpoint(conversation.Step{ID: "1", Source: conversation.SourceInput, Step: -1, Next: []string{"__start__"}})
	j.checkpoint(conversation.Step{ID: "2", Parent: "1", Source: conversation.SourceLoop, Step: 0, Next: []string{"agent"}}, human)
	j.started("agent", "2", 1)
	j.piece("agent", 1, ai("a1", "I lo"))
	j.piece("agent", 1, ai("a1", "ok."))
	j.piece("agent", 1, conversation.Message{Type: conversation.AI, ID: "a1"}, conversation.ToolCallChunk{ID: "c1", Name: "look", Type: "tool_call_chunk"})
	j.piece("agent", 1, conversation.Message{Type: conversation.AI, ID: "a1"}, conversation.ToolCallChunk{Args: `{"at":`, Type: "tool_call_chunk"})
	j.piece("agent", 1, conversation.Message{Type: conversation.AI, ID: "a1"}, conversation.ToolCallChunk{Args: `"it"}`, Type: "tool_call_chunk"})
	j.piece("agent", 1, conversation.Message{Type: conversation.AI, ID: "a1", Usage: called.Usage})
	j.done("agent", "2", 1, conversation.TaskEnded{Messages: []conversation.Message{called}})
	j.checkpoint(conversation.Step{ID: "3", Parent: "2", Source: conversation.SourceLoop, Step: 1, Next: []string{"tools"}}, called)
}

// acts is the second half of it: the call's result, and an answer.
func acts(j *journal) {
	j.started("tools", "3", 2)
	j.add(conversation.Event{Custom: json.RawMessage(`{"type":"tool_output","tool_call_id":"c1","stream":"stdout","text":"…"}`)})
	j.piece("tools", 2, result)
	j.done("tools", "3", 2, conversation.TaskEnded{Messages: []conversation.Message{result}})
	j.checkpoint(conversation.Step{ID: "4", Parent: "3", Source: conversation.SourceLoop, Step: 2, Next: []string{"agent"}}, result)
	j.started("agent", "4", 3)
	j.piece("agent", 3, ai("a2", "There."))
	j.done("agent", "4", 3, conversation.TaskEnded{Messages: []conversation.Message{ai("a2", "There.")}})
	j.checkpoint(conversation.Step{ID: "5", Parent: "4", Source: conversation.SourceLoop, Step: 3}, ai("a2", "There."))
	j.ended(conversation.Ended{Status: conversation.RunSuccess})
}

func (j *journal) ended(e conversation.Ended) { j.add(conversation.Event{Ended: &e}) }

var question = []conversation.Interrupt{{ID: "00112233445566778899aabbccddeeff", Value: json.RawMessage(`{"action_requests":[]}`)}}

// journals are runs of each kind.
var journals = map[string]func() *journal{
	"whole": func() *journal {
		j := newJournal(1)
		asks(j)
		acts(j)
		return j
	},
	"breakpoint": func() *journal {
		j := newJournal(1)
		asks(j)
		j.ended(conversation.Ended{Status: conversation.RunSuccess})
		return j
	},
	"question": func() *journal {
		j := newJournal(1)
		asks(j)
		j.started("tools", "3", 2)
		j.done("tools", "3", 2, conversation.TaskEnded{Interrupts: question})
		j.ended(conversation.Ended{Status: conversation.RunSuccess, Interrupts: question})
		return j
	},
	"resumed": func() *journal {
		j := newJournal(1)
		j.run.Request.Input = nil
		j.state(conversation.Step{ID: "3", Parent: "2", Source: conversation.SourceLoop, Step: 1, Next: []string{"tools"}}, human, called)
		acts(j)
		return j
	},
	"failed": func() *journal {
		j := newJournal(1)
		j.checkpoint(conversation.Step{ID: "1", Source: conversation.SourceInput, Step: -1, Next: []string{"__start__"}})
		j.checkpoint(conversation.Step{ID: "2", Parent: "1", Source: conversation.SourceLoop, Step: 0, Next: []string{"agent"}}, human)
		j.started("agent", "2", 1)
		j.done("agent", "2", 1, conversation.TaskEnded{Error: "RateLimitError: too fast"})
		j.ended(conversation.Ended{Status: conversation.RunFailed, Error: "RateLimitError", Message: "too fast"})
		return j
	},
	"canceled": func() *journal {
		j := newJournal(1)
		j.checkpoint(conversation.Step{ID: "1", Source: conversation.SourceInput, Step: -1, Next: []string{"__start__"}})
		j.checkpoint(conversation.Step{ID: "2", Parent: "1", Source: conversation.SourceLoop, Step: 0, Next: []string{"agent"}}, human)
		j.started("agent", "2", 1)
		j.piece("agent", 1, ai("a1", "I lo"))
		j.ended(conversation.Ended{Status: conversation.RunInterrupted})
		return j
	},
	"restarted": func() *journal {
		j := newJournal(1)
		j.checkpoint(conversation.Step{ID: "1", Source: conversation.SourceInput, Step: -1, Next: []string{"__start__"}})
		j.checkpoint(conversation.Step{ID: "2", Parent: "1", Source: conversation.SourceLoop, Step: 0, Next: []string{"agent"}}, human)
		j.started("agent", "2", 1)
		j.piece("agent", 1, ai("a1", "I lo"))
		j.add(conversation.Event{Begun: &conversation.Begun{RunID: "run", ThreadID: "thread", Attempt: 2}})
		j.started("agent", "2", 1)
		j.piece("agent", 1, ai("a1", "Yes."))
		j.done("agent", "2", 1, conversation.TaskEnded{Messages: []conversation.Message{ai("a1", "Yes.")}})
		j.checkpoint(conversation.Step{ID: "3", Parent: "2", Source: conversation.SourceLoop, Step: 1}, ai("a1", "Yes."))
		j.ended(conversation.Ended{Status: conversation.RunSuccess})
		return j
	},
}

// sent is an event as a client gets it.
type sent struct{ id, name, data string }

func (s sent) String() string { return s.id + " " + s.name + " " + s.data }

// show renders a journal for the modes of a set.
func show(t *testing.T, j *journal, names ...string) []sent {
	t.Helper()
	set, err := modes.Parse(names)
	if err != nil {
		t.Fatal(err)
	}
	r := modes.New(j.run, set)
	var out []sent
	for i, e := range j.events {
		for _, s := range r.Add(e) {
			v, err := s.Data(t.Context(), j)
			if err != nil {
				t.Fatalf("event %d %s: %v", i, s.Name, err)
			}
			var b bytes.Buffer
			enc := json.NewEncoder(&b)
			enc.SetEscapeHTML(false)
			if err := enc.Encode(v); err != nil {
				t.Fatal(err)
			}
			out = append(out, sent{fmt.Sprintf("%d.%d", i, s.Ordinal), s.Name, strings.TrimSpace(b.String())})
		}
	}
	return out
}

func TestGolden(t *testing.T) {
	for name, make := range journals {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			for _, mode := range modes.Names() {
				fmt.Fprintf(&b, "== %s\n", mode)
				for _, s := range show(t, make(), mode) {
					fmt.Fprintln(&b, s)
				}
			}
			path := filepath.Join("testdata", name+".txt")
			if *update {
				if err := os.MkdirAll("testdata", 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), b.String()); diff != "" {
				t.Errorf("-want +got; go test -update rewrites it:\n%s", diff)
			}
		})
	}
}

// An event has the same id for everybody who sees it, so that clients can come back
// with other modes, and ids grow.
func TestIDsDoNotDependOnModes(t *testing.T) {
	for name, make := range journals {
		t.Run(name, func(t *testing.T) {
			all := show(t, make(), modes.Names()...)
			seen := map[string]bool{}
			for _, s := range all {
				if seen[s.id] {
					t.Errorf("two events have the id %s", s.id)
				}
				seen[s.id] = true
			}
			for _, mode := range modes.Names() {
				for _, s := range show(t, make(), mode) {
					if !slices.Contains(all, s) {
						t.Errorf("mode %s alone has %s, all together have not", mode, s)
					}
				}
			}
		})
	}
}

func TestParse(t *testing.T) {
	if set, err := modes.Parse(nil); err != nil || !set[modes.Values] || len(set) != 1 {
		t.Errorf("Parse() = %v, %v, want values", set, err)
	}
	if _, err := modes.Parse([]string{"values", "nope"}); errs.KindOf(err) != errs.Invalid {
		t.Errorf("Parse(nope) = %v, want invalid", err)
	}
}

// What the pieces of a message become together is what the message is.
func TestPartialsGrow(t *testing.T) {
	j := newJournal(1)
	j.checkpoint(conversation.Step{ID: "2", Source: conversation.SourceLoop, Next: []string{"agent"}}, human)
	j.started("agent", "2", 1)
	for _, content := range []string{
		`[{"type":"reasoning","reasoning":"I th","index":0}]`, `[{"type":"reasoning","reasoning":"ink","index":0}]`,
		`[{"type":"text","text":"Ye","index":1}]`, `[{"type":"text","text":"s","index":1}]`, `[]`,
	} {
		j.piece("agent", 1, conversation.Message{Type: conversation.AI, ID: "a1", Content: json.RawMessage(content)})
	}
	all := show(t, j, "messages")
	var got []struct{ Content json.RawMessage }
	if err := json.Unmarshal([]byte(all[len(all)-1].data), &got); err != nil {
		t.Fatal(err)
	}
	const want = `[{"index":0,"reasoning":"I think","type":"reasoning"},{"index":1,"text":"Yes","type":"text"}]`
	if len(got) != 1 || string(got[0].Content) != want {
		t.Errorf("got %s, want %s", all[len(all)-1].data, want)
	}
}

func BenchmarkPieces(b *testing.B) {
	set, _ := modes.Parse([]string{"values", "messages-tuple"})
	r := modes.New(newJournal(1).run, set)
	j := newJournal(1)
	j.piece("agent", 1, ai("a1", "word "))
	for b.Loop() {
		for _, e := range r.Add(j.events[1]) {
			if _, err := e.Data(b.Context(), j); err != nil {
				b.Fatal(err)
			}
		}
	}
}
