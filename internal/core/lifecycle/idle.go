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
	destroyIdle
)

// decideIdle is the idle rule. Sleeping needs a driver that keeps memory;
// without one it is a stop.
func decideIdle(spec sandbox.Spec, a live.Attention) idleAct {
	if left, bounded := untilIdle(spec, a); !bounded || left > 0 {
		return keepRunning
	}
	switch spec.IdlePolicy {
	case sandbox.IdleStop, sandbox.IdleSleep:
		return stopIdle
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

// idle says in the sandbox's row and its event why it was ended.
func idle(spec sandbox.Spec) sandbox.Why {
	why := sandbox.Why{Cause: sandbox.CauseIdle, Reason: "idle"}
	if spec.IdlePolicy == sandbox.IdleSleep {
		why.Reason += ": this host cannot keep a sandbox's memory, so it was stopped and not put to sleep"
	}
	return why
}
