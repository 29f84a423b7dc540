package core

import (
	"context"
	"errors"
	"maps"
	"path"
	"slices"
	"time"

	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/core/scope"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/guest"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// Exec starts a command and returns at once; the command goes on when ctx
// ends. WrongState when the sandbox does not run.
//
// A command of a session is pending until those before it have ended.
func (s *Service) Exec(ctx context.Context, id string, spec sandbox.ExecSpec) (sandbox.Exec, error) {
	if queueOf(spec) != "" {
		return s.enqueue(ctx, id, spec)
	}
	e, err := s.beginExec(ctx, id, spec)
	if err != nil {
		return sandbox.Exec{}, err
	}
	return e.snapshot(), nil
}

// RunExec is [Service.Exec], [Service.WaitExec] and [Service.Result] in one,
// at the price of one. The result is unfinished when wait is over first, and
// names the exec beside the error when ctx ends first.
func (s *Service) RunExec(ctx context.Context, id string, spec sandbox.ExecSpec, wait time.Duration, caps OutputCaps) (Result, error) {
	if queueOf(spec) != "" {
		return s.runQueued(ctx, id, spec, wait, caps)
	}
	e, err := s.beginExec(ctx, id, spec)
	if err != nil {
		return Result{}, err
	}
	if err := s.await(ctx, e, wait); err != nil {
		return Result{Exec: e.snapshot()}, err
	}
	x := e.snapshot()
	if x.Status.Finished() && e.log.Size() == 0 {
		return Result{Exec: x}, nil
	}
	return s.result(ctx, x, caps)
}

// beginExec gives a command its number and a pump that runs it.
func (s *Service) beginExec(ctx context.Context, id string, spec sandbox.ExecSpec) (*liveExec, error) {
	leave, err := s.gate.Enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	b, r, err := s.findRunning(ctx, id)
	if err != nil {
		return nil, err
	}
	return s.begin(ctx, b, r, spec)
}

// begin is beginExec of a valid command in the run of b.
func (s *Service) begin(ctx context.Context, b sandbox.Sandbox, r *run, spec sandbox.ExecSpec) (*liveExec, error) {
	// What is kept of a command takes the host's disk.
	if err := s.cfg.Disks.Admit(); err != nil {
		return nil, err
	}
	err := r.reserve()
	if err != nil {
		return nil, err
	}
	x := sandbox.Exec{
		UID: sandbox.NewUID(), Box: b.UID, Spec: completeExec(spec, b.Spec),
		Status: sandbox.ExecPending, Actor: scope.Actor(ctx), CreatedAt: s.now(),
	}
	// From the number on the exec exists, whether or not the caller waits.
	ctx = context.WithoutCancel(ctx)
	if x.Seq, err = s.cfg.Store.CreateExec(ctx, x); err != nil {
		r.unreserve()
		return nil, err
	}
	log, err := s.openJournal(x)
	if err != nil {
		r.unreserve()
		exit := sandbox.Exit{Reason: sandbox.EndDiskFull, Message: "the host cannot keep the command's output"}
		return nil, errors.Join(err, s.endUnstarted(ctx, x, exit))
	}
	e := newLiveExec(r, x, log)
	start := startOf(x.Spec)
	if !r.register(e, func() { e.pump(start) }) {
		e.finish(e.lost(), time.Time{})
		telemetry.Close(s.log, log)
	}
	return e, nil
}

// endUnstarted finishes an exec that has no journal and never ran.
func (s *Service) endUnstarted(ctx context.Context, x sandbox.Exec, exit sandbox.Exit) error {
	x.Exit, x.Status, x.FinishedAt = &exit, endStatus(exit), s.now()
	return s.writeEnd(ctx, x, true)
}

// completeExec fills what a command leaves open.
func completeExec(x sandbox.ExecSpec, b sandbox.Spec) sandbox.ExecSpec {
	if x.Cwd == "" && x.Session == "" {
		x.Cwd = sandbox.WorkspaceDir
	} else if x.Cwd != "" && !path.IsAbs(x.Cwd) {
		x.Cwd = path.Join(sandbox.WorkspaceDir, x.Cwd)
	}
	if x.User == "" {
		x.User = b.User
	}
	if x.Timeout == nil {
		limit := b.ExecTimeout
		x.Timeout = &limit
	}
	x.NeedsSecrets = len(x.Secrets) > 0
	return x
}

// startOf is what the agent is told of a command.
func startOf(x sandbox.ExecSpec) *guest.Start {
	start := &guest.Start{ExecSpec: x}
	for _, name := range slices.Sorted(maps.Keys(x.Secrets)) {
		start.Env = append(start.Env, name+"="+x.Secrets[name])
	}
	return start
}

// findRunning returns a sandbox and its run. WrongState says what to do.
func (s *Service) findRunning(ctx context.Context, id string) (sandbox.Sandbox, *run, error) {
	b, err := s.scope.Find(ctx, id)
	if err != nil {
		return b, nil, err
	}
	if b.State != sandbox.Running {
		return b, nil, s.scope.NotRunning(b)
	}
	r := s.runOf(b.UID)
	if r == nil {
		return b, nil, errs.E(errs.Unavailable, "the sandbox cannot be reached yet").RetryAfter(time.Second)
	}
	return b, r, nil
}

// await waits for the end of e, at most for wait; a negative one is for ever.
// It is an error only when ctx or the service ends first.
func (s *Service) await(ctx context.Context, e *liveExec, wait time.Duration) error {
	var over <-chan time.Time
	if wait >= 0 {
		t := time.NewTimer(wait)
		defer t.Stop()
		over = t.C
	}
	select {
	case <-e.done:
	case <-over:
	case <-ctx.Done():
		return ctx.Err()
	case <-s.gate.Ended():
		return gate.ErrShuttingDown()
	}
	return nil
}

// WaitExec returns the exec when it has finished or when timeout is over; a
// negative timeout waits for ever. Like all that reads execs and their output
// it finds those of a destroyed sandbox too, until they are pruned and while no
// other sandbox has its id.
func (s *Service) WaitExec(ctx context.Context, id string, seq int64, timeout time.Duration) (sandbox.Exec, error) {
	b, err := s.scope.FindHistory(ctx, id)
	if err != nil {
		return sandbox.Exec{}, err
	}
	if e := s.live(b.UID, seq); e != nil {
		if err := s.await(ctx, e, timeout); err != nil {
			return sandbox.Exec{}, err
		}
		return e.snapshot(), nil
	}
	x, err := s.cfg.Store.Exec(ctx, b.UID, seq)
	if err != nil || x.Status.Finished() || queueOf(x.Spec) == "" || timeout == 0 {
		return x, err
	}
	return s.waitQueued(ctx, b.UID, seq, timeout)
}

// live returns an exec of this sandbox that runs now, nil when there is none.
func (s *Service) live(box sandbox.UID, seq int64) *liveExec {
	r := s.runOf(box)
	if r == nil {
		return nil
	}
	return r.liveExec(seq)
}

// ExecByID returns one exec, without its env.
func (s *Service) ExecByID(ctx context.Context, id string, seq int64) (sandbox.Exec, error) {
	return s.WaitExec(ctx, id, seq, 0)
}

// ExecQuery selects execs in ascending order of seq.
type ExecQuery struct {
	AfterSeq int64
	Limit    int // 0: 100, at most 1000
}

// Execs lists the execs of a sandbox, without their env and of long commands
// and code the beginning. The list may end before its limit when much is in it:
// only an empty one says that there are no more.
func (s *Service) Execs(ctx context.Context, id string, q ExecQuery) ([]sandbox.Exec, error) {
	b, err := s.scope.FindHistory(ctx, id)
	if err != nil {
		return nil, err
	}
	list, err := s.cfg.Store.Execs(ctx, b.UID, store.ExecQuery{AfterSeq: q.AfterSeq, Limit: q.Limit, Brief: true})
	if err != nil {
		return nil, err
	}
	for i := range list {
		if list[i].Status.Finished() {
			continue
		}
		// The store learns of a start a little later.
		if e := s.live(b.UID, list[i].Seq); e != nil {
			list[i] = e.snapshot().Brief()
		}
	}
	var bytes int64
	for _, x := range list {
		bytes += x.Bytes()
	}
	return list, s.budget.ChargeList(ctx, bytes)
}
