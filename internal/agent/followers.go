package agent

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cubbyhq/cubby/internal/agent/loop"
	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// returning is how long the next daemon waits for clients that the end of the one
// before cut off.
const returning = 30 * time.Second

// followers are those who follow a run.
type followers struct {
	here          int
	cancelOnLeave bool // the run ends when the last of them leaves
	awaited       bool // an earlier daemon cut them off, and they may come back
}

// left reports whether the run is to end because nobody follows it.
func (f followers) left() bool { return f.cancelOnLeave && f.here <= 0 && !f.awaited }

// awaitedOf are the followers that a run of an earlier daemon may have.
func awaitedOf(run conversation.Run) followers {
	return followers{cancelOnLeave: run.Request.CancelOnLeave, awaited: run.Request.CancelOnLeave}
}

// attach counts who follows a run.
func (s *Service) attach(uid sandbox.UID, run string, cancelOnLeave bool) (release func()) {
	// change reports whether there was something to count, and what is to be canceled.
	change := func(by int) (counted bool, abandoned *execution) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if w := s.queued[run]; w != nil {
			w.followers.here += by
			w.followers.cancelOnLeave = w.followers.cancelOnLeave || cancelOnLeave
			return true, nil // it ends when its turn comes, if nobody is there then
		}
		e := s.active[uid]
		if e == nil || e.run.ID != run {
			return false, nil
		}
		e.followers.here += by
		e.followers.cancelOnLeave = e.followers.cancelOnLeave || cancelOnLeave
		if e.followers.left() {
			return true, e
		}
		return true, nil
	}
	if counted, _ := change(1); !counted {
		return func() {}
	}
	return sync.OnceFunc(func() {
		if s.draining.Load() {
			return // they did not want to
		}
		if _, e := change(-1); e != nil {
			e.cancel(loop.ErrCanceled)
		}
	})
}

// noteCancelOnLeave notes in the row of a run that it ends with those who follow it:
// the daemon may be killed under them.
func (s *Service) noteCancelOnLeave(ctx context.Context, t conversation.Thread, run conversation.Run) error {
	if run.Request.CancelOnLeave || run.Status.Ended() {
		return nil
	}
	err := s.cfg.Store.ChangeRunAndThread(ctx, t.UID, run.ID, func(r *conversation.Run, _ *conversation.Thread) error {
		r.Request.CancelOnLeave = true
		return nil
	})
	if errors.Is(err, errs.NotFound) {
		return nil // it was taken back
	}
	return err
}

// endAbandoned ends the runs whose followers have not come back from an earlier daemon.
func (s *Service) endAbandoned() {
	select {
	case <-time.After(s.cfg.Returning):
	case <-s.ended: // the next daemon waits for them
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.queued {
		w.followers.awaited = false // it ends when its turn comes
	}
	for _, e := range s.active {
		e.followers.awaited = false
		if e.followers.left() {
			e.cancel(loop.ErrCanceled)
		}
	}
}
