package live

import (
	"context"
	"errors"
	"time"

	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/guest"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// serve runs the commands of a queue until it is empty. It leaves them to the
// next daemon when the service ends, and to who ends the sandbox when that does.
func (qs *queues) serve(q *queue) {
	r := qs.run
	pauses := gate.NewPauses()
	for {
		item := qs.next(q)
		if item == nil {
			return
		}
		var e *Exec
		var err error = errs.E(errs.Unavailable, "somebody cancels it")
		if got, ok := qs.take(item.seq); ok {
			e, err = qs.start(r.ctx, got)
			if err != nil {
				qs.giveBack(got)
			}
		}
		if r.isOver() || r.ctx.Err() != nil {
			return
		}
		if err != nil {
			// Whatever keeps it from being started, those behind it wait too.
			pause := pauses.NextBackOff()
			if r.sleep(pause); pause == gate.RetryLast {
				r.s.cfg.Log.Warn("start the next command of a queue; it is tried again", telemetry.KeyUID, r.UID, telemetry.KeySeq, item.seq, telemetry.KeyErr, err)
			}
			continue
		}
		pauses.Reset()
		qs.mu.Lock()
		qs.unqueue(item)
		if e != nil {
			q.running = e.seq
		}
		qs.mu.Unlock()
		if e == nil {
			continue
		}
		select {
		case <-e.done:
		case <-r.ctx.Done():
			return
		}
		qs.mu.Lock()
		q.running = 0
		qs.mu.Unlock()
	}
}

// isBusy reports whether a queue has commands that wait or run. The caller holds
// mu.
func (qs *queues) isBusy(name string) bool {
	q := qs.names[name]
	return q != nil && (q.waiting > 0 || qs.runs(q) != 0)
}

// runs returns the exec of a queue that runs now, 0 when none does. The caller
// holds mu.
func (qs *queues) runs(q *queue) int64 {
	if e := qs.run.execs.get(q.running); e != nil && !e.givenUp() {
		return e.seq
	}
	return 0
}

// next returns the first of a queue; nil when it is empty, and then it is one
// no more.
func (qs *queues) next(q *queue) *queued {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	for len(q.seqs) > 0 {
		if item := qs.waiting[q.seqs[0]]; item != nil {
			return item
		}
		q.seqs = q.seqs[1:]
	}
	delete(qs.names, q.name)
	return nil
}

// start starts an exec whose turn it is, or takes it up where an earlier
// daemon left it: the agent knows it if that had started it. Nil without an
// error is one that has ended. It is to be tried again after any error.
func (qs *queues) start(ctx context.Context, item *queued) (*Exec, error) {
	r, s := qs.run, qs.run.s
	x, start, err := s.loadQueued(ctx, r.UID, item)
	if err != nil || x.Status.Finished() {
		return nil, err
	}
	// One that runs already is counted, whatever the tenant's bound.
	if err := r.execs.reserveFor(x.Status == sandbox.ExecRunning); err != nil {
		return nil, err
	}
	log, err := s.openJournal(x)
	if err != nil {
		r.execs.unreserve()
		exit := sandbox.Exit{Reason: sandbox.EndDiskFull, Message: "the host cannot keep the command's output"}
		s.cfg.Log.Error("open the journal of a command", telemetry.KeyUID, x.Box, telemetry.KeySeq, x.Seq, telemetry.KeyErr, err)
		return nil, s.endUnstarted(ctx, x, exit)
	}
	if log.Exit() != nil {
		r.execs.unreserve()
		telemetry.Close(s.cfg.Log, log)
		// Only the store had not heard of it.
		return nil, s.endLost(ctx, x, Ending{})
	}
	e := newExec(r, x, log)
	if !r.execs.register(e, func() { e.pump(start) }) {
		e.finish(e.lost(), time.Time{})
		telemetry.Close(s.cfg.Log, log)
		return nil, nil
	}
	return e, nil
}

// loadQueued returns an exec with what it is to be started with; nil when the
// agent is only to be asked for it.
func (s *Sandboxes) loadQueued(ctx context.Context, box sandbox.UID, item *queued) (sandbox.Exec, *guest.Start, error) {
	if item.exec != nil {
		return *item.exec, startOf(item.exec.Spec), nil
	}
	x, err := s.cfg.Store.Exec(ctx, box, item.seq)
	if errors.Is(err, errs.NotFound) {
		return sandbox.Exec{Status: sandbox.ExecError}, nil, nil
	}
	if err != nil || x.Status != sandbox.ExecPending || x.Spec.NeedsSecrets && item.secrets == nil {
		return x, nil, err
	}
	if x.Spec.Env, err = s.cfg.Store.ExecEnv(ctx, box, item.seq); err != nil {
		return x, nil, err
	}
	x.Spec.Secrets = item.secrets
	return x, startOf(x.Spec), nil
}
