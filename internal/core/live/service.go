package live

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"time"

	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// killAgain is how long a kill may take to be seen until it is tried again.
const killAgain = 10 * time.Second

// A run of a service is an exec that is no use of its sandbox. When one is started
// or ended is not this package's matter.

// Service is what the exec is a run of; nil: of none.
func (e *Exec) Service() *sandbox.ServiceRun { return e.service }

// PID is the command's process id inside the sandbox, 0 while it is not known.
func (e *Exec) PID() int64 { return e.pid.Load() }

// Terminate ends a run of a service: SIGTERM first, and SIGKILL for what is left
// of it when ctx ends, also when the command itself has ended before. It returns
// when the exec has its end, or the run is over.
func (e *Exec) Terminate(ctx context.Context) {
	select {
	case <-e.begun:
	case <-e.run.ctx.Done():
		return
	}
	err := e.run.signal(e.run.ctx, e.uid, syscall.SIGTERM, true, sandbox.EndKilled)
	if err == nil {
		select {
		case <-e.done:
			e.awaitLeft(ctx)
		case <-ctx.Done():
		case <-e.run.ctx.Done():
			return
		}
	}
	e.kill(e.run.ctx, sandbox.EndKilled)
	for !e.givenUp() && e.run.ctx.Err() == nil {
		select {
		case <-e.done:
		case <-e.run.ctx.Done():
		case <-time.After(killAgain):
			e.kill(e.run.ctx, sandbox.EndKilled)
		}
	}
}

// awaitLeft waits until nothing runs any more that a finished exec has left, or ctx
// ends. SIGCONT asks: it changes nothing, and fails when nothing is there.
func (e *Exec) awaitLeft(ctx context.Context) {
	for pauses := gate.NewPauses(); e.run.signal(ctx, e.uid, syscall.SIGCONT, true, "") == nil; {
		gate.Pause(ctx, pauses)
	}
}

// KillLeft ends what a finished exec left running.
func (e *Exec) KillLeft() { e.kill(e.run.ctx, sandbox.EndKilled) }

// KillLeft is [Exec.KillLeft] for an exec that ended while nobody followed it.
func KillLeft(r *Run, x sandbox.Exec) {
	logKill(r.ctx, r, x.Seq, r.signal(r.ctx, x.UID, syscall.SIGKILL, true, sandbox.EndKilled))
}

// IsEnding reports whether the sandbox of a run is about to end.
func IsEnding(r *Run) bool { return r.execs.endingNow() != nil }

// Context ends when a run is over, suspended or left by the service: nothing
// that belongs to it goes on then.
func Context(r *Run) context.Context { return r.ctx }

// ServiceExecs are the runs of services that go on in a run: those that it
// has numbers for, by seq, and those that its memory brought with it from another.
func ServiceExecs(ctx context.Context, r *Run, b sandbox.Sandbox, spec func(sandbox.ServiceRun) sandbox.ExecSpec) ([]*Exec, error) {
	known := make(map[sandbox.UID]bool)
	var all []*Exec
	for _, e := range r.execs.all() {
		if known[e.uid] = true; e.service != nil {
			all = append(all, e)
		}
	}
	agent, err := r.Guest.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, k := range agent {
		if k.Service == nil || k.Finished || known[k.UID] || len(all) >= sandbox.MaxServices {
			continue
		}
		e, err := enter(ctx, r, b, spec(*k.Service), k.UID)
		switch {
		case errors.Is(err, errs.Conflict): // it has ended since, or the agent makes it up
			continue
		case err != nil:
			return nil, err
		}
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b *Exec) int { return int(a.seq - b.seq) })
	return all, nil
}
