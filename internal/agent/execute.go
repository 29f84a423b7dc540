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
)

// execution is a run that goes on in this daemon.
type execution struct {
	run    conversation.Run
	thread conversation.Thread
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when the run has ended, or is left to the next daemon
	leave  func()        // gives the run's place back
	rec    *recorder     // nil: its journal cannot be written
	// verdict is how it ended already: that is only to be noted.
	verdict *conversation.Ended
	undone  bool // it was taken back; the execution's own

	// Guarded by the service's mu.
	followers followers
	rollback  bool
}

// execute does a run to its end, and then the next one of its thread.
func (s *Service) execute(ctx context.Context, e *execution, again bool) {
	ended, err := s.outcome(ctx, e, again)
	// Who is told of the end, after it is settled, may go on with the thread at once.
	if err != nil || !s.settle(ctx, e, ended) {
		s.release(e)
		return
	}
	s.close(e, ended)
}

// perform does the run's work. Its journal has everything but the end.
func (s *Service) perform(ctx context.Context, e *execution, again bool) (conversation.Ended, error) {
	var none conversation.Ended
	defer s.cfg.Hands.Engage(ctx, e.thread.ID)()
	attempt := 1
	if again {
		attempt = s.attempts(ctx, e) + 1
	}
	if err := e.rec.Tell(conversation.Event{Time: s.cfg.Now(), Begun: &conversation.Begun{RunID: e.run.ID, ThreadID: e.thread.ID, Attempt: attempt}}); err != nil {
		return none, err
	}
	if err := s.patiently(ctx, e, "its begin", func() error { return s.noteBegin(ctx, e) }); err != nil {
		return none, err
	}
	var c loop.Config
	err := s.patiently(ctx, e, "its settings", func() (err error) {
		c, err = s.config(ctx, e.thread, e.run)
		return err
	})
	if err != nil {
		if ctx.Err() != nil {
			return none, err
		}
		info := errs.Public(err)
		return conversation.Ended{Status: conversation.RunFailed, Error: "ConfigurationError", Message: info.Message + hint(info.Hint)}, nil
	}
	c.Record = patientRecorder{e.rec, e, ctx}
	var start loop.Start
	leave := func() {}
	defer func() { leave() }()
	err = s.patiently(ctx, e, "its state", func() (err error) {
		leave()
		start, leave, err = s.start(ctx, e, again)
		return err
	})
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

// noteBegin notes that a run goes on.
func (s *Service) noteBegin(ctx context.Context, e *execution) error {
	return s.cfg.Store.ChangeRunAndThread(ctx, e.thread.UID, e.run.ID, func(r *conversation.Run, t *conversation.Thread) error {
		r.Status, t.Status, t.Error = conversation.RunRunning, conversation.ThreadBusy, nil
		return nil
	})
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
	conversation.IDsAfter(t.Head)
	at := e.run.Request.Checkpoint
	if again {
		// What the run left is the head, if it got so far.
		head, err := s.headOf(ctx, e.thread.UID)
		if err != nil && !errors.Is(err, errs.NotFound) {
			return begin, leave, err
		}
		if head.RunID == e.run.ID {
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
	if leave, err = s.working.enter(ctx, e.thread.Tenant, size); err != nil {
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
	return loop.Start{RunID: e.run.ID, Input: input, Command: e.run.Request.Command, Question: e.run.Request.Question, Older: at != "" && at != t.Head, Again: again, State: state}, leave, nil
}

// recorder keeps what a run does.
type recorder struct {
	s      *Service
	run    conversation.Run
	thread conversation.Thread
	log    *journal.Log

	mu sync.Mutex // tools tell from goroutines of their own
	// torn: the journal may end within a line. Guarded by mu.
	torn bool
	// ended: the journal has the end of the run. Guarded by mu.
	ended bool
}

// Tell adds a line to the journal. One that is full counts what it cannot keep.
func (r *recorder) Tell(e conversation.Event) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	line = append(line, '\n')
	if r.torn {
		line = append([]byte{'\n'}, line...) // or it would be lost with what is torn
	}
	was := r.log.Size()
	err = r.log.Append(sandbox.Output{Offset: was, Stream: sandbox.Stdout, Time: e.Time, Data: line})
	if err == nil {
		r.torn, r.ended = false, e.Ended != nil
	} else if r.log.Size() > was {
		r.torn = true
	}
	return err
}

// end adds the last line, unless it is there, and ends the journal.
func (r *recorder) end(e conversation.Event, exit sandbox.Exit) error {
	if r.log.Exit() != nil {
		return nil
	}
	r.mu.Lock()
	ended := r.ended
	r.mu.Unlock()
	if ended {
		return r.log.Finish(exit)
	}
	return errors.Join(r.Tell(e), r.log.Finish(exit))
}

func (r *recorder) Commit(ctx context.Context, c conversation.Checkpoint, state []conversation.Entry) (conversation.Checkpoint, []conversation.Entry, error) {
	t, run := r.thread, r.run
	c.Metadata = merged(run.Metadata, map[string]json.RawMessage{
		"run_id": conversation.Text(run.ID), "thread_id": conversation.Text(t.ID),
		"assistant_id": conversation.Text(run.AssistantID), "graph_id": t.Metadata["graph_id"],
		"source": conversation.Text(string(c.Source)), "step": conversation.Number(c.Step), // clients look for them
	})
	return r.s.cfg.Store.Commit(ctx, store.CommitRequest{Thread: t.UID, Checkpoint: c, State: state, Head: true, Durable: len(c.Next) == 0})
}

func (r *recorder) Pause(ctx context.Context, c conversation.Checkpoint) error {
	return r.s.cfg.Store.PauseCheckpoint(ctx, r.thread.UID, c)
}

// patientRecorder is a recorder that waits while the database is away, unless run,
// the context of the run, ends.
type patientRecorder struct {
	*recorder
	of  *execution
	run context.Context //nolint:containedctx // of the run, whose steps call with one that does not end
}

func (r patientRecorder) Commit(ctx context.Context, c conversation.Checkpoint, state []conversation.Entry) (made conversation.Checkpoint, entries []conversation.Entry, err error) {
	again := false
	err = r.s.patiently(r.run, r.of, "a checkpoint", func() error {
		made, entries, err = r.recorder.Commit(ctx, c, state)
		if again && errors.Is(err, errs.Conflict) {
			// The attempt whose answer was lost has made it.
			if made, err = r.s.cfg.Store.Checkpoint(ctx, r.thread.UID, c.ID); err == nil {
				entries, err = r.s.messages(ctx, r.thread, made)
			}
		}
		again = true
		return err
	})
	return made, entries, err
}

func (r patientRecorder) Pause(ctx context.Context, c conversation.Checkpoint) error {
	return r.s.patiently(r.run, r.of, "why it waits", func() error { return r.recorder.Pause(ctx, c) })
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
