package core

import (
	"context"
	"time"

	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

const (
	idleEvery  = 10 * time.Second
	pruneEvery = time.Hour
)

// idleAct is what happens to a sandbox that nobody uses.
type idleAct int

const (
	keepRunning idleAct = iota
	stopIdle
	destroyIdle
)

// decideIdle is the idle rule. Sleeping needs a driver that keeps memory;
// without one it is a stop.
func decideIdle(spec sandbox.Spec, now, lastActive time.Time, inUse bool) idleAct {
	if inUse || spec.IdleTimeout <= 0 || now.Sub(lastActive) < spec.IdleTimeout {
		return keepRunning
	}
	switch spec.IdlePolicy {
	case sandbox.IdleStop, sandbox.IdleSleep:
		return stopIdle
	case sandbox.IdleDestroy:
		return destroyIdle
	case sandbox.IdleAlwaysOn:
	}
	return keepRunning
}

func (s *Service) idleLoop(ctx context.Context) {
	t := time.NewTicker(idleEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			s.reapIdle(ctx)
			s.closeTrees(ctx)
		}
	}
}

// reapIdle looks at every running sandbox once.
func (s *Service) reapIdle(ctx context.Context) {
	s.mu.Lock()
	all := make([]*run, 0, len(s.running))
	for _, r := range s.running {
		all = append(all, r)
	}
	s.mu.Unlock()
	for _, r := range all {
		if ctx.Err() != nil {
			return
		}
		if r.idle() == keepRunning {
			continue
		}
		if err := s.reap(ctx, r); err != nil {
			s.log.Error("reap an idle sandbox", telemetry.KeySandbox, r.id, telemetry.KeyUID, r.uid, telemetry.KeyErr, err)
		}
	}
}

func (r *run) idle() idleAct {
	lastActive, inUse, _ := r.use()
	return decideIdle(*r.spec.Load(), r.s.now(), lastActive, inUse)
}

func (s *Service) reap(ctx context.Context, r *run) error {
	unlock, free := s.ids.tryLock(r.id.Key())
	if !free {
		return nil // somebody uses it
	}
	defer unlock()
	// Asked again now that nobody can come in between.
	act := r.idle()
	if act == keepRunning || s.runOf(r.uid) != r {
		return nil
	}
	b, err := s.cfg.Store.SandboxByUID(ctx, r.uid)
	if err != nil {
		return err
	}
	if act == destroyIdle {
		_, err = s.destroy(ctx, b, false)
		return err
	}
	reason := "idle"
	if b.Spec.IdlePolicy == sandbox.IdleSleep {
		reason = "idle: this host cannot keep a sandbox's memory, so it was stopped and not put to sleep"
	}
	_, err = s.halt(ctx, b, DefaultGrace, reason)
	return err
}

// pruneLoop forgets history that is older than its retention.
func (s *Service) pruneLoop(ctx context.Context) {
	if s.cfg.HistoryRetention <= 0 {
		return
	}
	t := time.NewTicker(pruneEvery)
	defer t.Stop()
	for {
		s.prune(ctx)
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

func (s *Service) prune(ctx context.Context) {
	before := s.now().Add(-s.cfg.HistoryRetention)
	forgotten, err := s.cfg.Store.Prune(ctx, before)
	for _, uid := range forgotten {
		if err := s.cfg.Journals.Remove(uid); err != nil {
			s.log.Error("remove a journal", telemetry.KeyUID, uid, telemetry.KeyErr, err)
		}
	}
	if err == nil {
		err = s.cfg.Journals.Prune(before)
	}
	if err != nil && ctx.Err() == nil {
		s.log.Error("prune history", telemetry.KeyErr, err)
	}
}
