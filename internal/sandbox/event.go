package sandbox

import (
	"encoding/json"
	"time"
)

// Event is one entry of a sandbox's history. Events outlive the sandbox for a
// retention time and never hold env values, tokens or file contents. They are
// facts and never change: an operation that takes its time leaves one event
// for each status that it reached, all with its seq.
type Event struct {
	Cursor int64 // ascending over the whole daemon; a reader sees them in this order
	Box    UID
	Kind   string // "sandbox.created", "exec.finished", "egress.denied", …
	Actor  string // the principal's name; "" for cubby itself
	// Seq is the operation that the event is about; 0 for an act that was over
	// at once.
	Seq     int64
	Status  ExecStatus      // "" is ExecDone
	Payload json.RawMessage // what was asked
	Result  json.RawMessage // what came of it; nil where there is nothing to say
	Time    time.Time
}
