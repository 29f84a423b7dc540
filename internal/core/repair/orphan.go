package repair

import "github.com/cubbyhq/cubby/internal/sandbox"

// Trace is what is known about something that was found on the host and
// belonged to no live sandbox when the rows were read.
type Trace struct {
	Owner      sandbox.State // "": the store never heard of it
	Unreadable bool          // the store could not be asked
	Held       bool          // somebody is at its owner
	Wanted     bool          // it is kept although its owner has ended
}

// MayRemove is the rule of what may be removed: only what is known to be
// nobody's. Unreadable is not empty.
func MayRemove(t Trace) bool {
	return !t.Unreadable && !t.Held && !t.Wanted && (t.Owner == "" || !t.Owner.Live())
}
