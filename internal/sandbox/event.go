package sandbox

import (
	"encoding/json"
	"time"
)

// Event is one entry of a sandbox's history. Events outlive the sandbox for a
// retention time and never hold env values, tokens or file contents.
type Event struct {
	Cursor  int64 // ascending over the whole daemon
	Box     UID
	Kind    string // "sandbox.created", "exec.finished", "egress.denied", …
	Actor   string // the principal's name; "" for cubby itself
	Payload json.RawMessage
	Time    time.Time
}
