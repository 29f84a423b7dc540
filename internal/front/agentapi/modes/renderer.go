package modes

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/cubbyhq/cubby/internal/conversation"
)

// States reads what a run's events name. A checkpoint that is not there any more is
// errs.NotFound.
type States interface {
	State(ctx context.Context, checkpoint string) (conversation.Checkpoint, []conversation.Message, error)
}

// Run is what a stream is about.
type Run struct {
	conversation.Run

	ThreadID, GraphID string
	// Version is cubby's, for clients that show who they talk to.
	Version string
}

// Event is an event for the client.
type Event struct {
	// Ordinal is its number among all that a journal's event becomes in all modes,
	// from 0.
	Ordinal int
	Name    string
	data    payload
}

// payload makes the data. It is called for events that are sent and no others, so
// that nobody reads states for those that were.
type payload func(ctx context.Context, s States) (any, error)

// Data is what goes to the client as JSON.
func (e Event) Data(ctx context.Context, s States) (any, error) { return e.data(ctx, s) }

// Renderer shows one run. It is given the events of its journal, all of them and in
// their order, and is for one goroutine.
type Renderer struct {
	run Run
	set Set

	attempt  int
	last     conversation.Step      // the newest checkpoint
	seen     map[string]bool        // checkpoints that were shown
	work     *task                  // the newest task
	fresh    []conversation.Message // what tasks added since the newest checkpoint
	paused   bool                   // a task waits for a person
	messages map[string]*growing    // by id

	out  []Event
	next int
}

// task is one whose events come.
type task struct {
	conversation.TaskStarted

	asked bool // the model was
	calls []conversation.ToolCall
	model callback // of the model that is asked
	about metadata // of its pieces; nil: nothing was said
}

// New returns a Renderer that shows a run in some modes.
func New(run Run, set Set) *Renderer {
	return &Renderer{run: run, set: set, seen: map[string]bool{}, messages: map[string]*growing{}, work: &task{}}
}

// Add takes the next event of the journal and returns what it becomes.
func (r *Renderer) Add(e conversation.Event) []Event {
	r.out, r.next = nil, 0
	switch {
	case e.Begun != nil:
		r.begun(e.Begun)
	case e.TaskStarted != nil:
		r.started(e.Time, *e.TaskStarted)
	case e.Chunk != nil:
		r.chunk(*e.Chunk)
	case e.Custom != nil:
		r.emit(Custom, string(Custom), fixed(e.Custom))
		r.progress(e.Custom)
	case e.TaskEnded != nil:
		r.ended(e.Time, *e.TaskEnded)
	case e.Checkpoint != nil:
		r.checkpoint(e.Time, *e.Checkpoint)
		r.fresh = nil
	case e.Ended != nil:
		r.end(*e.Ended)
	}
	return r.out
}

// emit adds an event of a mode. It has its number whether or not the client asked for
// the mode.
func (r *Renderer) emit(m Mode, name string, data payload) {
	if r.set[m] {
		r.out = append(r.out, Event{r.next, name, data})
	}
	r.next++
}

// always adds an event of no mode.
func (r *Renderer) always(name string, data any) {
	r.out = append(r.out, Event{r.next, name, fixed(data)})
	r.next++
}

func fixed(v any) payload { return func(context.Context, States) (any, error) { return v, nil } }

type metadataEvent struct {
	RunID   string `json:"run_id"`
	Attempt int    `json:"attempt"`
}

func (r *Renderer) begun(b *conversation.Begun) {
	r.attempt = b.Attempt
	r.always("metadata", metadataEvent{b.RunID, b.Attempt})
	r.callback(r.graph(), "on_chain_start", fixed(map[string]any{"input": orNull(r.run.Request.Input)}))
	// What an earlier daemon had begun begins again.
	clear(r.messages)
	r.fresh = nil
}

func orNull(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("null")
	}
	return raw
}

// valuesOf is a whole state.
type valuesOf struct {
	Messages []conversation.Message `json:"messages"`
}

func values(messages []conversation.Message) valuesOf {
	if messages == nil {
		messages = []conversation.Message{}
	}
	return valuesOf{messages}
}

// stateAt is the state of a checkpoint; "" is one before all.
func stateAt(checkpoint string) payload {
	return func(ctx context.Context, s States) (any, error) {
		m, err := messagesAt(ctx, s, checkpoint)
		return values(m), err
	}
}

func messagesAt(ctx context.Context, s States, checkpoint string) ([]conversation.Message, error) {
	if checkpoint == "" {
		return nil, nil
	}
	_, m, err := s.State(ctx, checkpoint)
	return m, err
}

type taskEvent struct {
	ID         string                   `json:"id"`
	Name       string                   `json:"name"`
	Input      valuesOf                 `json:"input"`
	Triggers   []string                 `json:"triggers"`
	Interrupts []conversation.Interrupt `json:"interrupts"`
	Metadata   metadata                 `json:"metadata"`
}

func (r *Renderer) started(at time.Time, t conversation.TaskStarted) {
	if !r.seen[t.Checkpoint] && t.Checkpoint != "" {
		// The run goes on where the thread stands: clients see that first.
		r.resumed(at, t.Checkpoint)
	}
	calls := r.work.calls
	r.work = &task{TaskStarted: t}
	meta := r.runMetadata()
	data := func(ctx context.Context, s States) (any, error) {
		m, err := messagesAt(ctx, s, t.Checkpoint)
		return taskEvent{t.ID, t.Node, values(m), t.Triggers, []conversation.Interrupt{}, meta}, err
	}
	r.emit(Tasks, string(Tasks), data)
	r.emit(Debug, string(Debug), debug(t.Step, "task", at, data))
	node := r.node(t)
	r.callback(node, "on_chain_start", func(ctx context.Context, s States) (any, error) {
		m, err := messagesAt(ctx, s, t.Checkpoint)
		return map[string]any{"input": values(m)}, err
	})
	if t.Node == conversation.NodeTools {
		r.toolsStarted(calls)
	}
}

type debugEvent struct {
	Step      int       `json:"step"`
	Type      string    `json:"type"`
	Timestamp time.Time `json:"timestamp"`
	Payload   any       `json:"payload"`
}

func debug(step int, kind string, at time.Time, data payload) payload {
	return func(ctx context.Context, s States) (any, error) {
		v, err := data(ctx, s)
		return debugEvent{step, kind, at.UTC(), v}, err
	}
}

type resultEvent struct {
	ID         string                   `json:"id"`
	Name       string                   `json:"name"`
	Result     map[string]any           `json:"result"`
	Error      string                   `json:"error,omitempty"`
	Interrupts []conversation.Interrupt `json:"interrupts"`
}

type interruptEvent struct {
	Interrupts []conversation.Interrupt `json:"__interrupt__"`
}

func (r *Renderer) ended(at time.Time, t conversation.TaskEnded) {
	r.nodeEnded(t)
	result := map[string]any{}
	switch {
	case t.Messages != nil:
		result["messages"] = t.Messages
		r.emit(Updates, string(Updates), fixed(map[string]any{t.Node: map[string]any{"messages": t.Messages}}))
		r.next++ // of the values that an interrupt would have
	case t.Interrupts != nil:
		r.interrupted(t.Interrupts)
	default:
		r.next += 2
	}
	data := fixed(resultEvent{t.ID, t.Node, result, t.Error, orNone(t.Interrupts)})
	r.emit(Tasks, string(Tasks), data)
	r.emit(Debug, string(Debug), debug(t.Step, "task_result", at, data))
	r.fresh = append(r.fresh, t.Messages...)
	for _, m := range t.Messages {
		if m.Type == conversation.AI {
			r.work.calls = m.ToolCalls
		}
	}
}

// interrupted shows what a run waits for; nothing, at a breakpoint.
func (r *Renderer) interrupted(why []conversation.Interrupt) {
	r.paused = true
	r.emit(Updates, string(Updates), fixed(interruptEvent{orNone(why)}))
	r.emit(Values, string(Values), fixed(interruptEvent{orNone(why)}))
}

func orNone(list []conversation.Interrupt) []conversation.Interrupt {
	if list == nil {
		return []conversation.Interrupt{}
	}
	return list
}

type errorEvent struct {
	Error   string `json:"error"`
	Message string `json:"message"`
}

func (r *Renderer) end(e conversation.Ended) {
	if e.Status == conversation.RunSuccess && !r.paused && (len(r.last.Next) > 0 || e.Interrupts != nil) {
		r.interrupted(e.Interrupts)
	} else {
		r.next += 2
	}
	if e.Status == conversation.RunSuccess {
		at := r.last.ID
		r.callback(r.graph(), "on_chain_end", func(ctx context.Context, s States) (any, error) {
			m, err := messagesAt(ctx, s, at)
			return map[string]any{"output": values(m)}, err
		})
	}
	if e.Status == conversation.RunFailed || e.Status == conversation.RunTimeout {
		r.always("error", errorEvent{e.Error, e.Message})
	}
}

// idOf makes an id that follows from others.
func idOf(parts ...string) string {
	name := ""
	for _, p := range parts {
		name += p + "\x00"
	}
	return uuid.NewSHA1(conversation.GraphNamespace, []byte(name)).String()
}
