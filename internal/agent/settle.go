package agent

import (
	"context"
	"errors"
	"time"

	"github.com/cubbyhq/cubby/internal/agent/loop"
	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// settle notes how a run ended, takes back what it did if that was asked for, and
// begins the next run of its thread. It tries until the store takes it. It is false
// when the daemon stops before: the next one ends the run.
func (s *Service) settle(ctx context.Context, e *execution, ended conversation.Ended) bool {
	ctx = context.WithoutCancel(ctx)
	if !s.insist(e, "note the end of a run", func() error { return s.finish(ctx, e, ended) }) {
		return false
	}
	for !s.next(ctx, e) { // it is to be taken back
		if !s.insist(e, "take back a run", func() error { return s.undo(ctx, e.thread, e.run) }) {
			return false
		}
		e.undone = true
	}
	return true
}

// finish notes in the rows of a run and its thread how the run ended. One that is to be
// taken back does not end there: it goes, or the next daemon takes it back.
func (s *Service) finish(ctx context.Context, e *execution, ended conversation.Ended) error {
	head, err := s.headOf(ctx, e.thread.UID)
	if err != nil {
		return err
	}
	messages, err := s.messagesOf(ctx, e, ended)
	if err != nil {
		return err
	}
	failed, err := failureOf(ended)
	if err != nil {
		return err
	}
	goes := false
	err = s.cfg.Store.EndRun(ctx, e.thread.UID, e.run.ID, func(r *conversation.Run, t *conversation.Thread, busy bool) error {
		goes = r.Request.TakeBack
		t.Status, t.Error = statusOf(head.Next), nil
		if !goes {
			r.Status = ended.Status
		}
		if failed != nil && !goes {
			r.Error, t.Error = failed, failed
			if head.Question() == "" { // a question stays one
				t.Status = conversation.ThreadFailed
			}
		}
		if head.RunID == r.ID && len(r.Request.Input) > store.LongInput {
			r.Request.Input = nil // the thread's state has it
		}
		if busy {
			t.Status = conversation.ThreadBusy
		}
		t.UpdatedAt = s.cfg.Now()
		return nil
	}, messages...)
	if err == nil && len(messages) > 0 {
		s.cfg.Webhooks.Wake()
	}
	if err == nil && goes {
		s.mu.Lock()
		defer s.mu.Unlock()
		e.rollback = true // whoever noted it says so here a moment later
	}
	return err
}

// headOf is the newest checkpoint of a thread; it is empty in one that has none.
func (s *Service) headOf(ctx context.Context, uid sandbox.UID) (conversation.Checkpoint, error) {
	t, err := s.cfg.Store.ConversationOf(ctx, uid)
	if err != nil || t.Head == "" {
		return conversation.Checkpoint{}, err
	}
	return s.cfg.Store.Checkpoint(ctx, uid, t.Head)
}

// undo takes back what a run did, and the run. To do it twice is no error.
func (s *Service) undo(ctx context.Context, t conversation.Thread, run conversation.Run) error {
	if err := s.cfg.Store.RemoveRun(ctx, t.UID, run.ID, true); err != nil && !errors.Is(err, errs.NotFound) {
		return err
	}
	head, err := s.headOf(ctx, t.UID)
	if err != nil {
		return err
	}
	return s.cfg.Store.ChangeIdleConversation(ctx, t.UID, func(t *conversation.Thread) error {
		t.Status, t.Error = statusOf(head.Next), nil
		return nil
	})
}

// close ends the journal of a run, whose last record is how the run ended. The journal
// of one that was taken back goes: those who read it have it open.
func (s *Service) close(e *execution, ended conversation.Ended) {
	if e.rec == nil {
		return
	}
	err := e.rec.end(conversation.Event{Time: s.cfg.Now(), Ended: &ended}, exitOf(ended))
	if err != nil && !errors.Is(err, errs.NotFound) {
		// Who follows learns it from the row.
		s.cfg.Log.Warn("end the journal of a run", telemetry.KeyUID, e.thread.UID, "run", e.run.ID, telemetry.KeyErr, err)
	}
	if e.undone {
		s.forgetJournal(e.thread, e.run)
	}
}

func (s *Service) forgetJournal(t conversation.Thread, run conversation.Run) {
	if _, err := s.cfg.Journals.RemoveLog(t.UID, run.Seq); err != nil {
		s.cfg.Log.Warn("remove the journal of a run", telemetry.KeyUID, t.UID, "run", run.ID, telemetry.KeyErr, err)
	}
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

// giveUp ends a run that has not begun and that nobody else begins any more. When that
// cannot be noted the run waits as before.
func (s *Service) giveUp(ctx context.Context, w *waiting, rollback bool) error {
	ctx = context.WithoutCancel(ctx)
	e := &execution{run: w.run, thread: w.thread, rec: w.rec}
	ended := conversation.Ended{Status: conversation.RunInterrupted}
	if err := s.finish(ctx, e, ended); err != nil && !errors.Is(err, errs.NotFound) {
		s.admit(w)
		return err
	}
	defer w.leave()
	var err error
	if rollback || e.rollback {
		err = s.undo(ctx, w.thread, w.run)
		e.undone = err == nil
	}
	s.close(e, ended)
	return err
}

// stopping is the error of what a service that ends does not do any more; nil while it
// does.
func (s *Service) stopping() error {
	select {
	case <-s.ended:
		return errs.E(errs.Unready, "the daemon is stopping").RetryAfter(time.Second)
	default:
		return nil
	}
}

// outcome is how a run ended. Its error is [loop.ErrStopping] alone: the next daemon
// goes on with the run.
func (s *Service) outcome(ctx context.Context, e *execution, again bool) (conversation.Ended, error) {
	if e.verdict != nil {
		return *e.verdict, nil
	}
	ended, err := s.perform(ctx, e, again)
	switch {
	case err == nil:
		if ended.Status == conversation.RunFailed {
			s.cfg.Log.Warn("a run of the agent ended with an error", telemetry.KeyUID, e.thread.UID, "run", e.run.ID, "kind", ended.Error, "message", ended.Message)
		}
		return ended, nil
	case errors.Is(context.Cause(ctx), loop.ErrStopping):
		return ended, loop.ErrStopping
	case ctx.Err() != nil:
		return conversation.Ended{Status: conversation.RunInterrupted}, nil
	}
	s.cfg.Log.Error("a run of the agent failed", telemetry.KeyUID, e.thread.UID, "run", e.run.ID, telemetry.KeyErr, err)
	return failedBy(err), nil
}

// failedBy is the end of a run that cubby itself could not do.
func failedBy(err error) conversation.Ended {
	info := errs.Public(err)
	ended := conversation.Ended{Status: conversation.RunFailed, Error: "InternalServerError", Message: info.Message}
	if info.Kind != errs.Internal {
		ended.Error = "RunError"
	}
	return ended
}
