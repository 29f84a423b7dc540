package lifecycle

import (
	"context"
	"errors"

	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/core/scope"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// Wake runs a sleeping sandbox on, with all that ran in it, and starts a stopped
// one. Waking a running one does nothing. When the memory cannot be read any more
// the sandbox begins anew from its files: it runs then, with the cause
// [sandbox.CauseMemoryLost] and a reason that says what is lost. After an error a
// sleeping one sleeps on. Kinds as for Start.
func (s *Sandboxes) Wake(ctx context.Context, id string) (sandbox.Sandbox, error) {
	return s.Start(ctx, id)
}

// lostMemory is why there is no memory to wake from, and will not be one.
type lostMemory struct{ error }

func (e *lostMemory) Unwrap() error { return e.error }

// wake has the driver wake a sandbox.
func wake(ctx context.Context, d driver.Driver, b sandbox.Sandbox) error {
	sleeper, err := sleeperOf(d)
	if err == nil {
		err = sleeper.Wake(ctx, b.Handle)
	}
	if errors.Is(err, errs.NotFound) || errors.Is(err, errs.WrongState) || errors.Is(err, errs.Unsupported) {
		return &lostMemory{err}
	}
	return err
}

// awake writes down that a sandbox has woken, and takes up what runs in it. It is
// carried out even if the caller goes away: the sandbox runs.
func (s *acts) awake(ctx context.Context, b sandbox.Sandbox) (sandbox.Sandbox, error) {
	ctx, cancel := gate.Detached(ctx)
	defer cancel()
	now, err := s.cfg.Store.Move(ctx, b.UID, sandbox.Running, store.Change{
		Events: []sandbox.Event{event.New(b.UID, scope.Actor(ctx), event.Woken{})},
	})
	if err != nil {
		s.debts.lookAtAll()
		return sandbox.Sandbox{}, err
	}
	if _, err := s.readopt(ctx, now); err != nil {
		return sandbox.Sandbox{}, err
	}
	return s.upToDate(now), nil
}

// memoryLost is what is said of a sandbox whose memory cannot be read any more.
const memoryLost = "the memory that it slept with is lost, and it begins anew from its files: they are those of when it fell asleep; " +
	"its commands, kernels, session shells and terminals have ended, and open files that were deleted are gone"

// lose stops a sleeping sandbox whose memory is lost, and that has no place: its
// commands end with it. The next start says what became of it.
func (s *acts) lose(ctx context.Context, b sandbox.Sandbox, lost error) (sandbox.Sandbox, error) {
	s.cfg.Log.Warn("the memory of a sandbox is lost", telemetry.KeySandbox, b.ID, telemetry.KeyUID, b.UID, telemetry.KeyErr, lost)
	ctx, cancel := gate.Detached(ctx)
	defer cancel()
	why := sandbox.Why{Cause: sandbox.CauseMemoryLost, Reason: memoryLost}
	b, err := s.stopped(ctx, b, why, event.Stopped{Reason: why.Reason})
	if err != nil {
		s.debts.lookAtAll()
	}
	return b, err
}
