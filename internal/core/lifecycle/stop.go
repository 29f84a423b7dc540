package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cubbyhq/cubby/internal/core/diskrepair"
	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/core/scope"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store"
	"github.com/cubbyhq/cubby/internal/task"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

const (
	// DefaultGrace is what processes get between SIGTERM and SIGKILL.
	DefaultGrace = 10 * time.Second
	maxGrace     = 10 * time.Minute
)

// Stop ends everything that runs in the sandbox (SIGTERM, after grace SIGKILL)
// and keeps its files. Stopping a stopped one does nothing. A negative grace
// is the default. While a task of a coding agent runs it is TaskInProgress: see
// [Sandboxes.StopAnyway].
func (s *Sandboxes) Stop(ctx context.Context, id string, grace time.Duration) (sandbox.Sandbox, error) {
	return s.stop(ctx, id, grace, false)
}

// StopAnyway is Stop that ends tasks too.
func (s *Sandboxes) StopAnyway(ctx context.Context, id string, grace time.Duration) (sandbox.Sandbox, error) {
	return s.stop(ctx, id, grace, true)
}

func (s *Sandboxes) stop(ctx context.Context, id string, grace time.Duration, anyway bool) (sandbox.Sandbox, error) {
	b, unlock, err := s.change(ctx, id)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	defer unlock()
	if grace < 0 {
		grace = DefaultGrace
	}
	if grace > maxGrace {
		return sandbox.Sandbox{}, errs.E(errs.Invalid, "grace: longer than %d seconds", int(maxGrace.Seconds()))
	}
	switch b.State {
	case sandbox.Stopped:
		return b, nil
	case sandbox.Running, sandbox.Sleeping:
	default:
		return sandbox.Sandbox{}, errs.E(errs.WrongState, "the sandbox is %s", b.State)
	}
	if !anyway {
		running, err := s.cfg.Live.Execs().Unfinished(ctx, b.UID, task.Kind)
		if err != nil {
			return sandbox.Sandbox{}, err
		}
		if len(running) > 0 {
			return sandbox.Sandbox{}, errs.E(errs.TaskInProgress, "task %s runs in the sandbox", running[0].UID).
				Hint("wait for its end, cancel it, or stop with force")
		}
	}
	return s.halt(ctx, b, grace, requested())
}

// haltUnused is halt but for a sandbox that somebody uses, which is InUse without
// force. Who comes later waits until it is stopped, and may start it.
func (s *acts) haltUnused(ctx context.Context, b sandbox.Sandbox, r *live.Run, force bool, why sandbox.Why) (sandbox.Sandbox, error) {
	if err := r.Leave(force); err != nil {
		return sandbox.Sandbox{}, err
	}
	return s.halt(ctx, b, DefaultGrace, why)
}

// halt stops a sandbox whose lock is held. It is carried out even if the
// caller goes away, but does not hold up the end of the service: a sandbox
// that is still there then runs on.
func (s *acts) halt(ctx context.Context, b sandbox.Sandbox, grace time.Duration, why sandbox.Why) (sandbox.Sandbox, error) {
	if err := cmp.Or(driver.Serves(s.cfg.Driver, b.Driver), diskrepair.Held(s.cfg.Disks, b)); err != nil {
		return sandbox.Sandbox{}, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace+gate.DetachedTime)
	defer cancel()
	defer context.AfterFunc(s.cfg.Gate.Context(), cancel)()
	r := s.cfg.Live.Of(b.UID)
	if r != nil {
		r.End(live.Ending{Reason: sandbox.EndStopped, Message: "the sandbox was stopped"})
	}
	if err := s.cfg.Driver.Stop(ctx, b.Handle, grace); err != nil && !errors.Is(err, errs.NotFound) {
		if st, inspectErr := s.cfg.Driver.Inspect(ctx, b.Handle); inspectErr != nil || st.Phase == driver.PhaseRunning {
			if r != nil {
				r.GoOn()
			}
			return sandbox.Sandbox{}, fmt.Errorf("stop sandbox %s: %w", b.ID, err)
		}
		// What still has to be cleaned up, as the memory of a sleeper, the reconciler does.
		defer s.debts.lookAtAll()
		s.cfg.Log.Warn("stop a sandbox", telemetry.KeySandbox, b.ID, telemetry.KeyUID, b.UID, telemetry.KeyErr, err)
	}
	// It is stopped, and that has to be written down also when the service ends.
	ctx, cancel = gate.Detached(ctx)
	defer cancel()
	b, err := s.stopped(ctx, b, why, event.Stopped{Reason: why.Reason})
	if err != nil {
		s.debts.owe(b.UID, why)
	}
	return b, err
}

// stopped writes down that a sandbox does not run any more, after its execs
// have got their ends, and lets go of what only a run needs.
func (s *acts) stopped(ctx context.Context, b sandbox.Sandbox, why sandbox.Why, told event.Payload) (sandbox.Sandbox, error) {
	if r := s.cfg.Live.Of(b.UID); r != nil {
		r.Finish()
	}
	if err := s.cfg.Live.EndExecs(ctx, b.UID, live.EndOf(why)); err != nil {
		return b, err
	}
	ctx, cancel := gate.Detached(ctx)
	defer cancel()
	now, err := s.cfg.Store.Move(ctx, b.UID, sandbox.Stopped, store.Change{
		Why: why, Events: []sandbox.Event{event.New(b.UID, scope.Actor(ctx), told)},
	})
	if err != nil {
		return b, err
	}
	b = now
	s.debts.told(b.UID)
	s.admission.Give(b.UID)
	if err := s.unmount(ctx, b); err != nil {
		// It stays mounted until somebody needs it otherwise.
		s.cfg.Log.Warn("unmount the disk of a stopped sandbox", telemetry.KeyUID, b.UID, telemetry.KeyErr, err)
	}
	return b, nil
}

// requested is why a sandbox ends that somebody asked to end.
func requested() sandbox.Why { return sandbox.Why{Cause: sandbox.CauseRequest} }

// interrupted is why a sandbox rests whose end broke off half-way.
func interrupted(reason string) sandbox.Why {
	return sandbox.Why{Cause: sandbox.CauseInterrupted, Reason: reason}
}
