package lifecycle

import "github.com/cubbyhq/cubby/internal/sandbox"

// decideUse reports whether a sandbox that does not run is to run when somebody
// uses it. One that the engine stopped by itself has not been told to rest, nor
// has one that a stop took the place of a sleep for.
func decideUse(state sandbox.State, cause sandbox.Cause, auto sandbox.AutoWake) bool {
	switch {
	case auto == sandbox.AutoWakeNever:
		return false
	case state == sandbox.Sleeping:
		return true
	case state != sandbox.Stopped:
		return false
	case auto == sandbox.AutoWakeAlways:
		return true
	}
	return cause.OfTheEngine()
}
