package proc

import (
	"context"
	"errors"
	"syscall"
	"time"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
	"github.com/cubbyhq/cubby/internal/errs"
)

// Signal sends a signal to the process group of the command, or with all to
// everything that descends from it; SIGKILL to all returns when nothing is left.
// A reason is what the exit says when the command ends of it. An Exec that has
// ended is NotFound when nothing lives in its tree.
func (e *Exec) Signal(ctx context.Context, sig syscall.Signal, reason guestv1.ExitReason, all bool) error {
	t, err := e.aim(ctx, sig, reason)
	if err != nil {
		return err
	}
	return e.signal(ctx, t, sig, all)
}

// aim returns the tree that a signal is for, and notes the reason.
func (e *Exec) aim(ctx context.Context, sig syscall.Signal, reason guestv1.ExitReason) (tree, error) {
	t, _, err := e.started(ctx)
	if err == nil && reason != guestv1.ExitReason_EXIT_REASON_UNSPECIFIED {
		e.setCause(Cause{Reason: reason, Signal: sig})
	}
	return t, err
}

func (e *Exec) signal(ctx context.Context, t tree, sig syscall.Signal, all bool) error {
	switch {
	case all && e.Exit() != nil && !t.alive():
		return errs.E(errs.NotFound, "nothing of the command is left")
	case all && sig == syscall.SIGKILL:
		if err := t.kill(ctx); err != nil {
			return errs.E(errs.Timeout, "some processes are not gone yet").Because(err)
		}
		return nil
	case all:
		for _, pid := range t.members() {
			if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
				return Classify(err, "signal")
			}
		}
		return nil
	case e.Exit() != nil:
		return errs.E(errs.WrongState, "the command has ended")
	}
	if err := syscall.Kill(-t.pid(), sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return Classify(err, "signal")
	}
	return nil
}

// Survivors are what a kill did not end: outlived, when the host is asked to
// end it, and the pids of the processes that the host must spare then.
type Survivors struct {
	Outlived bool
	Spare    []int64
}

// Kill kills everything that descends from a command, and asks the host to do
// so when that takes longer than patience: what starves the agent does not
// starve the host.
func (r *Runner) Kill(ctx context.Context, e *Exec, reason guestv1.ExitReason, patience time.Duration) (Survivors, error) {
	t, err := e.aim(ctx, syscall.SIGKILL, reason)
	if err != nil {
		return Survivors{}, err
	}
	held, shared := t.(*supervised)
	if !shared {
		return Survivors{}, e.signal(ctx, t, syscall.SIGKILL, true)
	}
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	killed := make(chan error, 1)
	r.behind.Go(func() { killed <- e.signal(within, t, syscall.SIGKILL, true) })
	select {
	case err := <-killed:
		if within.Err() == nil || ctx.Err() != nil {
			return Survivors{}, err
		}
	case <-within.Done():
		if ctx.Err() != nil {
			return Survivors{}, errs.E(errs.Timeout, "some processes are not gone yet").Because(context.Cause(ctx))
		}
	}
	if !t.alive() {
		return Survivors{}, nil
	}
	spare, outlived := held.by.pool.spare(held)
	return Survivors{outlived, spare}, nil
}

// Unkilled is what kills that began longer than patience ago did not end.
func (r *Runner) Unkilled(patience time.Duration) Survivors {
	pool, shared := r.launcher.(*supervisors)
	if !shared {
		return Survivors{}
	}
	trees, spare := pool.unkilled(patience)
	return Survivors{len(trees) > 0, spare}
}

// WriteStdin passes data on to the command's standard input, from where the
// last write ended, and returns the offset reached. Bytes before it are
// skipped, a gap is Invalid; WrongState when the command reads no more.
func (e *Exec) WriteStdin(ctx context.Context, offset int64, data []byte, eof bool) (int64, error) {
	_, io, err := e.started(ctx)
	if err != nil {
		return 0, err
	}
	if io.in == nil {
		return 0, errs.E(errs.WrongState, "the command was started without standard input")
	}
	return io.in.write(ctx, offset, data, eof)
}

// Resize sets the size of the command's terminal.
func (e *Exec) Resize(ctx context.Context, size *guestv1.WindowSize) error {
	_, io, err := e.started(ctx)
	if err != nil {
		return err
	}
	return Classify(io.resize(size), "terminal")
}
