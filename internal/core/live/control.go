package live

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// cancelWait is how long a Cancel waits to see the end that it brought about.
const cancelWait = 10 * time.Second

func execFinished() error { return errs.E(errs.WrongState, "the command has ended") }

// control returns an exec that the agent runs now, in a sandbox that is in use
// until done; WrongState when it has ended.
func (h *Execs) control(ctx context.Context, id string, seq int64) (e *Exec, done func(), err error) {
	if e, done, err = h.reach(ctx, id, seq); err != nil {
		return nil, nil, err
	}
	if err := e.ready(ctx); err != nil {
		done()
		return nil, nil, err
	}
	return e, done, nil
}

// toSignal is control for who signals: a cell need not have begun.
func (h *Execs) toSignal(ctx context.Context, id string, seq int64) (e *Exec, done func(), err error) {
	if e, done, err = h.reach(ctx, id, seq); err != nil {
		return nil, nil, err
	}
	if !e.isCell() || e.givenUp() {
		if err := e.ready(ctx); err != nil {
			done()
			return nil, nil, err
		}
	}
	return e, done, nil
}

// reach returns an exec that the agent has, or is about to get, in a sandbox that
// is in use until done. One that sleeps is woken for it.
func (h *Execs) reach(ctx context.Context, id string, seq int64) (e *Exec, done func(), err error) {
	for range useAttempts {
		if err := h.rouseFor(ctx, id, seq); err != nil {
			return nil, nil, err
		}
		b, err := h.s.cfg.Scope.Find(ctx, id)
		if err != nil {
			return nil, nil, err
		}
		if err := h.s.awaitTurn(ctx, b.UID, seq); err != nil {
			return nil, nil, err
		}
		e := h.s.exec(b.UID, seq)
		if e == nil {
			x, err := h.s.cfg.Store.Exec(ctx, b.UID, seq)
			switch {
			case err != nil:
				return nil, nil, err
			case x.Status.Finished():
				return nil, nil, execFinished()
			}
			break
		}
		if done, ok := e.run.open(ctx); ok {
			return e, done, nil
		}
		// It was just put to sleep.
	}
	return nil, nil, errUnreachable()
}

// rouseFor wakes a sleeping sandbox for an exec that has not ended.
func (h *Execs) rouseFor(ctx context.Context, id string, seq int64) error {
	b, err := h.s.cfg.Scope.Find(ctx, id)
	if err != nil || !h.s.asleep(b) {
		return err
	}
	x, err := h.s.cfg.Store.Exec(ctx, b.UID, seq)
	if err != nil || x.Status.Finished() {
		return err
	}
	return h.s.rouse(ctx, id)
}

// signal sends a signal to what the agent runs or, for a cell, is about to run:
// a kernel may take long to start.
func (e *Exec) signal(ctx context.Context, sig syscall.Signal, tree bool) error {
	if e.isCell() && deadly(sig) {
		e.helpCell()
	}
	return e.deliver(ctx, sig, tree, sandbox.EndKilled)
}

// deliver signals an exec also when the agent has not heard of it yet.
func (e *Exec) deliver(ctx context.Context, sig syscall.Signal, tree bool, reason sandbox.EndReason) error {
	known := func() bool { return e.started() || e.run.ctx.Err() != nil }
	err := onceKnown(ctx, known, func() error { return e.run.signal(ctx, e.uid, sig, tree, reason) })
	if errors.Is(err, errs.NotFound) && !e.started() {
		return errUnreachable() // the next run may start it
	}
	return err
}

// onceKnown tells the agent something about an exec, again until it has heard of the exec.
// Whether it has is asked first: it may hear of the exec right after it has said that it
// does not know it.
func onceKnown(ctx context.Context, known func() bool, tell func() error) error {
	for pauses := gate.NewPauses(); ; gate.Pause(ctx, pauses) {
		heard := known()
		if err := tell(); heard || !errors.Is(err, errs.NotFound) || ctx.Err() != nil {
			return err
		}
	}
}

// ready waits until the agent runs the exec, and counts as a use of it.
// WrongState when it has ended.
func (e *Exec) ready(ctx context.Context) error {
	select {
	case <-e.begun:
	case <-e.run.left:
		return errUnreachable()
	case <-ctx.Done():
		return ctx.Err()
	case <-e.run.s.cfg.Gate.Ended():
		return gate.ErrShuttingDown()
	}
	if e.Snapshot().Status.Finished() {
		return execFinished()
	}
	e.run.Touch(ctx)
	return nil
}

// signalLeft signals what a finished exec left running. WrongState when there is
// nothing.
func (h *Execs) signalLeft(ctx context.Context, id string, seq int64, sig syscall.Signal) error {
	b, err := h.s.cfg.Scope.Find(ctx, id)
	if err != nil {
		return err
	}
	x, err := h.s.cfg.Store.Exec(ctx, b.UID, seq)
	if err != nil {
		return err
	}
	if b.State != sandbox.Running && b.State != sandbox.Sleeping {
		return execFinished() // nothing is left of it
	}
	_, r, done, err := h.s.Use(ctx, id)
	if err != nil {
		return err
	}
	defer done()
	return gone(r.signal(ctx, x.UID, sig, true, sandbox.EndKilled))
}

// Signal sends a signal ("SIGINT", "INT") to the command's process group, or
// with tree to everything that descends from it, also when the command itself
// has ended and left it behind. WrongState when there is nothing to signal.
func (h *Execs) Signal(ctx context.Context, id string, seq int64, signal string, tree bool) error {
	sig, err := parseSignal(signal)
	if err != nil {
		return err
	}
	if deadly(sig) {
		if ended, err := h.cancelQueued(ctx, id, seq); ended || err != nil {
			return err
		}
	}
	e, done, err := h.toSignal(ctx, id, seq)
	if tree && errors.Is(err, errs.WrongState) {
		return h.signalLeft(ctx, id, seq, sig)
	}
	if err != nil {
		return err
	}
	defer done()
	return gone(e.signal(ctx, sig, tree))
}

// deadly reports whether a signal is meant to end a command: then it also ends
// one that still waits for its turn.
func deadly(sig syscall.Signal) bool {
	switch sig {
	case syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGKILL, syscall.SIGTERM:
		return true
	}
	return false
}

// parseSignal reads the name of a signal with or without "SIG", in any case.
func parseSignal(name string) (syscall.Signal, error) {
	upper := strings.ToUpper(name)
	if !strings.HasPrefix(upper, "SIG") {
		upper = "SIG" + upper
	}
	if sig := unix.SignalNum(upper); sig != 0 {
		return sig, nil
	}
	return 0, errs.E(errs.Invalid, "signal: %.20q is not the name of a signal", name).
		Hint("names are as SIGINT, SIGTERM, SIGKILL, SIGHUP, SIGUSR1")
}

// Cancel kills everything that descends from the command; its end says killed.
// A cell is interrupted, and only when that has no effect its kernel killed.
// It returns the exec as it ended. Of a finished exec it kills what that left
// running, which changes nothing about the exec.
func (h *Execs) Cancel(ctx context.Context, id string, seq int64) (sandbox.Exec, error) {
	if ended, err := h.cancelQueued(ctx, id, seq); err != nil {
		return sandbox.Exec{}, err
	} else if ended {
		return h.Get(ctx, id, seq)
	}
	e, done, err := h.toSignal(ctx, id, seq)
	if errors.Is(err, errs.WrongState) {
		if err := h.signalLeft(ctx, id, seq, syscall.SIGKILL); err != nil && !errors.Is(err, errs.WrongState) {
			return sandbox.Exec{}, err
		}
		return h.Get(ctx, id, seq)
	}
	if err != nil {
		return sandbox.Exec{}, err
	}
	defer done()
	err = e.signal(ctx, syscall.SIGKILL, true)
	if err != nil && !errors.Is(err, errs.NotFound) && !errors.Is(err, errs.WrongState) {
		return sandbox.Exec{}, err
	}
	x, err := h.s.await(ctx, e, cancelWait)
	if err != nil {
		return sandbox.Exec{}, err
	}
	return x, nil
}

// WriteStdin writes to the command's standard input at an offset and returns
// the offset reached. Bytes that were written before are skipped, so a repeat
// is harmless; an offset below 0 appends.
func (h *Execs) WriteStdin(ctx context.Context, id string, seq, offset int64, data []byte, eof bool) (int64, error) {
	e, done, err := h.control(ctx, id, seq)
	if err != nil {
		return 0, err
	}
	defer done()
	return e.writeStdin(ctx, offset, data, eof)
}

func (e *Exec) writeStdin(ctx context.Context, offset int64, data []byte, eof bool) (_ int64, err error) {
	if offset < 0 {
		e.stdin.Lock()
		defer e.stdin.Unlock()
		if offset, err = e.run.Guest.WriteStdin(ctx, e.uid, 0, nil, false); err != nil {
			return 0, gone(err)
		}
	}
	reached, err := e.run.Guest.WriteStdin(ctx, e.uid, offset, data, eof)
	return reached, gone(err)
}

// Resize sets the size of the command's terminal.
func (h *Execs) Resize(ctx context.Context, id string, seq int64, size sandbox.WindowSize) error {
	if err := size.Validate(); err != nil {
		return err
	}
	e, done, err := h.control(ctx, id, seq)
	if err != nil {
		return err
	}
	defer done()
	return e.resize(ctx, size)
}

func (e *Exec) resize(ctx context.Context, size sandbox.WindowSize) error {
	if err := e.run.Guest.Resize(ctx, e.uid, size); err != nil {
		return gone(err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.exec.Spec.PTY = &size
	return nil
}
