package live

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"path"
	"slices"
	"time"

	"github.com/cubbyhq/cubby/internal/core/scope"
	"github.com/cubbyhq/cubby/internal/guest"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// Execs is the commands of sandboxes: those that run, and what is known of those
// that have ended. A method that controls one is WrongState when it has ended.
type Execs struct{ s *Sandboxes }

// Start starts a command and returns at once; the command goes on when ctx
// ends. WrongState when the sandbox does not run.
//
// A command of a session is pending until those before it have ended.
func (h *Execs) Start(ctx context.Context, id string, spec sandbox.ExecSpec) (sandbox.Exec, error) {
	if queueOf(spec) != "" {
		return h.s.enqueue(ctx, id, spec)
	}
	e, err := h.s.begin(ctx, id, spec)
	if err != nil {
		return sandbox.Exec{}, err
	}
	return e.Snapshot(), nil
}

// Run is [Execs.Start], [Execs.Wait] and [Execs.Result] in one, at the price of
// one. The result is unfinished when wait is over first, and names the exec
// beside the error when ctx ends first.
func (h *Execs) Run(ctx context.Context, id string, spec sandbox.ExecSpec, wait time.Duration, caps OutputCaps) (Result, error) {
	if queueOf(spec) != "" {
		return h.runQueued(ctx, id, spec, wait, caps)
	}
	e, err := h.s.begin(ctx, id, spec)
	if err != nil {
		return Result{}, err
	}
	x, err := h.s.await(ctx, e, wait)
	if err != nil {
		return Result{Exec: e.Snapshot()}, err
	}
	if x.Status.Finished() && e.givenUp() && e.log.Size() == 0 {
		return Result{Exec: x}, nil
	}
	return h.result(ctx, x, caps)
}

// runQueued is [Execs.Run] for a command of a session.
func (h *Execs) runQueued(ctx context.Context, id string, spec sandbox.ExecSpec, wait time.Duration, caps OutputCaps) (Result, error) {
	x, err := h.s.enqueue(ctx, id, spec)
	if err != nil {
		return Result{}, err
	}
	ended, err := h.s.waitQueued(ctx, x.Box, x.Seq, wait)
	if err != nil {
		return Result{Exec: x}, err
	}
	return h.result(ctx, ended, caps)
}

// begin gives a command its number and a pump that runs it.
func (s *Sandboxes) begin(ctx context.Context, id string, spec sandbox.ExecSpec) (*Exec, error) {
	leave, err := s.cfg.Gate.Enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	b, r, done, err := s.Use(ctx, id)
	if err != nil {
		return nil, err
	}
	defer done()
	return r.Begin(ctx, b, spec)
}

// Begin starts a valid command in the run of b, also while b is being made.
func (r *Run) Begin(ctx context.Context, b sandbox.Sandbox, spec sandbox.ExecSpec) (*Exec, error) {
	return enter(ctx, r, b, spec, "")
}

// enter gives a valid command its number and a pump. With a uid the agent runs it
// already.
func enter(ctx context.Context, r *Run, b sandbox.Sandbox, spec sandbox.ExecSpec, uid sandbox.UID) (*Exec, error) {
	s := r.s
	// What is kept of a command takes the host's disk.
	if err := cmp.Or(s.cfg.Disks.Admit(), r.Guest.Takes(ctx, spec)); err != nil {
		return nil, err
	}
	err := r.execs.reserveFor(uid != "")
	if err != nil {
		return nil, err
	}
	x := sandbox.Exec{
		UID: cmp.Or(uid, sandbox.NewUID()), Box: b.UID, Spec: completeExec(ctx, spec, b.Spec),
		Status: sandbox.ExecPending, Actor: scope.Actor(ctx), CreatedAt: s.cfg.Now(),
	}
	// From the number on the exec exists, whether or not the caller waits.
	ctx = context.WithoutCancel(ctx)
	if x.Seq, err = s.cfg.Store.CreateExec(ctx, x); err != nil {
		r.execs.unreserve()
		return nil, err
	}
	log, err := s.openJournal(x)
	if err != nil {
		r.execs.unreserve()
		exit := sandbox.Exit{Reason: sandbox.EndDiskFull, Message: "the host cannot keep the command's output"}
		return nil, errors.Join(err, s.endUnstarted(ctx, x, exit))
	}
	e := newExec(r, x, log)
	start := startOf(x.Spec)
	if uid != "" {
		start = nil
	}
	if !r.execs.register(e, func() { e.pump(start) }) {
		e.finish(e.lost(), time.Time{})
		telemetry.Close(s.cfg.Log, log)
	}
	return e, nil
}

// endUnstarted finishes an exec that has no journal and never ran.
func (s *Sandboxes) endUnstarted(ctx context.Context, x sandbox.Exec, exit sandbox.Exit) error {
	x.Exit, x.Status, x.FinishedAt = &exit, endStatus(exit), s.cfg.Now()
	return s.writeEnd(ctx, x, true)
}

// completeExec fills what a command leaves open, and what the act that asks for it
// found lost.
func completeExec(ctx context.Context, x sandbox.ExecSpec, b sandbox.Spec) sandbox.ExecSpec {
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
	if x.Service == nil { // the daemon's own doing
		x.RestoreIncomplete = scope.LossesOf(ctx).Reason()
	}
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

// Wait returns the exec when it has finished or when timeout is over; a
// negative timeout waits for ever. Like all that reads execs and their output
// it finds those of a destroyed sandbox too, until they are pruned and while no
// other sandbox has its id.
func (h *Execs) Wait(ctx context.Context, id string, seq int64, timeout time.Duration) (sandbox.Exec, error) {
	b, err := h.s.cfg.Scope.FindHistory(ctx, id)
	if err != nil {
		return sandbox.Exec{}, err
	}
	if e := h.s.exec(b.UID, seq); e != nil {
		if timeout == 0 {
			return e.Snapshot(), nil
		}
		return h.s.await(ctx, e, timeout)
	}
	x, err := h.s.cfg.Store.Exec(ctx, b.UID, seq)
	if err != nil || x.Status.Finished() || timeout == 0 {
		return x, err
	}
	return h.s.waitQueued(ctx, b.UID, seq, timeout)
}

// Get returns one exec, without its env.
func (h *Execs) Get(ctx context.Context, id string, seq int64) (sandbox.Exec, error) {
	return h.Wait(ctx, id, seq, 0)
}

// ExecQuery selects execs in ascending order of seq.
type ExecQuery struct {
	AfterSeq int64
	Limit    int    // 0: 100, at most 1000
	Service  string // the runs of this one; "": commands
}

// List lists the commands of a sandbox, or the runs of one of its services, without their env and of long commands
// and code the beginning. The list may end before its limit when much is in it:
// only an empty one says that there are no more.
func (h *Execs) List(ctx context.Context, id string, q ExecQuery) ([]sandbox.Exec, error) {
	b, err := h.s.cfg.Scope.FindHistory(ctx, id)
	if err != nil {
		return nil, err
	}
	done, err := h.s.cfg.Budget.Turn(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	list, err := h.s.cfg.Store.Execs(ctx, b.UID, store.ExecQuery{AfterSeq: q.AfterSeq, Limit: q.Limit, Brief: true, Commands: q.Service == "", Service: q.Service})
	if err != nil {
		return nil, err
	}
	for i := range list {
		if list[i].Status.Finished() {
			continue
		}
		// The store learns of a start a little later.
		if e := h.s.exec(b.UID, list[i].Seq); e != nil {
			list[i] = e.Snapshot().Brief()
		}
	}
	var bytes int64
	for _, x := range list {
		bytes += x.Bytes()
	}
	return list, h.s.cfg.Budget.ChargeList(ctx, bytes)
}

// WaitQueued is [Execs.Wait] for an exec of a sandbox that the caller has found,
// and that may wait in a queue.
func (h *Execs) WaitQueued(ctx context.Context, box sandbox.UID, seq int64, timeout time.Duration) (sandbox.Exec, error) {
	return h.s.waitQueued(ctx, box, seq, timeout)
}

// Cuts is an exec's end, or of one that runs a zero one, with the bytes of its
// output that its journal has left out so far.
func (h *Execs) Cuts(x sandbox.Exec) (end sandbox.Exit) {
	if x.Exit != nil {
		return *x.Exit
	}
	if e := h.s.exec(x.Box, x.Seq); e != nil {
		return withCuts(end, e.log)
	}
	return end
}

// Unfinished are the execs of a kind that have not ended, the oldest first, without
// their env.
func (h *Execs) Unfinished(ctx context.Context, box sandbox.UID, kind string) ([]sandbox.Exec, error) {
	list, err := h.s.cfg.Store.Execs(ctx, box, store.ExecQuery{Unfinished: true, Kind: kind, Limit: MaxExecs})
	if err != nil {
		return nil, err
	}
	var running []sandbox.Exec
	for _, x := range list {
		if x, err = h.AsItStands(ctx, x); err != nil {
			return nil, err
		}
		if !x.Status.Finished() {
			running = append(running, x)
		}
	}
	return running, nil
}

// AsItStands is an exec of the store as those know it who wait for it: the store
// learns of a start and of an end a little later.
func (h *Execs) AsItStands(ctx context.Context, x sandbox.Exec) (sandbox.Exec, error) {
	if x.Status.Finished() {
		return x, nil
	}
	if e := h.s.exec(x.Box, x.Seq); e != nil {
		return e.Snapshot(), nil
	}
	return h.s.cfg.Store.Exec(ctx, x.Box, x.Seq) // it may have ended just now
}
