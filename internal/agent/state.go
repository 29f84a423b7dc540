package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"

	"github.com/cubbyhq/cubby/internal/agent/loop"
	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/store"
)

// State is a thread as it was at a checkpoint, whose ID is "" in a thread that has
// none yet.
type State struct {
	Thread     conversation.Thread
	Checkpoint conversation.Checkpoint
	Messages   []conversation.Message

	release func() // nil: it is small
}

// Release gives back the room that a large state takes. Who has made of it what is to
// be sent calls it; the end of the context that the state was read with does too.
func (s State) Release() {
	if s.release != nil {
		s.release()
	}
}

// Large reports whether the state takes room, for which others may wait.
func (s State) Large() bool { return s.release != nil }

// load reads the state of a checkpoint; "" is the head.
func (t *Threads) load(ctx context.Context, th conversation.Thread, checkpoint string) (State, error) {
	s, err := t.at(ctx, th, checkpoint)
	if checkpoint == "" && errors.Is(err, errs.NotFound) { // the head that was
		if now, again := t.s.cfg.Store.ConversationOf(ctx, th.UID); again == nil && now.Head != th.Head {
			return t.at(ctx, now, "")
		}
	}
	return s, err
}

func (t *Threads) at(ctx context.Context, th conversation.Thread, checkpoint string) (State, error) {
	checkpoint = cmp.Or(checkpoint, th.Head)
	if checkpoint == "" {
		return State{Thread: th}, nil
	}
	c, err := t.s.cfg.Store.Checkpoint(ctx, th.UID, checkpoint)
	if errors.Is(err, errs.NotFound) {
		return State{}, noCheckpoint(checkpoint)
	}
	if err != nil {
		return State{}, err
	}
	return t.fill(ctx, th, c)
}

// fill reads the messages of a checkpoint, when there is room for all of the state.
func (t *Threads) fill(ctx context.Context, th conversation.Thread, c conversation.Checkpoint) (State, error) {
	s := State{Thread: th, Checkpoint: c}
	size, err := t.s.cfg.Store.SizeOfRun(ctx, th.UID, "", c.Messages)
	if err != nil {
		return s, err
	}
	if s.release, err = t.room(ctx, th, size+c.Bytes()); err != nil {
		return s, err
	}
	entries, err := t.s.messages(ctx, th, c)
	if err != nil {
		s.Release()
	}
	s.Messages = conversation.MessagesOf(entries)
	return s, err
}

// room is for what is shown of a thread beside the thread itself; nil: it is small.
func (t *Threads) room(ctx context.Context, th conversation.Thread, bytes int64) (release func(), err error) {
	if bytes += th.Bytes(); bytes <= small {
		return nil, nil
	}
	leave, err := t.s.reading.enter(ctx, th.Tenant, bytes)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, leave)
	return func() { stop(); leave() }, nil
}

func noCheckpoint(id string) error {
	return errs.E(errs.NotFound, "Checkpoint with ID %.80s not found", id)
}

// entries is the state that a run begins with.
func (s *Service) entries(ctx context.Context, th conversation.Thread, checkpoint string) (loop.State, error) {
	if checkpoint == "" {
		checkpoint = th.Head
	}
	if checkpoint == "" {
		return loop.State{}, nil
	}
	c, err := s.cfg.Store.Checkpoint(ctx, th.UID, checkpoint)
	if errors.Is(err, errs.NotFound) {
		return loop.State{}, noCheckpoint(checkpoint)
	}
	if err != nil {
		return loop.State{}, err
	}
	entries, err := s.messages(ctx, th, c)
	return loop.State{Checkpoint: c, Messages: entries}, err
}

// messages are those of a checkpoint. It is NotFound when its run was taken back since
// it was read.
func (s *Service) messages(ctx context.Context, th conversation.Thread, c conversation.Checkpoint) ([]conversation.Entry, error) {
	entries, err := s.cfg.Store.Messages(ctx, th.UID, c.Messages)
	if errs.KindOf(err) != errs.Internal || err == nil {
		return entries, err
	}
	if _, now := s.cfg.Store.Checkpoint(ctx, th.UID, c.ID); errors.Is(now, errs.NotFound) {
		return nil, errs.E(errs.NotFound, "Checkpoint with ID %.80s not found", c.ID).Because(err)
	}
	return nil, err
}

// State returns the thread at a checkpoint, "" being the newest.
func (t *Threads) State(ctx context.Context, id, checkpoint string) (State, error) {
	found, err := t.find(ctx, id)
	if err != nil {
		return State{}, err
	}
	return t.load(ctx, found, checkpoint)
}

// HistoryQuery is which states are asked for; what is empty does not matter.
type HistoryQuery struct {
	Limit    int
	Before   string // a checkpoint
	Metadata map[string]json.RawMessage
}

// History returns states of a thread, newest first.
func (t *Threads) History(ctx context.Context, id string, q HistoryQuery) (List[State], error) {
	found, err := t.find(ctx, id)
	if err != nil {
		return List[State]{}, err
	}
	keys, err := t.s.cfg.Store.Checkpoints(ctx, found.UID, store.CheckpointQuery{Before: q.Before, Limit: cmp.Or(q.Limit, 1000), Metadata: q.Metadata})
	return List[State]{len(keys), len(keys), each(ctx, t.s, keys, func(key store.Key) (State, error) {
		c, err := t.s.cfg.Store.Checkpoint(ctx, found.UID, key.ID)
		if err != nil {
			return State{}, err
		}
		return t.fill(ctx, found, c)
	})}, err
}

// StateChange is what a client makes of a thread's state.
type StateChange struct {
	Values json.RawMessage // {"messages":…}, added as a node's would be
	// AsNode is whose work it is taken for, which decides what comes next; "" is the
	// node that was last.
	AsNode     string
	Checkpoint string // what it changes; "" is the head
	Metadata   map[string]json.RawMessage
}

// Change makes a checkpoint out of another one, as the thread's head. WrongState
// while a run goes on.
func (t *Threads) Change(ctx context.Context, id string, ch StateChange) (conversation.Checkpoint, error) {
	var none conversation.Checkpoint
	if err := t.s.enter(ctx); err != nil {
		return none, err
	}
	found, err := t.find(ctx, id)
	if err != nil {
		return none, err
	}
	if err := t.s.mayKeep(ctx); err != nil {
		return none, err
	}
	more, err := conversation.ParseValues(ch.Values)
	if err != nil {
		return none, err
	}
	switch ch.AsNode {
	case "", conversation.NodeStart, conversation.NodeAgent, conversation.NodeTools, conversation.NodeEnd, conversation.NodeInput:
	default:
		return none, errs.E(errs.Invalid, "as_node: the graph has no node %.40q", ch.AsNode).Hint("its nodes are agent and tools")
	}
	s := t.s
	unlock, err := s.threads.Lock(ctx, string(found.UID))
	if err != nil {
		return none, err
	}
	defer unlock()
	if s.busy(found.UID) {
		return none, errs.E(errs.Conflict, "Thread is busy with a run. Cancel it, or wait for its end.")
	}
	if found, err = s.cfg.Store.ConversationOf(ctx, found.UID); err != nil {
		return none, noThread(id, err)
	}
	conversation.IDsAfter(found.Head)
	at, err := s.entries(ctx, found, ch.Checkpoint)
	if err != nil {
		return none, err
	}
	state, err := conversation.Add(at.Messages, more)
	if err != nil {
		return none, err
	}
	c := conversation.Checkpoint{
		ID: conversation.NewID(), Parent: at.Checkpoint.ID, Source: conversation.SourceUpdate, Step: at.Checkpoint.Step + 1,
		Next: after(ch.AsNode, state), CreatedAt: s.cfg.Now(),
	}
	if at.Checkpoint.ID == "" {
		c.Step = 0
	}
	if ch.AsNode == conversation.NodeInput { // the state before it, as a run's input has one
		c.Source, c.Next, state = conversation.SourceInput, []string{conversation.NodeStart}, at.Messages
		if at.Checkpoint.ID == "" {
			c.Step = -1
		}
	}
	c.Metadata = merged(ch.Metadata, map[string]json.RawMessage{
		"thread_id": conversation.Text(found.ID), "source": conversation.Text(string(c.Source)), "step": conversation.Number(c.Step),
	})
	c.Tasks = loop.TasksOf(c.ID, c.Next)
	loop.Inherit(&c, at.Checkpoint, at.Messages, state)
	c, _, err = s.cfg.Store.Commit(ctx, store.CommitRequest{
		Thread: found.UID, Checkpoint: c, State: state, Head: true, Durable: true,
		Change: func(th *conversation.Thread) error {
			th.Status, th.Error = statusOf(c.Next), nil
			th.StateUpdatedAt, th.UpdatedAt = c.CreatedAt, c.CreatedAt
			return nil
		},
	})
	return c, err
}

// statusOf is that of a thread in which nothing runs.
func statusOf(next []string) conversation.ThreadStatus {
	if len(next) > 0 {
		return conversation.ThreadInterrupted
	}
	return conversation.ThreadIdle
}

// after is what follows a node in a state.
func after(node string, state []conversation.Entry) []string {
	var last conversation.Message
	if len(state) > 0 {
		last = state[len(state)-1].Message
	}
	if node == "" {
		switch last.Type {
		case conversation.AI, "":
			node = conversation.NodeAgent
		case conversation.Tool:
			node = conversation.NodeTools
		default:
			node = conversation.NodeStart
		}
	}
	switch node {
	case conversation.NodeStart, conversation.NodeTools:
		return []string{conversation.NodeAgent}
	case conversation.NodeAgent:
		if last.Type == conversation.AI && len(last.ToolCalls)+len(last.InvalidToolCalls) > 0 {
			return []string{conversation.NodeTools}
		}
	}
	return nil
}

// Annotate merges metadata into that of a checkpoint; "" is the head.
func (t *Threads) Annotate(ctx context.Context, id, checkpoint string, metadata map[string]json.RawMessage) (conversation.Checkpoint, error) {
	found, err := t.find(ctx, id)
	if err != nil {
		return conversation.Checkpoint{}, err
	}
	if checkpoint == "" {
		checkpoint = found.Head
	}
	if checkpoint == "" {
		return conversation.Checkpoint{}, errs.E(errs.NotFound, "the thread has no state yet")
	}
	if err := t.s.mayKeep(ctx); err != nil {
		return conversation.Checkpoint{}, err
	}
	return t.s.cfg.Store.AnnotateCheckpoint(ctx, found.UID, checkpoint, metadata)
}
