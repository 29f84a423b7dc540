package core

import (
	"context"
	"errors"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/guest"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// resume takes up the execs that an earlier daemon left unfinished in a
// sandbox that runs on. Each goes on where its journal ends. One whose start
// the agent may never have got is sent again: the agent knows it by its uid
// if it did. What that needs may be gone; then the agent is only asked.
func (s *Service) resume(ctx context.Context, r *run) error {
	for after := int64(0); ; {
		page, err := s.unfinished(ctx, r.uid, after)
		if err != nil {
			return err
		}
		for _, x := range page {
			if queueOf(x.Spec) != "" {
				r.resumeQueued(x)
			} else if err := s.resumeExec(ctx, r, x); err != nil {
				return err
			}
			after = x.Seq
		}
		if len(page) == 0 {
			break
		}
	}
	s.gate.Spawn(func(ctx context.Context) { s.releaseFinished(ctx, r) })
	return nil
}

func (s *Service) resumeExec(ctx context.Context, r *run, x sandbox.Exec) error {
	var start *guest.Start
	if x.Status == sandbox.ExecPending && !x.Spec.NeedsSecrets {
		env, err := s.cfg.Store.ExecEnv(ctx, x.Box, x.Seq)
		if err != nil {
			return err
		}
		x.Spec.Env = env
		start = startOf(x.Spec)
	}
	log, err := s.openJournal(x)
	if err != nil {
		return err
	}
	if exit := log.Exit(); exit != nil {
		// Only the store had not heard of it.
		return s.endLost(ctx, x, ending{})
	}
	if err := r.reserveFor(true); err != nil {
		telemetry.Close(s.log, log)
		return err
	}
	e := newLiveExec(r, x, log)
	if !r.register(e, func() { e.pump(start) }) {
		e.finish(e.lost(), time.Time{})
		telemetry.Close(s.log, log)
	}
	return nil
}

// resumeQueued puts a command of a session or a cell back into its queue. The
// first of each may have been started.
func (r *run) resumeQueued(x sandbox.Exec) {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := r.queues[queueOf(x.Spec)] == nil
	r.requeue(x, false)
	r.queuedText += textOf(x.Spec)
	r.queued[x.Seq].begun = first
}

// unfinished returns execs of a sandbox that have no end yet, in the order of
// their seqs, some at a time.
func (s *Service) unfinished(ctx context.Context, box sandbox.UID, after int64) ([]sandbox.Exec, error) {
	return s.cfg.Store.Execs(ctx, box, store.ExecQuery{Unfinished: true, AfterSeq: after, Limit: 200})
}

// releaseFinished lets the agent forget what ended before the daemon did and
// could not be released any more.
func (s *Service) releaseFinished(ctx context.Context, r *run) {
	known, err := r.guest.List(r.ctx)
	if err != nil {
		if r.ctx.Err() == nil {
			s.log.Warn("list the execs of an agent", telemetry.KeyUID, r.uid, telemetry.KeyErr, err)
		}
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	live := make(map[sandbox.UID]bool, len(r.execs))
	for _, e := range r.execs {
		live[e.uid] = true
	}
	for _, item := range r.queued {
		live[item.uid] = true
	}
	for _, x := range known {
		if x.Finished && !live[x.UID] {
			r.release(x.UID)
		}
	}
}

// endForgotten ends unfinished execs of sandboxes that do not run, as a crash
// between the death of a sandbox and the end of its execs leaves them.
func (s *Service) endForgotten(ctx context.Context) error {
	list, err := s.cfg.Store.UnfinishedExecs(ctx)
	if err != nil {
		return err
	}
	for _, x := range list {
		b, err := s.cfg.Store.SandboxByUID(ctx, x.Box)
		if err != nil && !errors.Is(err, errs.NotFound) {
			return err
		}
		end := ending{sandbox.EndLost, "the sandbox is not known any more"}
		if err == nil {
			switch b.State {
			case sandbox.Running, sandbox.Creating:
				continue
			case sandbox.Destroyed:
				end = ending{sandbox.EndDestroyed, "the sandbox was destroyed"}
			default:
				end = endOf(b.Why())
			}
		}
		if err := s.endLost(ctx, x, end); err != nil {
			return err
		}
	}
	return nil
}
