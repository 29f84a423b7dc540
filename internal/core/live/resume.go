package live

import (
	"context"
	"time"

	"github.com/cubbyhq/cubby/internal/guest"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// resume takes up the execs that an earlier run left unfinished in a sandbox that
// runs on. Each goes on where its journal ends. One whose start
// the agent may never have got is sent again: the agent knows it by its uid
// if it did. What that needs may be gone; then the agent is only asked.
func (r *Run) resume(ctx context.Context) error {
	s := r.s
	carried := s.carriedTo(r.UID)
	for after := int64(0); ; {
		page, err := s.unfinished(ctx, r.UID, after)
		if err != nil {
			return err
		}
		for _, x := range page {
			x.Spec.Secrets = carried[x.Seq]
			if queueOf(x.Spec) != "" {
				r.queues.resume(x)
			} else if err := r.resumeExec(ctx, x); err != nil {
				return err
			}
			after = x.Seq
		}
		if len(page) == 0 {
			break
		}
	}
	s.settled(r.UID)
	s.cfg.Gate.Spawn(func(context.Context) { r.releaseFinished() })
	return nil
}

func (r *Run) resumeExec(ctx context.Context, x sandbox.Exec) error {
	s := r.s
	var start *guest.Start
	if x.Status == sandbox.ExecPending && (!x.Spec.NeedsSecrets || x.Spec.Secrets != nil) {
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
		return s.endLost(ctx, x, Ending{})
	}
	if err := r.execs.reserveFor(true); err != nil {
		telemetry.Close(s.cfg.Log, log)
		return err
	}
	e := newExec(r, x, log)
	if !r.execs.register(e, func() { e.pump(start) }) {
		e.finish(e.lost(), time.Time{})
		telemetry.Close(s.cfg.Log, log)
	}
	return nil
}

// resume puts a command of a session or a cell back into its queue. The first of
// each may have been started.
func (qs *queues) resume(x sandbox.Exec) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	first := qs.names[queueOf(x.Spec)] == nil
	qs.requeue(x, false).begun = first
	qs.text += textOf(x.Spec)
	qs.secrets += size(x.Spec.Secrets)
}

// uids are those that wait.
func (qs *queues) uids() map[sandbox.UID]bool {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	all := make(map[sandbox.UID]bool, len(qs.waiting))
	for _, item := range qs.waiting {
		all[item.uid] = true
	}
	return all
}

// unfinished returns execs of a sandbox that have no end yet, in the order of
// their seqs, some at a time.
func (s *Sandboxes) unfinished(ctx context.Context, box sandbox.UID, after int64) ([]sandbox.Exec, error) {
	return s.cfg.Store.Execs(ctx, box, store.ExecQuery{Unfinished: true, AfterSeq: after, Limit: 200})
}

// releaseFinished lets the agent forget what ended before the daemon did and
// could not be released any more.
func (r *Run) releaseFinished() {
	known, err := r.Guest.List(r.ctx)
	if err != nil {
		if r.ctx.Err() == nil {
			r.s.cfg.Log.Warn("list the execs of an agent", telemetry.KeyUID, r.UID, telemetry.KeyErr, err)
		}
		return
	}
	// In this order: what waits no more is live.
	wanted := r.queues.uids()
	x := r.execs
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, e := range x.live {
		wanted[e.uid] = true
	}
	for _, k := range known {
		if k.Finished && !wanted[k.UID] {
			x.release(k.UID)
		}
	}
}
