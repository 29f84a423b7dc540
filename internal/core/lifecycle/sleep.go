package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/core/scope"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

const (
	// A client that has had all of its answer asks for a sleep before the daemon
	// has let go of what it was: so often it is asked again whether it has.
	leaveTries = 25
	leavePause = 10 * time.Millisecond
)

// Sleep keeps the memory of a running sandbox on the disk and ends its run: all
// that ran goes on after [Sandboxes.Wake]. A sleeping one is left as it is. InUse
// without force while a command, a cell, a transfer or a viewer is there; with
// force commands, cells and terminals go on after the wake, and transfers break.
// WrongState when it does not run.
//
// Where its memory cannot be kept, in a container or when the host has no room for
// it, the sandbox is stopped instead, and its reason says so; one that was stopped
// so is left as it is. After another error it runs on: Unsupported is that of one that
// was started by an older version of cubby.
func (s *Sandboxes) Sleep(ctx context.Context, id string, force bool) (sandbox.Sandbox, error) {
	b, unlock, err := s.change(ctx, id)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	defer unlock()
	switch b.State {
	case sandbox.Sleeping:
		return b, nil
	case sandbox.Running:
	case sandbox.Stopped:
		switch b.Cause {
		case sandbox.CauseSleep, sandbox.CauseIdle, sandbox.CauseMemory:
			return b, nil // the stop took the place of a sleep
		}
		return sandbox.Sandbox{}, errs.E(errs.WrongState, "the sandbox is stopped: there is no memory to keep")
	default:
		return sandbox.Sandbox{}, s.cfg.Scope.NotRunning(b)
	}
	why := sandbox.Why{Cause: sandbox.CauseSleep}
	for try := 1; ; try++ {
		slept, err := s.sleep(ctx, b, force, why)
		if !errors.Is(err, errs.InUse) || try == leaveTries || !gate.Sleep(ctx, leavePause) {
			return slept, err
		}
	}
}

// sleep puts a running sandbox to sleep whose lock is held. Like a stop it is
// carried out even if the caller goes away, and does not hold up the end of the
// service: what is half done then the next daemon finds running or asleep.
func (s *acts) sleep(ctx context.Context, b sandbox.Sandbox, force bool, why sandbox.Why) (sandbox.Sandbox, error) {
	if err := driver.Serves(s.cfg.Driver, b.Driver); err != nil {
		return sandbox.Sandbox{}, err
	}
	// What its programs have in hand would neither reach the disk nor the memory.
	if err := s.cfg.Disks.Writable(b.UID); err != nil {
		return sandbox.Sandbox{}, err
	}
	r := s.cfg.Live.Of(b.UID)
	if r == nil {
		return sandbox.Sandbox{}, errs.E(errs.Unavailable, "the sandbox cannot be reached yet").RetryAfter(time.Second)
	}
	sleeper, err := sleeperOf(s.cfg.Driver)
	if err == nil {
		err = sleeper.CanSleep(ctx, b.Handle) // before anything is let go of
	}
	if err != nil {
		return s.stopInstead(ctx, b, r, force, why, err)
	}
	if err := r.Suspend(force); err != nil {
		return sandbox.Sandbox{}, err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(s.cfg.Gate.Context(), cancel)()
	if err := sleeper.Sleep(ctx, b.Handle); err != nil {
		return s.notAsleep(ctx, b, r, force, why, fmt.Errorf("put sandbox %s to sleep: %w", b.ID, err))
	}
	return s.asleep(ctx, b, why)
}

// sleeperOf is the driver's ability to keep memory.
func sleeperOf(d driver.Driver) (driver.Sleeper, error) {
	if sleeper, ok := driver.As[driver.Sleeper](d); ok {
		return sleeper, nil
	}
	return nil, errs.E(errs.Unsupported, "the driver keeps no memory")
}

// asleep writes down that a sandbox sleeps. Its disk stays where it is: the memory
// has files of it open.
func (s *acts) asleep(ctx context.Context, b sandbox.Sandbox, why sandbox.Why) (sandbox.Sandbox, error) {
	ctx, cancel := gate.Detached(ctx)
	defer cancel()
	s.admission.Give(b.UID)
	now, err := s.cfg.Store.Move(ctx, b.UID, sandbox.Sleeping, store.Change{
		Why: why, Events: []sandbox.Event{event.New(b.UID, scope.Actor(ctx), event.Slept{Reason: why.Reason})},
	})
	if err != nil {
		s.debts.owe(b.UID, why)
		return b, err
	}
	s.debts.told(b.UID)
	s.debts.slept.Store(true)
	return now, nil
}

// notAsleep goes on with a sandbox whose sleep failed: it runs on, or is stopped
// where no sleep can succeed. What cannot be seen is left to the reconciler.
func (s *acts) notAsleep(ctx context.Context, b sandbox.Sandbox, r *live.Run, force bool, why sandbox.Why, failed error) (sandbox.Sandbox, error) {
	if s.cfg.Gate.Context().Err() != nil {
		return sandbox.Sandbox{}, failed
	}
	undo, cancel := gate.Detached(ctx)
	defer cancel()
	seen, err := s.inspect(undo, b)
	switch {
	case err == nil && seen.Phase == driver.PhaseAsleep:
		s.cfg.Log.Warn("a sandbox sleeps although that failed", telemetry.KeyUID, b.UID, telemetry.KeyErr, failed)
		return s.asleep(ctx, b, why)
	case err != nil || seen.Phase != driver.PhaseRunning:
		s.debts.reconcileSoon()
		return sandbox.Sandbox{}, errors.Join(failed, err)
	}
	// As after [Sandboxes.Aside].
	b.StartedAt, b.LastActiveAt = s.cfg.Now(), r.LastActive()
	r, err = s.readopt(undo, b)
	if err != nil {
		return sandbox.Sandbox{}, errors.Join(failed, err)
	}
	return s.stopInstead(ctx, b, r, force, why, failed)
}

// stopInstead stops a sandbox that cannot sleep, for a cause that says so; with
// another error it runs on.
func (s *acts) stopInstead(ctx context.Context, b sandbox.Sandbox, r *live.Run, force bool, why sandbox.Why, failed error) (sandbox.Sandbox, error) {
	var instead string
	switch {
	case errors.Is(failed, driver.ErrOutdated) && why.Cause == sandbox.CauseSleep:
		return sandbox.Sandbox{}, failed // who asked may stop it and start it, after which it can sleep
	case errors.Is(failed, driver.ErrOutdated):
		instead = "it was started by an older version of cubby, which cannot keep its memory, so it was stopped and not put to sleep"
	case errors.Is(failed, errs.Unsupported):
		instead = "this host cannot keep a sandbox's memory, so it was stopped and not put to sleep"
	case errors.Is(failed, errs.Exhausted):
		instead = "the host's disk has no room for its memory, so it was stopped and not put to sleep"
	default:
		return sandbox.Sandbox{}, failed
	}
	if why.Reason != "" {
		instead = why.Reason + ": " + instead
	}
	return s.haltUnused(ctx, b, r, force, sandbox.Why{Cause: why.Cause, Reason: instead})
}
