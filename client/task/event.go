package task

import (
	"encoding/json"
	"fmt"
	"time"
)

// Event is one event of a task. What it says comes out of the sandbox: the
// daemon vouches only for the event "done".
type Event struct {
	ID   int64  `json:"id"` // from 0, without gaps
	Type string `json:"type"`
	// Time is when it happened; zero in a stream, which does not say it.
	Time time.Time       `json:"time,omitzero"`
	Data json.RawMessage `json:"data"`
}

// The types of events, and what [Event.Value] makes of them.
const (
	StatusEvent     = "status"     // Phase
	MessageEvent    = "message"    // Message, whole
	ThoughtEvent    = "thought"    // Message, whole
	DeltaEvent      = "delta"      // Delta, a piece of a message or a thought
	ToolEvent       = "tool"       // Tool
	PlanEvent       = "plan"       // Plan
	DiffEvent       = "diff"       // Diff
	BuildEvent      = "build"      // Build
	UsageEvent      = "usage"      // Tokens so far
	PermissionEvent = "permission" // Question
	PushEvent       = "push"       // Push
	DoneEvent       = "done"       // Task, of which only the fields of its end are set; the last event
)

// String is short, for logs: the type, and how much it says.
func (e Event) String() string {
	return fmt.Sprintf("event %d: %s, %d bytes", e.ID, e.Type, len(e.Data))
}

// Value decodes what an event says, by its type; nil for a type that this version
// does not know.
func (e Event) Value() (any, error) {
	switch e.Type {
	case StatusEvent:
		return read[Phase](e.Data)
	case MessageEvent, ThoughtEvent:
		return read[Message](e.Data)
	case DeltaEvent:
		return read[Delta](e.Data)
	case ToolEvent:
		return read[Tool](e.Data)
	case PlanEvent:
		return read[Plan](e.Data)
	case DiffEvent:
		return read[Diff](e.Data)
	case BuildEvent:
		return read[Build](e.Data)
	case UsageEvent:
		return read[Tokens](e.Data)
	case PermissionEvent:
		return read[Question](e.Data)
	case PushEvent:
		return read[Push](e.Data)
	case DoneEvent:
		return read[Task](e.Data)
	}
	return nil, nil
}

func read[T any](data json.RawMessage) (any, error) {
	var v T
	if err := json.Unmarshal(data, &v); err != nil {
		return nil, fmt.Errorf("an event of the task cannot be read: %w", err)
	}
	return v, nil
}

// Phase says that a phase begins: "starting", "checkpoint", "agent_running",
// "build_check" or "health_check".
type Phase struct {
	Phase      string `json:"phase"`
	Checkpoint string `json:"checkpoint_id,omitempty"` // from agent_running on
}

// Message is a whole message or thought of the agent. Role is "agent", or
// "agent_error" for what it says went wrong; a thought has none.
type Message struct {
	Role string `json:"role,omitempty"`
	Text string `json:"text"`
	ID   string `json:"message_id,omitempty"` // that of its deltas
}

// Delta is a piece of a message or a thought, as it comes.
type Delta struct {
	Of   string `json:"of"` // MessageEvent or ThoughtEvent
	ID   string `json:"message_id"`
	Text string `json:"text"`
}

// Tool is a call of one of the agent's tools: at most one event for each status
// that a call has.
type Tool struct {
	Name   string `json:"name"`
	Status string `json:"status"`                 // pending, running, completed, error
	Path   string `json:"path"`                   // what it is about: a file, a pattern or a command
	ID     string `json:"tool_call_id,omitempty"` // of the call
	Kind   string `json:"kind,omitempty"`         // read, edit, execute, …
	Output string `json:"output,omitempty"`       // the end of what it gave
}

// Plan is the agent's whole plan as it stands.
type Plan struct {
	Entries []PlanEntry `json:"entries"`
}

// PlanEntry is one step of a plan.
type PlanEntry struct {
	Content  string `json:"content"`
	Status   string `json:"status"`             // pending, in_progress, completed
	Priority string `json:"priority,omitempty"` // high, medium, low
}

// Diff is what the task changed about one file, against its checkpoint.
type Diff struct {
	Path      string `json:"path"`
	Status    string `json:"status"`          // added, modified, deleted
	Patch     string `json:"patch,omitempty"` // a unified diff; "" of a binary file
	Binary    bool   `json:"binary,omitempty"`
	Truncated bool   `json:"truncated,omitempty"`
}

// Build is how the project's build went.
type Build struct {
	OK      bool   `json:"build_ok"`
	Message string `json:"build_error_message,omitempty"`
}

// Question is what the agent asks leave for: "pending", or "resolved" with
// Outcome.
type Question struct {
	ID      string   `json:"id"`
	Status  string   `json:"status"`
	Tool    Tool     `json:"tool"`
	Options []Option `json:"options"`
	Outcome string   `json:"outcome,omitempty"` // the option that was chosen, or "cancelled"
}

// Option is one way to answer a question.
type Option struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	Kind string `json:"kind"` // allow_once, allow_always, reject_once, reject_always
}
