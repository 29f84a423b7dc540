package lifecycle

import (
	"context"
	"time"

	"github.com/cubbyhq/cubby/internal/core/scope"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Keepalive says that a sandbox is used. The zero value is activity now.
type Keepalive struct {
	// Until takes a lease: the sandbox does not idle before. A lease is never
	// shortened by another one, and ends with the sandbox's lifetime.
	Until time.Time
	// For is Until in time from now; 0 gives the lease up. Not both.
	For *time.Duration
}

// Keepalive counts as activity and takes or gives up a lease. Invalid when its
// end is past or too far away, WrongState when the sandbox does not run.
func (s *Sandboxes) Keepalive(ctx context.Context, id string, k Keepalive) (sandbox.Sandbox, error) {
	if !k.Until.IsZero() && k.For != nil {
		return sandbox.Sandbox{}, errs.E(errs.Invalid, "until and seconds are both given").Hint("give one of them, or none")
	}
	b, unlock, err := s.change(ctx, id)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	defer unlock()
	if b.State != sandbox.Running {
		return sandbox.Sandbox{}, s.cfg.Scope.NotRunning(b)
	}
	r := s.cfg.Live.Of(b.UID)
	if r == nil {
		return sandbox.Sandbox{}, errs.E(errs.Unavailable, "the sandbox cannot be reached yet").RetryAfter(time.Second)
	}
	until, changes, err := decideLease(k, s.cfg.Now(), b)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	if changes {
		kept := event.Kept{}
		if !until.IsZero() {
			kept.Until = until.UTC().Format(time.RFC3339Nano)
		}
		b, err = s.cfg.Store.UpdateSpec(ctx, b.UID, func(spec *sandbox.Spec) error {
			spec.KeptUntil = until
			return nil
		}, event.New(b.UID, scope.Actor(ctx), kept))
		if err != nil {
			return sandbox.Sandbox{}, err
		}
		r.SetSpec(b.Spec)
	}
	r.Touch(ctx)
	return s.upToDate(b), nil
}

// decideLease is the rule of leases: what becomes of the sandbox's lease, and
// whether that is a change. Zero is none.
func decideLease(k Keepalive, now time.Time, b sandbox.Sandbox) (until time.Time, changes bool, err error) {
	held := b.Spec.KeptUntil
	switch {
	case k.For != nil && (*k.For < 0 || *k.For > sandbox.MaxDuration):
		return held, false, errs.E(errs.Invalid, "seconds: not between 0 and %d", int64(sandbox.MaxDuration.Seconds()))
	case k.For != nil && *k.For == 0:
		return time.Time{}, !held.IsZero(), nil
	case k.For != nil:
		until = now.Add(*k.For)
	case k.Until.IsZero():
		return held, false, nil
	case !k.Until.After(now):
		return held, false, errs.E(errs.Invalid, "until: that time has passed")
	case k.Until.Sub(now) > sandbox.MaxDuration:
		return held, false, errs.E(errs.Invalid, "until: more than %d days from now", int(sandbox.MaxDuration.Hours()/24))
	default:
		until = k.Until
	}
	if end := b.Ends(); !end.IsZero() && until.After(end) {
		until = end
	}
	// Stored, and compared, in microseconds and without a time zone.
	until = until.UTC().Round(0).Truncate(time.Microsecond)
	if !until.After(held) {
		return held, false, nil
	}
	return until, true, nil
}
