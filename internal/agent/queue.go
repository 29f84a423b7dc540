package agent

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/cubbyhq/cubby/internal/agent/loop"
	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/journal"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// waiting is a run behind another one of its thread.
type waiting struct {
	run    conversation.Run
	thread conversation.Thread
	leave  func()
	log    *journal.Log
	again  bool // an earlier daemon began it

	// Guarded by the service's mu: handed on to the execution.
	readers       int
	cancelOnLeave bool
}

// enqueue stores a run, and begins it when its turn has come.
func (s *Service) enqueue(ctx context.Context, t conversation.Thread, run conversation.Run, a conversation.Assistant, leave func()) (conversation.Run, conversation.Thread, error) {
	unlock, err := s.threads.Lock(ctx, string(t.UID))
	if err != nil {
		return run, t, err
	}
	defer unlock()
	if err := s.makeRoom(ctx, t, run.Multitask); err != nil {
		return run, t, err
	}
	run.Thread = t.UID
	run, err = s.cfg.Store.CreateRun(ctx, store.NewRun{Run: run, Change: func(th *conversation.Thread) error {
		th.Metadata = merged(th.Metadata, map[string]json.RawMessage{
			"graph_id": conversation.Text(a.GraphID), "assistant_id": conversation.Text(a.ID),
		})
		th.Status, th.UpdatedAt = conversation.ThreadBusy, s.cfg.Now()
		t.Metadata = th.Metadata
		return nil
	}})
	if err != nil {
		return run, t, noThread(t.ID, err)
	}
	if len(run.Request.Input) > store.LongInput {
		run.Request.Input = nil // it waits in the database
	}
	// From here on there is something to follow.
	log, err := s.cfg.Journals.Create(t.UID, run.Seq)
	if err != nil {
		return run, t, errors.Join(err, s.cfg.Store.RemoveRun(context.WithoutCancel(ctx), t.UID, run.ID, false))
	}
	return run, t, s.admit(&waiting{run: run, thread: t, leave: leave, log: log})
}

// admit begins a run whose thread is free, and lets others wait.
func (s *Service) admit(w *waiting) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.ended: // the next daemon begins it
		w.leave()
		return nil
	default:
	}
	if s.active[w.thread.UID] != nil || s.firstOf(w.thread.UID) != nil {
		s.queued[w.run.ID] = w
		return nil
	}
	s.launch(w)
	return nil
}

// launch begins a run. The service's mu is held.
func (s *Service) launch(w *waiting) {
	ctx, cancel := context.WithCancelCause(as(context.Background(), w.thread))
	e := &execution{
		run: w.run, thread: w.thread, log: w.log, cancel: cancel, done: make(chan struct{}), leave: w.leave, readers: w.readers, cancelOnLeave: w.cancelOnLeave,
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
	close(e.done)
}

// next follows an execution that has ended by the run that waits, if there is one.
func (s *Service) next(ctx context.Context, e *execution) {
	if e.run.Request.Temporary {
		s.work.Go(func() { s.expire(ctx, e.thread) })
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.active, e.thread.UID)
	close(e.done)
	w := s.firstOf(e.thread.UID)
	if w == nil {
		return
	}
	delete(s.queued, w.run.ID)
	select {
	case <-s.ended:
		w.leave()
	default:
		s.launch(w)
	}
}

// expire removes the thread of a run that had none, a while after its end.
func (s *Service) expire(ctx context.Context, t conversation.Thread) {
	select {
	case <-time.After(lingering):
	case <-s.ended: // the next daemon does it
		return
	}
	if err := s.Threads().remove(as(ctx, t), t); err != nil && !errors.Is(err, errs.NotFound) {
		s.cfg.Log.Warn("remove the thread of a run", telemetry.KeyUID, t.UID, telemetry.KeyErr, err)
	}
}

// running is what goes on in a thread; nil: nothing does.
func (s *Service) running(uid sandbox.UID) *execution {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.active[uid]
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
	s.mu.Lock()
	e := s.active[t.UID]
	followed := e != nil && e.readers > 0
	s.mu.Unlock()
	if e == nil && !s.busy(t.UID) {
		return nil
	}
	if m == "" {
		m = conversation.MultitaskInterrupt
		if followed {
			m = conversation.MultitaskReject
		}
	}
	switch m {
	case conversation.MultitaskEnqueue:
		return nil
	case conversation.MultitaskInterrupt, conversation.MultitaskRollback:
		rollback := m == conversation.MultitaskRollback
		for _, w := range s.takeQueue(t.UID) {
			if err := s.giveUp(ctx, w, rollback); err != nil {
				return err
			}
		}
		if e == nil {
			return nil
		}
		s.mu.Lock()
		e.rollback = rollback
		s.mu.Unlock()
		e.cancel(loop.ErrCanceled)
		select { // its state is the new one's beginning
		case <-e.done:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	case conversation.MultitaskReject:
		return errs.E(errs.Conflict, "Thread is already running a task. Wait for it to finish or choose a different multitask strategy.").
			Hint("multitask_strategy is reject, interrupt, rollback or enqueue")
	}
	return errs.E(errs.Invalid, "multitask_strategy: %.40q is none", m).Hint("it is reject, interrupt, rollback or enqueue")
}

// takeQueue takes the runs of a thread that wait.
func (s *Service) takeQueue(uid sandbox.UID) []*waiting {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []*waiting
	for id, w := range s.queued {
		if w.thread.UID == uid {
			list = append(list, w)
			delete(s.queued, id)
		}
	}
	slices.SortFunc(list, func(a, b *waiting) int { return int(a.run.Seq - b.run.Seq) })
	return list
}

// dropQueue forgets them, as their thread goes.
func (s *Service) dropQueue(uid sandbox.UID) {
	for _, w := range s.takeQueue(uid) {
		w.leave()
	}
}

// giveUp ends a run that has not begun.
func (s *Service) giveUp(ctx context.Context, w *waiting, rollback bool) error {
	defer w.leave()
	e := &execution{run: w.run, thread: w.thread, log: w.log, rollback: rollback}
	ended := conversation.Ended{Status: conversation.RunInterrupted}
	if err := s.finish(context.WithoutCancel(ctx), e, ended); err != nil {
		return err
	}
	s.close(e, ended)
	return nil
}

// cancel ends a run, and returns what is closed when it has ended. The thread's lock is
// held.
func (s *Service) cancel(ctx context.Context, t conversation.Thread, run conversation.Run, rollback bool) (<-chan struct{}, error) {
	s.mu.Lock()
	e, w := s.active[t.UID], s.queued[run.ID]
	delete(s.queued, run.ID)
	if e != nil && e.run.ID == run.ID {
		e.rollback = rollback
		s.mu.Unlock()
		e.cancel(loop.ErrCanceled)
		return e.done, nil
	}
	s.mu.Unlock()
	done := make(chan struct{})
	close(done)
	switch {
	case w != nil:
		return done, s.giveUp(ctx, w, rollback)
	case rollback && e == nil:
		return done, s.undo(ctx, t, run)
	case rollback:
		return done, errs.E(errs.Conflict, "another run of the thread goes on").Hint("cancel it first")
	}
	return done, nil
}

// attach counts who follows a run.
func (s *Service) attach(ctx context.Context, uid sandbox.UID, run string, cancelOnLeave bool) (release func()) {
	change := func(by int) (last *execution) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if w := s.queued[run]; w != nil {
			w.readers += by
			w.cancelOnLeave = w.cancelOnLeave || cancelOnLeave
			return nil
		}
		e := s.active[uid]
		if e == nil || e.run.ID != run {
			return nil
		}
		e.readers += by
		e.cancelOnLeave = e.cancelOnLeave || cancelOnLeave
		if e.readers <= 0 && e.cancelOnLeave {
			return e
		}
		return nil
	}
	change(1)
	left := false
	return func() {
		if left {
			return
		}
		left = true
		if e := change(-1); e != nil {
			e.cancel(loop.ErrCanceled)
		}
	}
}
