// Package repair is the reconciler's rule: what makes a sandbox's row and what its
// driver sees of it agree. It reads and changes nothing.
package repair

import (
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Action is what makes a sandbox's row and what runs agree.
type Action int

// The actions.
const (
	Leave   Action = iota
	Adopt          // runs, and this daemon does not know it yet
	Abandon        // a create that nobody carries on
	Bury           // should run and does not
	Settle         // was being stopped when the daemon went
	Rest           // was being put to sleep when the daemon went
	Rise           // runs, and the row says that it sleeps: it was being woken when the daemon went
	Lose           // should sleep, and its memory is gone
	Halt           // runs and should not
	Clear          // does not run, and may have pieces of a start or stop that was cut off
)

func (a Action) String() string {
	return [...]string{"leave", "adopt", "abandon", "bury", "settle", "rest", "rise", "lose", "halt", "clear"}[a]
}

// Observation is what is known about a sandbox while its lock is held.
type Observation struct {
	State sandbox.State
	// Attached: this daemon has its run, and with it a watcher.
	Attached bool
	// Phase is what the driver sees; empty when it could not be asked.
	Phase driver.Phase
}

// Decide is the reconciler's rule. The store is the truth about what shall be,
// the driver about what is, and what could not be read leads to nothing.
func Decide(o Observation) Action {
	switch o.State {
	case sandbox.Creating:
		// Its lock is held here, so no create works on it any more.
		return Abandon
	case sandbox.Running:
		return shouldRun(o)
	case sandbox.Sleeping:
		return shouldSleep(o.Phase)
	case sandbox.Stopped:
		return shouldRest(o.Phase)
	case sandbox.Failed, sandbox.Destroyed:
		// Traces of these are orphans.
	}
	return Leave
}

func shouldRun(o Observation) Action {
	switch o.Phase {
	case driver.PhaseRunning:
		if !o.Attached {
			return Adopt
		}
	case driver.PhaseCreated:
		return Settle
	case driver.PhaseAsleep:
		// The memory is kept whole, or it would not be asleep: only the row is
		// behind. To settle it instead would throw that memory away.
		return Rest
	case driver.PhaseDead, driver.PhaseGone:
		return Bury
	}
	return Leave
}

func shouldSleep(phase driver.Phase) Action {
	switch phase {
	case driver.PhaseRunning:
		// Nothing of it is lost. To halt it would throw its memory away, which
		// nothing but this run has any more.
		return Rise
	case driver.PhaseCreated, driver.PhaseDead, driver.PhaseGone:
		return Lose
	case driver.PhaseAsleep:
	}
	return Leave
}

func shouldRest(phase driver.Phase) Action {
	switch phase {
	case driver.PhaseRunning:
		return Halt
	case driver.PhaseCreated, driver.PhaseDead:
		return Clear
	case driver.PhaseAsleep:
		// Of a stopped one: who stopped it gave the memory up, and its files
		// stay.
		return Clear
	case driver.PhaseGone:
	}
	return Leave
}

// Final reports whether an action takes something away that cannot be had back,
// so that whoever decided by what was seen a while ago has to look again.
func (a Action) Final() bool {
	switch a {
	case Bury, Settle, Rest, Rise, Lose, Halt:
		return true
	case Leave, Adopt, Abandon, Clear:
	}
	return false
}
