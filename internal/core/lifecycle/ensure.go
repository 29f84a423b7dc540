package lifecycle

import (
	"context"
	"runtime/debug"
	"time"

	"github.com/cubbyhq/cubby/internal/coalesce"
	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/core/scope"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// waker makes sandboxes run that somebody uses.
type waker struct {
	*acts
	starts coalesce.Calls[wakeKey, ensured] // that somebody waits for
}

// wakeKey: who would not have the same sandboxes run does not wait for the same start.
type wakeKey struct {
	box sandbox.UID
	use Use
}

// ensured is how a start went.
type ensured struct {
	box sandbox.Sandbox
	how Ensured
}

// Ensured says what [waker.EnsureRunning] had to do.
type Ensured string

const (
	EnsuredAlready Ensured = "already" // it ran, or was being made
	EnsuredStarted Ensured = "started" // it was stopped
	EnsuredWoken   Ensured = "woken"   // it slept
)

// Use says which sandboxes that rest are to run.
type Use string

const (
	UseAny  Use = "any"  // all: who asks wants it to run, as with [Sandboxes.Start]
	UseAuto Use = "auto" // those whose auto_wake says so
	// UseWell is UseAuto but for those that died: whoever uses one has to be told
	// first that what it held in memory is gone.
	UseWell Use = "well"
)

// allows reports whether a sandbox that rests is to run.
func (u Use) allows(b sandbox.Sandbox) bool {
	switch u {
	case UseAuto:
		return decideUse(b.State, b.Cause, b.Spec.AutoWake)
	case UseWell:
		return !b.Cause.Died() && decideUse(b.State, b.Cause, b.Spec.AutoWake)
	case UseAny:
	}
	return true
}

// Rouse is [waker.EnsureRunning] for a sandbox that has been found.
func (s *waker) Rouse(ctx context.Context, b sandbox.Sandbox) error {
	_, _, err := s.ensureRunning(ctx, b, UseAuto)
	return err
}

// EnsureRunning returns a sandbox when commands can run in it, and what had to be
// done for that: one that rests is woken or started when use allows that, and else
// WrongState; one that is being made or started is waited
// for. All who ask at the same time wait for one start
// and hear how it ended; it is given up when all of them have gone. Kinds as for
// Start.
func (s *waker) EnsureRunning(ctx context.Context, id string, use Use) (sandbox.Sandbox, Ensured, error) {
	b, err := s.cfg.Scope.Find(ctx, id)
	if err != nil {
		return b, "", err
	}
	return s.ensureRunning(ctx, b, use)
}

func (s *waker) ensureRunning(ctx context.Context, b sandbox.Sandbox, use Use) (sandbox.Sandbox, Ensured, error) {
	if b.State == sandbox.Running && s.cfg.Live.Takes(b.UID) {
		return s.upToDate(b), EnsuredAlready, nil
	}
	call := s.starts.Join(ctx, wakeKey{b.UID, use}, func(ctx context.Context) (ensured, error) {
		box, how, err := s.Ensure(ctx, b, use)
		return ensured{box, how}, err
	})
	defer call.Leave()
	select {
	case <-call.Done():
		got, err := call.Result()
		// Another may have begun the run that this use waited for.
		if err == nil && (b.State != sandbox.Running || !got.box.StartedAt.Equal(b.StartedAt)) {
			scope.NoteLoss(ctx, got.box)
		}
		return got.box, got.how, err
	case <-ctx.Done():
		return b, "", ctx.Err()
	case <-s.cfg.Gate.Ended():
		return b, "", gate.ErrShuttingDown()
	}
}

// creatingPause is the time between two looks at a sandbox whose create is over
// and could not write that down: the reconciler does it.
const creatingPause = 50 * time.Millisecond

// Ensure makes the sandbox of a row run, and never another that has its id by now.
func (s *waker) Ensure(ctx context.Context, b sandbox.Sandbox, use Use) (woken sandbox.Sandbox, how Ensured, err error) {
	defer func() {
		if p := recover(); p != nil {
			s.cfg.Log.Error("a start panicked", telemetry.KeyUID, b.UID, "panic", p, "stack", string(debug.Stack()))
			err = errs.E(errs.Internal, "the sandbox could not be started")
		}
	}()
	leave, err := s.cfg.Gate.Enter(ctx)
	if err != nil {
		return b, "", err
	}
	defer leave()
	for {
		woken, how, err = s.ensureNow(ctx, b, use)
		if err != nil || woken.State != sandbox.Creating {
			return woken, how, err
		}
		if !gate.Sleep(ctx, creatingPause) {
			return b, "", ctx.Err()
		}
	}
}

// ensureNow waits for whoever is at the sandbox. It returns one that is still being
// made as it is.
func (s *waker) ensureNow(ctx context.Context, b sandbox.Sandbox, use Use) (sandbox.Sandbox, Ensured, error) {
	unlock, err := s.ids.Lock(ctx, b.ID.Key())
	if err != nil {
		return b, "", err
	}
	defer unlock()
	now, err := s.cfg.Store.SandboxByUID(ctx, b.UID)
	if err != nil {
		return b, "", err
	}
	switch now.State {
	case sandbox.Creating:
		return now, "", nil
	case sandbox.Running:
		return s.upToDate(now), EnsuredAlready, nil
	case sandbox.Stopped, sandbox.Sleeping:
		if !use.allows(now) {
			return now, "", s.cfg.Scope.NotRunning(now)
		}
		how := EnsuredStarted
		if now.State == sandbox.Sleeping {
			how = EnsuredWoken
		}
		roused, err := s.rouse(ctx, now)
		return roused, how, err
	case sandbox.Destroyed:
		return now, "", s.cfg.Scope.NoSuch(ctx, now.ID)
	default:
		return now, "", s.cfg.Scope.NotRunning(now)
	}
}

// Waiters is how many callers of EnsureRunning wait for a sandbox.
func (s *waker) Waiters(box sandbox.UID) int {
	return s.starts.Waiting(func(key wakeKey) bool { return key.box == box })
}
