package agent

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/cubbyhq/cubby/internal/agent/loop"
	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// waiting is a run behind another one of its thread.
type waiting struct {
	run    conversation.Run
	thread conversation.Thread
	leave  func()
	rec    *recorder // nil: its journal cannot be written
	again  bool      // an earlier daemon began it
	// verdict is how it ended already: that is only to be noted.
	verdict *conversation.Ended

	followers followers // guarded by the service's mu: handed on to the execution
}

// enqueue stores a run, and begins it when its turn has come.
func (s *Service) enqueue(ctx context.Context, t conversation.Thread, run conversation.Run, a conversation.Assistant) (conversation.Run, conversation.Thread, error) {
	unlock, err := s.threads.Lock(ctx, string(t.UID))
	if err != nil {
		return run, t, err
	}
	defer unlock()
	if err := s.address(ctx, t.UID, &run.Request); err != nil {
		return run, t, err
	}
	if err := s.makeRoom(ctx, t, run.Multitask); err != nil {
		return run, t, err
	}
	// Only now: a run whose place is taken may have given one back.
	leave, err := s.places.Enter(t.Tenant)
	if err != nil {
		return run, t, err
	}
	run.Thread = t.UID
	var was conversation.Thread
	made, err := s.cfg.Store.CreateRun(ctx, store.NewRun{Run: run, Change: func(th *conversation.Thread) error {
		was = *th
		th.Metadata = merged(th.Metadata, map[string]json.RawMessage{
			"graph_id": conversation.Text(a.GraphID), "assistant_id": conversation.Text(a.ID),
		})
		th.Status, th.UpdatedAt = conversation.ThreadBusy, s.cfg.Now()
		t.Metadata = th.Metadata
		return nil
	}})
	w := &waiting{run: run, thread: t, leave: leave}
	if err != nil {
		if was.UID != "" { // it may be there nevertheless, where its being on disk is what failed
			err = errors.Join(err, s.unmake(context.WithoutCancel(ctx), w, was))
		}
		leave()
		return run, t, noThread(t.ID, err)
	}
	if len(made.Request.Input) > store.LongInput {
		made.Request.Input = nil // it waits in the database
	}
	// From here on there is something to follow.
	run, w.run = made, made
	log, err := s.cfg.Journals.Create(t.UID, run.Seq)
	if err != nil {
		leave()
		return run, t, errors.Join(err, s.unmake(context.WithoutCancel(ctx), w, was))
	}
	w.rec = &recorder{s: s, run: run, thread: t, log: log}
	s.admit(w)
	return run, t, nil
}

// address notes which question a command answers. Invalid when it is no answer to it: a
// person who decides is told at once, and the question stays.
func (s *Service) address(ctx context.Context, uid sandbox.UID, q *conversation.RunRequest) error {
	q.Question = ""
	if q.Command == nil || !conversation.Given(q.Command.Resume) {
		return nil
	}
	at, err := s.headOf(ctx, uid)
	if err == nil && q.Checkpoint != "" {
		at, err = s.cfg.Store.Checkpoint(ctx, uid, q.Checkpoint)
	}
	if errors.Is(err, errs.NotFound) {
		return nil // the run says so
	}
	if err != nil {
		return err
	}
	q.Question = at.Question()
	if q.Question == "" && s.busy(uid) {
		return nil // what the thread waits with when the run begins is not known
	}
	return loop.CheckAnswer(at, q.Command.Resume)
}

// unmake takes back a run that cannot begin, whose thread was so before. One that
// cannot be taken back ends as failed when the store can be written again.
func (s *Service) unmake(ctx context.Context, w *waiting, was conversation.Thread) error {
	err := s.cfg.Store.RemoveRun(ctx, w.thread.UID, w.run.ID, false)
	if err == nil {
		var head conversation.Checkpoint
		if head, err = s.headOf(ctx, w.thread.UID); err == nil {
			err = s.cfg.Store.ChangeIdleConversation(ctx, w.thread.UID, func(t *conversation.Thread) error {
				if t.Status, t.Error = was.Status, was.Error; t.Status == conversation.ThreadBusy {
					t.Status = statusOf(head.Next) // what it was busy with has ended
				}
				return nil
			})
		}
	}
	if err != nil && !errors.Is(err, errs.NotFound) {
		ended := failedBy(errs.E(errs.Unavailable, "the journal of the run could not be made"))
		w.verdict = &ended
		s.admit(w)
		return err
	}
	return nil
}

// admit begins a run whose thread is free, and lets others wait.
func (s *Service) admit(w *waiting) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.ended: // the next daemon begins it
		w.leave()
		return
	default:
	}
	if s.active[w.thread.UID] != nil || s.firstOf(w.thread.UID) != nil {
		s.queued[w.run.ID] = w
		return
	}
	s.launch(w)
}

// launch begins a run. The service's mu is held.
func (s *Service) launch(w *waiting) {
	ctx, cancel := context.WithCancelCause(as(context.Background(), w.thread))
	e := &execution{
		run: w.run, thread: w.thread, rec: w.rec, verdict: w.verdict, cancel: cancel, done: make(chan struct{}), leave: w.leave,
		followers: w.followers, rollback: w.run.Request.TakeBack,
	}
	// Who wanted it left while it waited, or had an earlier daemon's word that it ends.
	if e.followers.left() || w.run.Request.Canceled {
		cancel(loop.ErrCanceled)
	}
	s.active[w.thread.UID] = e
	s.work.Go(func() {
		defer cancel(nil)
		s.execute(ctx, e, w.again)
	})
}

// firstOf is the run of a thread that waits longest; nil: none does. The service's mu
// is held.
func (s *Service) firstOf(uid sandbox.UID) *waiting {
	var first *waiting
	for _, w := range s.queued {
		if w.thread.UID == uid && (first == nil || w.run.Seq < first.run.Seq) {
			first = w
		}
	}
	return first
}

// release ends an execution, without a next one.
func (s *Service) release(e *execution) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.active, e.thread.UID)
	e.leave()
	close(e.done)
}

// next follows an execution that has ended by the run that waits, if there is one. It
// is false, and does nothing, when somebody wants the run taken back, and it is not.
func (s *Service) next(ctx context.Context, e *execution) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.rollback && !e.undone {
		return false
	}
	if e.run.Request.Temporary {
		s.work.Go(func() { s.expire(ctx, e) })
	}
	delete(s.active, e.thread.UID)
	e.leave()
	close(e.done)
	w := s.firstOf(e.thread.UID)
	if w == nil {
		return true
	}
	delete(s.queued, w.run.ID)
	select {
	case <-s.ended:
		w.leave()
	default:
		s.launch(w)
	}
	return true
}

// expire removes the thread of a run that had none, a while after its end.
func (s *Service) expire(ctx context.Context, e *execution) {
	select {
	case <-time.After(lingering):
	case <-s.ended: // the next daemon does it
		return
	}
	ctx = context.WithoutCancel(ctx)
	err := s.patiently(ctx, e, "the removal of its thread", func() error { return s.Threads().remove(as(ctx, e.thread), e.thread, nil) })
	if err != nil && !errors.Is(err, errs.NotFound) {
		s.cfg.Log.Warn("remove the thread of a run", telemetry.KeyUID, e.thread.UID, telemetry.KeyErr, err)
	}
}

// busy reports whether a thread has a run that has not ended.
func (s *Service) busy(uid sandbox.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.active[uid] != nil || s.firstOf(uid) != nil
}

// makeRoom does with the runs of a thread what a new one asks for. The thread's lock
// is held.
func (s *Service) makeRoom(ctx context.Context, t conversation.Thread, m conversation.Multitask) error {
	if !s.busy(t.UID) {
		return s.stopping()
	}
	if m == "" {
		m = conversation.MultitaskInterrupt
		if s.followed(t.UID) {
			m = conversation.MultitaskReject
		}
	}
	switch m {
	case conversation.MultitaskEnqueue:
		return nil
	case conversation.MultitaskInterrupt, conversation.MultitaskRollback:
		return s.evict(ctx, t.UID, m == conversation.MultitaskRollback)
	}
	return errs.E(errs.Conflict, "Thread is already running a task. Wait for it to finish or choose a different multitask strategy.").
		Hint("multitask_strategy is reject, interrupt, rollback or enqueue")
}

// followed reports whether somebody follows what goes on in a thread.
func (s *Service) followed(uid sandbox.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.active[uid]
	return e != nil && e.followers.here > 0
}

// evict ends all runs of a thread, those that wait first. The thread's lock is held, so
// that none are added.
func (s *Service) evict(ctx context.Context, uid sandbox.UID, rollback bool) error {
	for {
		if err := s.stopping(); err != nil {
			return err
		}
		if w := s.takeLast(uid); w != nil {
			if err := s.giveUp(ctx, w, rollback); err != nil {
				return err
			}
			continue
		}
		s.mu.Lock()
		e := s.active[uid]
		if e != nil {
			e.rollback = e.rollback || rollback
		}
		s.mu.Unlock()
		if e == nil {
			return nil
		}
		e.cancel(loop.ErrCanceled)
		select { // its state is the beginning of what comes
		case <-e.done: // and one that waited may have begun meanwhile
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// takeLast takes the run of a thread that would begin last; nil: none waits.
func (s *Service) takeLast(uid sandbox.UID) *waiting {
	s.mu.Lock()
	defer s.mu.Unlock()
	var last *waiting
	for _, w := range s.queued {
		if w.thread.UID == uid && (last == nil || w.run.Seq > last.run.Seq) {
			last = w
		}
	}
	if last != nil {
		delete(s.queued, last.run.ID)
	}
	return last
}

// cancel ends a run, and returns what is closed when it has ended. The thread's lock is
// held.
func (s *Service) cancel(ctx context.Context, t conversation.Thread, run conversation.Run, rollback bool) (<-chan struct{}, error) {
	var e *execution
	var w *waiting
	var late bool
	var unnoted error
	for noted := false; ; noted = true {
		s.mu.Lock()
		e, w = s.active[t.UID], s.queued[run.ID]
		if e != nil && e.run.ID != run.ID {
			e = nil
		}
		if e == nil || noted {
			break
		}
		s.mu.Unlock()
		// Whoever does not wait for the end has the word of the next daemon too.
		late, unnoted = s.noteCancel(context.WithoutCancel(ctx), t, run, rollback)
	}
	delete(s.queued, run.ID)
	if e != nil {
		e.rollback = e.rollback || rollback
	}
	s.mu.Unlock()
	if e != nil {
		e.cancel(loop.ErrCanceled)
		if unnoted != nil || !late || !rollback {
			return e.done, unnoted
		}
		select { // no next daemon takes back what it finds ended
		case <-e.done:
		case <-ctx.Done():
			return e.done, ctx.Err()
		}
	}
	done := make(chan struct{})
	close(done)
	if w != nil {
		return done, s.giveUp(ctx, w, rollback)
	}
	if err := s.stopping(); err != nil {
		return done, err
	}
	run, err := s.cfg.Store.ConversationRun(ctx, t.UID, run.ID)
	switch {
	case errors.Is(err, errs.NotFound): // it was taken back meanwhile
		return done, nil
	case err != nil:
		return done, err
	case !run.Status.Ended(): // nobody does it
		return done, s.giveUp(ctx, &waiting{run: run, thread: t, leave: func() {}}, rollback)
	case !rollback:
		return done, nil
	case s.busy(t.UID):
		return done, errs.E(errs.Conflict, "another run of the thread goes on").Hint("cancel it first")
	}
	if err := s.undo(context.WithoutCancel(ctx), t, run); err != nil {
		return done, err
	}
	s.forgetJournal(t, run)
	return done, nil
}

// noteCancel notes in the row of a run that it is to end. It is late when the run
// has ended there. One that has been taken back meanwhile has none.
func (s *Service) noteCancel(ctx context.Context, t conversation.Thread, run conversation.Run, rollback bool) (late bool, err error) {
	err = s.cfg.Store.ChangeRunAndThread(ctx, t.UID, run.ID, func(r *conversation.Run, _ *conversation.Thread) error {
		if late = r.Status.Ended(); !late {
			r.Request.Canceled, r.Request.TakeBack = true, r.Request.TakeBack || rollback
		}
		return nil
	})
	if errors.Is(err, errs.NotFound) {
		return false, nil
	}
	return late, err
}
