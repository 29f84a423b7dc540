package sandbox

// Cause is why a sandbox rests or has ended, for programs; its reason says the
// same to people.
type Cause string

const (
	CauseNone     Cause = ""         // it runs, or is being made
	CauseRequest  Cause = "request"  // somebody asked for it
	CauseSleep    Cause = "sleep"    // somebody asked that it sleeps
	CauseIdle     Cause = "idle"     // its idle policy
	CauseMemory   Cause = "memory"   // the host ran short of memory
	CauseLifetime Cause = "lifetime" // its time was over
	CauseEvicted  Cause = "evicted"  // its thread, for others that are used
	CauseShutdown Cause = "shutdown" // the daemon was told to end all with itself
	CauseDied     Cause = "died"     // nobody wanted it to end
	CauseOOM      Cause = "oom"      // it died for want of memory
	CauseUndone   Cause = "undone"   // its create failed and was undone
	// CauseRollback: it was being rolled back to a snapshot, and that broke off.
	CauseRollback Cause = "rollback"
	// CauseInterrupted: an act broke off half-way, as when the daemon was killed
	// during a stop, and this is what was left.
	CauseInterrupted Cause = "interrupted"
	// CauseMemoryLost: it slept, and its memory could not be read any more. A
	// sandbox that runs has this one too, when it began anew for that.
	CauseMemoryLost Cause = "memory_lost"
	// CauseDisk: it was stopped to repair its disk, and has not been started again.
	CauseDisk Cause = "disk"
)

// DiedPrefix begins the reason of every sandbox that died, and what is told to
// those who used it.
const DiedPrefix = "CONTAINER_DIED: "

// Died reports whether the sandbox ended by itself, also for want of memory.
func (c Cause) Died() bool { return c == CauseDied || c == CauseOOM }

// OfTheEngine reports whether a sandbox rests because the engine stopped it by itself, or
// stopped it where it was to sleep: nobody has told it to rest.
func (c Cause) OfTheEngine() bool {
	switch c {
	case CauseSleep, CauseIdle, CauseMemory, CauseMemoryLost, CauseShutdown, CauseEvicted, CauseInterrupted, CauseDisk:
		return true
	case CauseNone, CauseRequest, CauseLifetime, CauseUndone, CauseRollback, CauseDied, CauseOOM:
	}
	return false
}

// Why is a cause and its reason.
type Why struct {
	Cause  Cause
	Reason string // safe to show; "" where the cause says all
}

// Explains reports whether it says enough of why a sandbox is in a state. One that rests
// has a reason, unless it was asked for in so many words: of anything else its users are
// to learn what happened.
func (w Why) Explains(s State) bool {
	if s != Stopped && s != Sleeping {
		return true
	}
	asked := w.Cause == CauseRequest || w.Cause == CauseSleep && s == Sleeping
	return w.Cause != CauseNone && (w.Reason != "" || asked)
}
