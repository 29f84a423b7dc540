package core

import "github.com/cubbyhq/cubby/internal/sandbox"

// trace is what is known about something that was found on the host and
// belonged to no live sandbox when the rows were read.
type trace struct {
	owner      sandbox.State // "": the store never heard of it
	unreadable bool          // the store could not be asked
	held       bool          // somebody is at its owner
	wanted     bool          // it is kept although its owner has ended
}

// decideOrphan is the rule of what may be removed: only what is known to be
// nobody's. Unreadable is not empty.
func decideOrphan(t trace) bool {
	return !t.unreadable && !t.held && !t.wanted && (t.owner == "" || !t.owner.Live())
}
