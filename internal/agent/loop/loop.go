package loop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/llm"
)

// Why a run's context may end, beside the caller's own reasons.
var (
	// ErrCanceled: somebody canceled the run. What it has done is kept.
	ErrCanceled = errors.New("the run was canceled")
	// ErrStopping: the daemon stops, and the next one takes the run up.
	ErrStopping = errors.New("the daemon is stopping")
)

// Recorder keeps what a run does. An error of it ends the run.
type Recorder interface {
	// Tell adds an event to the run's journal.
	Tell(e conversation.Event) error
	// Commit stores a checkpoint with its state, as the head of the thread, and
	// returns both with the places of new messages.
	Commit(ctx context.Context, c conversation.Checkpoint, state []conversation.Entry) (conversation.Checkpoint, []conversation.Entry, error)
	// Pause stores the tasks of a checkpoint, which say why they wait or failed, and its
	// approval.
	Pause(ctx context.Context, c conversation.Checkpoint) error
}

// Config is what a run works with.
type Config struct {
	Model llm.Model
	// Provider and Name are of the model, for requests and for what clients are told.
	Provider, Name string
	Tools          Tools
	// System returns the system prompt.
	System func(ctx context.Context) string
	Record Recorder
	Policy conversation.Policy

	// MaxTurns bounds how often the model is asked, and MaxSteps the steps of the
	// graph, as LangGraph counts them; 0 is no bound.
	MaxTurns, MaxSteps int
	// MaxTokens is the budget of the run, of what is asked and answered together; 0 is
	// none.
	MaxTokens int
	// AnswerTokens bounds one answer; 0 leaves it to the provider.
	AnswerTokens int
	Effort       llm.Effort
	Temperature  *float64
	Sight        *Sight // nil: the model is tried
	Now          func() time.Time

	InterruptBefore, InterruptAfter []string
}

// Sight is what is known of a model's eyes, by all of its runs.
type Sight struct{ blind atomic.Bool }

// Blind says that the model cannot see.
func (s *Sight) Blind() { s.blind.Store(true) }

func (s *Sight) sees() bool { return s == nil || !s.blind.Load() }

// State is where a run begins: a checkpoint, whose ID is "" in a thread that has
// none, and its messages.
type State struct {
	Checkpoint conversation.Checkpoint
	Messages   []conversation.Entry
}

// Start is what a run is to do.
type Start struct {
	RunID   string
	Input   []conversation.Message // empty: the run goes on where the state stands
	Command *conversation.Command
	// Question is the interrupt that the command answers; "": there was none when it came.
	Question string
	// Older: the state is not the newest of its thread.
	Older bool
	// Again: an earlier daemon began the run, and the state is what it left.
	Again bool
	State State
}

// run is a run that goes on.
type run struct {
	Config
	start  Start
	at     conversation.Checkpoint
	state  []conversation.Entry
	asked  int // how often the model was
	steps  int
	tokens int
	cost   *float64
	fold   int // how far older turns are folded
	images map[string][]llm.Image
	eyes   bool // images are shown
}

// failure ends a run as failed. Kind is the name of the error for clients, in the
// manner of LangGraph's.
type failure struct {
	kind, message string
	cause         error
}

func (f *failure) Error() string { return f.kind + ": " + f.message }
func (f *failure) Unwrap() error { return f.cause }

// paused ends a run that waits for a person, or stops at a breakpoint.
type paused struct{ interrupts []conversation.Interrupt }

func (*paused) Error() string { return "the run waits" }

// Run does a run to its end. The error is not nil when the run did not end: the
// daemon is stopping ([ErrStopping]), or what it does cannot be recorded.
func Run(ctx context.Context, c Config, s Start) (conversation.Ended, error) {
	if c.Now == nil {
		c.Now = time.Now
	}
	r := &run{Config: c, start: s, at: s.State.Checkpoint, state: s.State.Messages, images: map[string][]llm.Image{}, eyes: c.Sight.sees()}
	r.fold = foldOf(r.state)
	r.at.Approval = approvalOf(r.at, r.state)
	err := r.begin(ctx)
	if err == nil {
		err = r.steer(ctx)
	}
	if r.tokens > 0 {
		if told := r.notice(conversation.Notice{Type: conversation.NoticeUsage, Tokens: r.tokens, Cost: r.cost}); told != nil && err == nil {
			err = told
		}
	}
	var f *failure
	var p *paused
	switch {
	case errors.Is(context.Cause(ctx), ErrStopping) && !errors.As(err, &p) && err != nil:
		return conversation.Ended{}, ErrStopping
	case err == nil:
		return conversation.Ended{Status: conversation.RunSuccess}, nil
	case errors.As(err, &p):
		return conversation.Ended{Status: conversation.RunSuccess, Interrupts: p.interrupts}, nil
	case ctx.Err() != nil:
		return conversation.Ended{Status: conversation.RunInterrupted}, nil
	case errors.As(err, &f):
		return conversation.Ended{Status: conversation.RunFailed, Error: f.kind, Message: f.message}, nil
	}
	return conversation.Ended{}, err
}

// begin takes in what the run was given.
func (r *run) begin(ctx context.Context) error {
	if r.start.Again && r.at.RunID == r.start.RunID && r.at.Source != conversation.SourceInput {
		if r.advanced() {
			r.start.Command = nil // the question that it answers was another one
		}
		return nil // it is in the state
	}
	if c := r.start.Command; c != nil {
		if err := r.obey(ctx, c); err != nil {
			return err
		}
	}
	if len(r.start.Input) == 0 {
		if r.start.Older && r.start.Command == nil && r.at.Question() != "" {
			// The thread waits with the question again, and not behind what came after it.
			return r.commit(ctx, conversation.SourceFork, r.at.Next, r.state)
		}
		if len(r.at.Next) == 0 && r.start.Command == nil {
			return &failure{kind: "EmptyInputError", message: "there is no input, and the thread waits for nothing"}
		}
		return nil
	}
	r.start.Command = nil // the question that it answers is not asked any more
	if !r.start.Again || r.at.Source != conversation.SourceInput || r.at.RunID != r.start.RunID {
		if err := r.commit(ctx, conversation.SourceInput, []string{conversation.NodeStart}, r.state); err != nil {
			return err
		}
	}
	state, err := conversation.Add(r.state, r.start.Input)
	if err != nil {
		return &failure{kind: "ValueError", message: errs.Public(err).Message, cause: err}
	}
	return r.commit(ctx, conversation.SourceLoop, []string{conversation.NodeAgent}, state)
}

// advanced reports whether the run has done a step already, with an earlier daemon.
func (r *run) advanced() bool {
	return r.start.Again && r.at.RunID == r.start.RunID && r.at.Source == conversation.SourceLoop
}

// steer does one node after the other.
func (r *run) steer(ctx context.Context) error {
	advanced := r.advanced()
	if advanced && len(r.at.Next) > 0 && r.stopsAfter(newestNode(r.state)) {
		return &paused{}
	}
	fresh := len(r.start.Input) > 0 || advanced
	for first := !fresh; len(r.at.Next) > 0; first = false {
		node := r.at.Next[0]
		if !first && stopsAt(r.InterruptBefore, node) {
			return &paused{}
		}
		if r.steps++; r.MaxSteps > 0 && r.steps > r.MaxSteps {
			return r.limited(fmt.Sprintf("the run has taken all %d steps that it may, and was not done", r.MaxSteps))
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		var err error
		switch node {
		case conversation.NodeAgent:
			err = r.ask(ctx)
		case conversation.NodeTools:
			err = r.act(ctx)
		default:
			err = &failure{kind: "ValueError", message: fmt.Sprintf("the graph has no node %.40q", node)}
		}
		if err != nil {
			return r.failed(ctx, node, err)
		}
		r.start.Command = nil // it answers what was asked before the run, and nothing that is asked in it
		if len(r.at.Next) > 0 && r.stopsAfter(node) {
			return &paused{}
		}
	}
	return nil
}

// stopsAfter reports whether the run is to stop after a node, or after a tool that it ran.
func (r *run) stopsAfter(node string) bool {
	if stopsAt(r.InterruptAfter, node) {
		return true
	}
	for i := len(r.state) - 1; i >= 0 && node == conversation.NodeTools; i-- {
		m := r.state[i].Message
		if m.Type != conversation.Tool {
			break
		}
		if slices.Contains(r.InterruptAfter, m.Name) {
			return true
		}
	}
	return false
}

// newestNode is the node that made the end of a state; "" when it was an input.
func newestNode(state []conversation.Entry) string {
	if len(state) > 0 {
		switch state[len(state)-1].Message.Type {
		case conversation.AI:
			return conversation.NodeAgent
		case conversation.Tool:
			return conversation.NodeTools
		}
	}
	return ""
}

// failed notes in the checkpoint why its task did not get done, so that the thread
// says it and can go on from there.
func (r *run) failed(ctx context.Context, node string, err error) error {
	var f *failure
	if !errors.As(err, &f) || ctx.Err() != nil {
		return err
	}
	text := f.Error()
	tasks := slices.Clone(r.at.Tasks)
	for i := range tasks {
		if tasks[i].Name == node {
			tasks[i].Error = &text
		}
	}
	r.at.Tasks = tasks
	if err := r.Record.Pause(ctx, r.at); err != nil {
		return err
	}
	return f
}

// limited is the failure of a run that may not go on.
func (r *run) limited(message string) error {
	return &failure{kind: "GraphRecursionError", message: message}
}

func stopsAt(nodes []string, node string) bool {
	return slices.Contains(nodes, node) || slices.Contains(nodes, "*")
}

// commit makes a state the thread's, and tells of it.
func (r *run) commit(ctx context.Context, source conversation.Source, next []string, state []conversation.Entry) error {
	c := r.checkpoint(source, next)
	Inherit(&c, r.at, r.state, state)
	return r.add(ctx, c, state)
}

// checkpoint is the one that follows, without a state.
func (r *run) checkpoint(source conversation.Source, next []string) conversation.Checkpoint {
	c := conversation.Checkpoint{
		ID: conversation.NewID(), Parent: r.at.ID, Source: source, Step: r.at.Step + 1, Next: next,
		RunID: r.start.RunID, CreatedAt: r.Now(),
	}
	if r.at.ID == "" {
		c.Step = -1
	}
	c.Tasks = TasksOf(c.ID, next)
	return c
}

// add makes a checkpoint the thread's newest.
func (r *run) add(ctx context.Context, c conversation.Checkpoint, state []conversation.Entry) error {
	c, state, err := r.Record.Commit(context.WithoutCancel(ctx), c, state)
	if err != nil {
		return err
	}
	r.at, r.state = c, state
	return r.tell(conversation.Event{Checkpoint: &conversation.Step{ID: c.ID, Parent: c.Parent, Source: c.Source, Step: c.Step, Next: c.Next}})
}

// TasksOf are the tasks of a checkpoint's next nodes. Their ids follow from its own.
func TasksOf(checkpoint string, next []string) []conversation.Task {
	tasks := make([]conversation.Task, len(next))
	for i, node := range next {
		tasks[i] = conversation.Task{ID: uuid.NewSHA1(conversation.GraphNamespace, []byte(checkpoint+node)).String(), Name: node, Interrupts: []conversation.Interrupt{}}
	}
	return tasks
}

func (r *run) tell(e conversation.Event) error {
	e.Time = r.Now()
	return r.Record.Tell(e)
}

func (r *run) notice(n conversation.Notice) error {
	raw, err := json.Marshal(n)
	if err != nil {
		return err
	}
	return r.tell(conversation.Event{Custom: raw})
}

// task is the one of the checkpoint for a node.
func (r *run) task(node string) conversation.Task {
	for _, t := range r.at.Tasks {
		if t.Name == node {
			return t
		}
	}
	return TasksOf(r.at.ID, []string{node})[0]
}

// started tells that a node begins.
func (r *run) started(node string) (conversation.Task, error) {
	t := r.task(node)
	return t, r.tell(conversation.Event{TaskStarted: &conversation.TaskStarted{
		ID: t.ID, Node: node, Step: r.at.Step + 1, Checkpoint: r.at.ID, Triggers: []string{"branch:to:" + node},
	}})
}

// ended tells what a node did.
func (r *run) ended(t conversation.Task, e conversation.TaskEnded) error {
	e.ID, e.Node, e.Step = t.ID, t.Name, r.at.Step+1
	return r.tell(conversation.Event{TaskEnded: &e})
}
