package lifecycle

import (
	"time"

	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// idleAct is what happens to a sandbox that nobody uses.
type idleAct int

const (
	keepRunning idleAct = iota
	stopIdle
	sleepIdle
	destroyIdle
)

// decideIdle is the idle rule.
func decideIdle(spec sandbox.Spec, a live.Attention) idleAct {
	if left, bounded := untilIdle(spec, a); !bounded || left > 0 {
		return keepRunning
	}
	switch spec.IdlePolicy {
	case sandbox.IdleStop:
		return stopIdle
	case sandbox.IdleSleep:
		return sleepIdle
	case sandbox.IdleDestroy:
		return destroyIdle
	case sandbox.IdleAlwaysOn:
	}
	return keepRunning
}

// untilIdle is how long the sandbox has, if nobody uses it, until its policy
// comes into force; not bounded while that is not in sight.
func untilIdle(spec sandbox.Spec, a live.Attention) (left time.Duration, bounded bool) {
	if a.InUse || spec.IdleTimeout <= 0 || spec.IdlePolicy == sandbox.IdleAlwaysOn {
		return 0, false
	}
	return max(spec.IdleTimeout-a.Unused, a.Lease), true
}

// idle is why a sandbox rests or ends that nobody used.
func idle() sandbox.Why { return sandbox.Why{Cause: sandbox.CauseIdle, Reason: "idle"} }
