package scope

import "strings"

// What the reason of a sandbox that ended begins with.
const (
	// ReasonIdle begins that of one that its idle policy ended.
	ReasonIdle = "idle"
	// ReasonDied begins that of one that died, and ReasonOOM that of one for
	// which there was not enough memory.
	ReasonDied = "CONTAINER_DIED: "
	ReasonOOM  = ReasonDied + "OOM-killed: "
)

// IsIdle reports whether a reason is that of an idle policy.
func IsIdle(reason string) bool { return strings.HasPrefix(reason, ReasonIdle) }

// Died reports whether a reason is that of a sandbox that died.
func Died(reason string) bool { return strings.HasPrefix(reason, ReasonDied) }
