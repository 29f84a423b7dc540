package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/cubbyhq/cubby/internal/agent/loop"
	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/journal"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// execution is a run that goes on in this daemon.
type execution struct {
	run    conversation.Run
	thread conversation.Thread
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when the run has ended, or is left to the next daemon
	leave  func()        // gives the run's place back
	log    *journal.Log

	// Guarded by the service's mu.
	readers       int
	cancelOnLeave bool
	rollback      bool
}

// execute does a run to its end, and then the next one of its thread.
func (s *Service) execute(ctx context.Context, e *execution, again bool) {
	defer e.leave()
	ended, err := s.perform(ctx, e, again)
	if errors.Is(err, loop.ErrStopping) {
		s.release(e)
		return
	}
	if err != nil {
		s.cfg.Log.Error("a run of the agent failed", telemetry.KeyUID, e.thread.UID, "run", e.run.ID, telemetry.KeyErr, err)
		info := errs.Public(err)
		ended = conversation.Ended{Status: conversation.RunFailed, Error: "InternalServerError", Message: info.Message}
		if info.Kind != errs.Internal {
			ended.Error = "RunError"
		}
	}
	ctx = context.WithoutCancel(ctx)
	if err := s.finish(ctx, e, ended); err != nil {
		// The row says that it goes on: the next daemon ends it.
		s.cfg.Log.Error("note the end of a run", telemetry.KeyUID, e.thread.UID, "run", e.run.ID, telemetry.KeyErr, err)
		s.release(e)
		return
	}
	// Who is told of the end may go on with the thread at once.
	s.next(ctx, e)
	s.close(e, ended)
}

// perform does the run's work. Its journal has everything but the end.
func (s *Service) perform(ctx context.Context, e *execution, again bool) (conversation.Ended, error) {
	var none conversation.Ended
	attempt := 1
	if again {
		attempt = s.attempts(ctx, e) + 1
	}
	rec := &recorder{s: s, e: e, log: e.log}
	if err := rec.Tell(conversation.Event{Time: s.cfg.Now(), Begun: &conversation.Begun{RunID: e.run.ID, ThreadID: e.thread.ID, Attempt: attempt}}); err != nil {
		return none, err
	}
	if err := s.cfg.Store.ChangeRunAndThread(ctx, e.thread.UID, e.run.ID, func(r *conversation.Run, t *conversation.Thread) error {
		r.Status, t.Status, t.Error = conversation.RunRunning, conversation.ThreadBusy, nil
		return nil
	}); err != nil {
		return none, err
	}
	c, err := s.config(ctx, e.thread, e.run)
	if err != nil {
		info := errs.Public(err)
		return conversation.Ended{Status: conversation.RunFailed, Error: "ConfigurationError", Message: info.Message + hint(info.Hint)}, nil
	}
	c.Record = rec
	start, leave, err := s.start(ctx, e, again)
	defer leave()
	switch {
	case err != nil && errors.Is(context.Cause(ctx), loop.ErrStopping):
		return none, loop.ErrStopping
	case err != nil && ctx.Err() != nil:
		return conversation.Ended{Status: conversation.RunInterrupted}, nil
	case err != nil:
		if kind := errs.KindOf(err); kind == errs.NotFound || kind == errs.Invalid {
			return conversation.Ended{Status: conversation.RunFailed, Error: "ValueError", Message: errs.Public(err).Message}, nil
		}
		return none, err
	}
	return loop.Run(ctx, c, start)
}

func hint(text string) string {
	if text == "" {
		return ""
	}
	return ": " + text
}

// start reads where the run begins, when there is room for that until leave.
func (s *Service) start(ctx context.Context, e *execution, again bool) (begin loop.Start, leave func(), err error) {
	leave = func() {}
	t, err := s.cfg.Store.ConversationOf(ctx, e.thread.UID)
	if err != nil {
		return begin, leave, err
	}
	at := e.run.Request.Checkpoint
	if again {
		// What the run left is the head, if it got so far.
		if head, err := s.headOf(ctx, e.thread.UID); err == nil && head.RunID == e.run.ID {
			at = ""
		}
	}
	var head conversation.Checkpoint
	if id := cmp.Or(at, t.Head); id != "" {
		head, _ = s.cfg.Store.Checkpoint(ctx, e.thread.UID, id) // of one that is not there, entries says so
	}
	size, err := s.cfg.Store.SizeOfRun(ctx, e.thread.UID, e.run.ID, head.Messages)
	if err != nil {
		return begin, leave, err
	}
	if leave, err = s.room.enter(ctx, e.thread.Tenant, size); err != nil {
		return begin, func() {}, err
	}
	run, err := s.cfg.Store.ConversationRun(ctx, e.thread.UID, e.run.ID) // with its input
	if err != nil {
		return begin, leave, err
	}
	state, err := s.entries(ctx, t, at)
	if err != nil {
		return begin, leave, err
	}
	input, err := conversation.ParseInput(run.Request.Input)
	if err != nil {
		return begin, leave, err
	}
	return loop.Start{RunID: e.run.ID, Input: input, Command: e.run.Request.Command, Again: again, State: state}, leave, nil
}

// close ends the journal of a run, whose last record is how the run ended.
func (s *Service) close(e *execution, ended conversation.Ended) {
	if e.log == nil {
		return
	}
	rec := &recorder{s: s, e: e, log: e.log}
	if err := errors.Join(rec.Tell(conversation.Event{Time: s.cfg.Now(), Ended: &ended}), e.log.Finish(exitOf(ended))); err != nil && !errors.Is(err, errs.NotFound) {
		// Who follows learns it from the row.
		s.cfg.Log.Warn("end the journal of a run", telemetry.KeyUID, e.thread.UID, "run", e.run.ID, telemetry.KeyErr, err)
	}
}

// finish notes in the rows of a run and its thread how the run ended, and takes back
// what it did if that was asked for.
func (s *Service) finish(ctx context.Context, e *execution, ended conversation.Ended) error {
	s.mu.Lock()
	rollback := e.rollback && ended.Status == conversation.RunInterrupted
	s.mu.Unlock()
	head, err := s.headOf(ctx, e.thread.UID)
	if err != nil {
		return err
	}
	if err := s.cfg.Store.ChangeRunAndThread(ctx, e.thread.UID, e.run.ID, func(r *conversation.Run, t *conversation.Thread) error {
		r.Status, t.Status, t.Error = ended.Status, statusOf(head.Next), nil
		if ended.Status == conversation.RunFailed {
			failed, err := json.Marshal(struct {
				Error   string `json:"error"`
				Message string `json:"message"`
			}{ended.Error, ended.Message})
			if err != nil {
				return err
			}
			r.Error, t.Error, t.Status = failed, failed, conversation.ThreadFailed
		}
		if head.RunID == r.ID && len(r.Request.Input) > store.LongInput {
			r.Request.Input = nil // the thread's state has it
		}
		t.UpdatedAt = s.cfg.Now()
		return nil
	}); err != nil {
		return err
	}
	if rollback {
		return s.undo(ctx, e.thread, e.run)
	}
	return nil
}

// exitOf is the end of a run as the end of a journal.
func exitOf(ended conversation.Ended) sandbox.Exit {
	x := sandbox.Exit{Reason: sandbox.EndExited, Message: ended.Message}
	switch ended.Status {
	case conversation.RunInterrupted:
		x.Reason = sandbox.EndKilled
	case conversation.RunTimeout:
		x.Reason = sandbox.EndTimeout
	}
	return x
}

// headOf is the newest checkpoint of a thread; it is empty in one that has none.
func (s *Service) headOf(ctx context.Context, uid sandbox.UID) (conversation.Checkpoint, error) {
	t, err := s.cfg.Store.ConversationOf(ctx, uid)
	if err != nil || t.Head == "" {
		return conversation.Checkpoint{}, err
	}
	return s.cfg.Store.Checkpoint(ctx, uid, t.Head)
}

// undo takes back what a run did, and the run.
func (s *Service) undo(ctx context.Context, t conversation.Thread, run conversation.Run) error {
	if err := s.cfg.Store.RemoveRun(ctx, t.UID, run.ID, true); err != nil && !errors.Is(err, errs.NotFound) {
		return err
	}
	head, err := s.headOf(ctx, t.UID)
	if err != nil {
		return err
	}
	_, err = s.cfg.Store.ChangeConversation(ctx, t.UID, func(t *conversation.Thread) error {
		if t.Status != conversation.ThreadBusy {
			t.Status, t.Error = statusOf(head.Next), nil
		}
		return nil
	})
	return err
}

// recorder keeps what a run does.
type recorder struct {
	s   *Service
	e   *execution
	mu  sync.Mutex // tools tell from goroutines of their own
	log *journal.Log
}

// Tell adds a line to the journal. One that is full counts what it cannot keep.
func (r *recorder) Tell(e conversation.Event) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.Append(sandbox.Output{Offset: r.log.Size(), Stream: sandbox.Stdout, Time: e.Time, Data: append(line, '\n')})
}

func (r *recorder) Commit(ctx context.Context, c conversation.Checkpoint, state []conversation.Entry) (conversation.Checkpoint, []conversation.Entry, error) {
	t, run := r.e.thread, r.e.run
	c.Metadata = merged(run.Metadata, map[string]json.RawMessage{
		"run_id": conversation.Text(run.ID), "thread_id": conversation.Text(t.ID),
		"assistant_id": conversation.Text(run.AssistantID), "graph_id": t.Metadata["graph_id"],
	})
	return r.s.cfg.Store.Commit(ctx, store.CommitRequest{Thread: t.UID, Checkpoint: c, State: state, Head: true, Durable: len(c.Next) == 0})
}

func (r *recorder) Pause(ctx context.Context, checkpoint string, tasks []conversation.Task) error {
	return r.s.cfg.Store.SetCheckpointTasks(ctx, r.e.thread.UID, checkpoint, tasks)
}

// attempts counts the daemons that a run had.
func (s *Service) attempts(ctx context.Context, e *execution) int {
	n := 0
	for rec, err := range s.records(ctx, e.thread.UID, e.run.Seq, 0, false) {
		if err != nil {
			break
		}
		if rec.Event.Begun != nil {
			n = max(n, rec.Event.Begun.Attempt)
		}
	}
	return n
}

// lingering is how long the thread of a run that had none stays for those who follow
// the run, once it has ended.
const lingering = 30 * time.Second
