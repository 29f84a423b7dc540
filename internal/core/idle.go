package core

import (
	"time"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

// returnTime is what users get to come back after the daemon was away: its own
// absence is not theirs.
const returnTime = time.Minute

// idleAct is what happens to a sandbox that nobody uses.
type idleAct int

const (
	keepRunning idleAct = iota
	stopIdle
	destroyIdle
)

// attention is how much a running sandbox is used, in times that steps of the
// clock do not change.
type attention struct {
	unused time.Duration // since it was used last
	lease  time.Duration // left of its lease
	inUse  bool          // a command, a transfer or a viewer is there now
}

// decideIdle is the idle rule. Sleeping needs a driver that keeps memory;
// without one it is a stop.
func decideIdle(spec sandbox.Spec, a attention) idleAct {
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
func untilIdle(spec sandbox.Spec, a attention) (left time.Duration, bounded bool) {
	if a.inUse || spec.IdleTimeout <= 0 || spec.IdlePolicy == sandbox.IdleAlwaysOn {
		return 0, false
	}
	return max(spec.IdleTimeout-a.unused, a.lease), true
}

// idle says in the sandbox's row and its event why it was ended.
func idle(spec sandbox.Spec) sandbox.Why {
	why := sandbox.Why{Cause: sandbox.CauseIdle, Reason: "idle"}
	if spec.IdlePolicy == sandbox.IdleSleep {
		why.Reason += ": this host cannot keep a sandbox's memory, so it was stopped and not put to sleep"
	}
	return why
}

// unusedAtReturn is how long a sandbox counts as unused when a run begins that
// was last used at a time of the wall clock. After an absence of the daemon
// enough is left for its users to come back.
func unusedAtReturn(spec sandbox.Spec, now, lastActive time.Time) time.Duration {
	unused := max(0, now.Sub(lastActive)) // the clock may have stepped back
	if spec.IdleTimeout > 0 {
		unused = min(unused, spec.IdleTimeout-min(spec.IdleTimeout, returnTime))
	}
	return unused
}
