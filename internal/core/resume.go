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
	list, err := s.unfinished(ctx, r.uid)
	if err != nil {
		return err
	}
	for _, x := range list {
		if err := s.resumeExec(ctx, r, x); err != nil {
			return err
		}
	}
	s.life.spawn(func(ctx context.Context) { s.releaseFinished(ctx, r) })
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
	if err := r.reserve(); err != nil {
		s.shut(log)
		return err
	}
	e := newLiveExec(r, x, log)
	if !r.register(e, func() { e.pump(start) }) {
		e.finish(e.lost(), time.Time{})
		s.shut(log)
	}
	return nil
}

// unfinished returns all execs of a sandbox that have no end yet.
func (s *Service) unfinished(ctx context.Context, box sandbox.UID) ([]sandbox.Exec, error) {
	var all []sandbox.Exec
	q := store.ExecQuery{Unfinished: true, Limit: 1000}
	for {
		page, err := s.cfg.Store.Execs(ctx, box, q)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		if len(page) < q.Limit {
			return all, nil
		}
		q.AfterSeq = page[len(page)-1].Seq
	}
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
				end = endOf(b.Reason)
			}
		}
		if err := s.endLost(ctx, x, end); err != nil {
			return err
		}
	}
	return nil
}
