package lifecycle

import (
	"context"
	"errors"
	"fmt"

	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// Died hears that the sandbox of a run does not run any more. When somebody
// stopped or destroyed it they hold its lock, and by the time they let go there
// is nothing left to do.
func (s *Sandboxes) Died(ctx context.Context, r *live.Run, death driver.Death) {
	b, err := s.readDead(ctx, r)
	if err != nil {
		return
	}
	unlock, err := s.ids.Lock(ctx, b.ID.Key())
	if err != nil {
		return
	}
	defer unlock()
	if s.cfg.Live.Of(r.UID) != r {
		return
	}
	ctx, cancel := gate.Detached(ctx)
	defer cancel()
	if err := s.bury(ctx, b, death); err != nil {
		s.cfg.Log.Error("note the death of a sandbox", telemetry.KeyUID, r.UID, telemetry.KeyErr, err)
		s.debts.reconcileSoon()
	}
}

// readDead reads the sandbox of a run that died, again until the store answers: nobody
// else hears of the death, and a run that is known is none that a reconciliation looks at.
func (s *acts) readDead(ctx context.Context, r *live.Run) (sandbox.Sandbox, error) {
	for pauses := gate.NewPauses(); ; gate.Pause(ctx, pauses) {
		b, err := s.cfg.Store.SandboxByUID(ctx, r.UID)
		if err == nil || errors.Is(err, errs.NotFound) || ctx.Err() != nil {
			return b, err
		}
		s.cfg.Log.Error("read a sandbox that died", telemetry.KeyUID, r.UID, telemetry.KeyErr, err)
	}
}

// bury writes a death down: its execs end with the reason, the sandbox is
// stopped and does not count any more. Its lock is held.
func (s *acts) bury(ctx context.Context, b sandbox.Sandbox, death driver.Death) error {
	why := deathOf(death, b.Spec)
	s.cfg.Log.Warn("a sandbox died", telemetry.KeySandbox, b.ID, telemetry.KeyUID, b.UID, "cause", death.Cause,
		"signal", death.Signal, "code", death.Code, "detail", death.Detail)
	if r := s.cfg.Live.Of(b.UID); r != nil {
		r.End(live.EndOf(why))
	}
	if _, err := s.stopped(ctx, b, why, event.Died{Reason: why.Reason}); err != nil {
		return err
	}
	if err := s.letGo(ctx, b); err != nil {
		s.cfg.Log.Warn("clean up after a sandbox that died", telemetry.KeyUID, b.UID, telemetry.KeyErr, err)
	}
	return nil
}

// letGo has the driver drop what it holds of a run that is over, also of one
// whose start or stop a crash cut off.
func (s *acts) letGo(ctx context.Context, b sandbox.Sandbox) error {
	if b.Handle == nil {
		return nil
	}
	if err := s.cfg.Driver.Stop(ctx, b.Handle, 0); err != nil && !errors.Is(err, errs.NotFound) {
		return fmt.Errorf("clear what a run left: %w", err)
	}
	return nil
}

// deathOf says why a sandbox died, and people what they can do.
func deathOf(d driver.Death, spec sandbox.Spec) sandbox.Why {
	const files = "; its files are kept: start it again"
	var what string
	switch d.Cause {
	case driver.DeathOOM:
		return sandbox.Why{Cause: sandbox.CauseOOM, Reason: fmt.Sprintf(sandbox.DiedPrefix+"OOM-killed: out of memory: the host killed the sandbox at its limit of %d MiB%s, or create one with more limits.memory_bytes",
			spec.Limits.MemoryBytes>>20, files)}
	case driver.DeathSignal:
		what = "it was killed by " + d.Signal
	case driver.DeathExit:
		what = fmt.Sprintf("its init process exited with code %d", d.Code)
	case driver.DeathRemoved:
		what = "it was removed from the host behind cubby's back"
	case driver.DeathNone:
		what = "it was stopped behind cubby's back"
	default:
		what = "nobody knows why; the host may have been restarted"
	}
	return sandbox.Why{Cause: sandbox.CauseDied, Reason: sandbox.DiedPrefix + what + files}
}
