package conversation

import (
	"encoding/json"
	"time"
)

// Event is what a run tells: one line of its journal. What the stream modes of
// LangGraph show is made out of these by whoever sends them; one of the pointers is
// set, and which one says what happened.
type Event struct {
	Time time.Time `json:"time"`

	// Begun is the first one.
	Begun *Begun `json:"begun,omitempty"`
	// TaskStarted and TaskEnded are around the work of a node.
	TaskStarted *TaskStarted `json:"task_started,omitempty"`
	TaskEnded   *TaskEnded   `json:"task_ended,omitempty"`
	// Chunk is a piece of a message.
	Chunk *Chunk `json:"chunk,omitempty"`
	// Checkpoint is the end of a step: its state can be read by this id.
	Checkpoint *Step `json:"checkpoint,omitempty"`
	// Custom is an object for people who watch, of which the state knows nothing:
	// {"type":…}. See [Notice].
	Custom json.RawMessage `json:"custom,omitempty"`
	// Ended is the last one; a journal without it is that of a run that goes on, or
	// that was cut off.
	Ended *Ended `json:"ended,omitempty"`
}

// Begun names the run. Attempt grows with each daemon that takes it up.
type Begun struct {
	RunID    string `json:"run_id"`
	ThreadID string `json:"thread_id"`
	Attempt  int    `json:"attempt"`
}

// TaskStarted is a node that begins.
type TaskStarted struct {
	ID         string   `json:"id"`
	Node       string   `json:"node"`
	Step       int      `json:"step"`
	Checkpoint string   `json:"checkpoint"` // whose state it works on
	Triggers   []string `json:"triggers"`
}

// TaskEnded is a node that has done its work: the messages that it adds to the state,
// or why there are none.
type TaskEnded struct {
	ID         string      `json:"id"`
	Node       string      `json:"node"`
	Step       int         `json:"step"`
	Messages   []Message   `json:"messages,omitempty"`
	Error      string      `json:"error,omitempty"`
	Interrupts []Interrupt `json:"interrupts,omitempty"`
}

// Chunk is a piece of a message that a node is making. What it lacks stays as it was;
// texts are more of what came before.
type Chunk struct {
	Node    string       `json:"node"`
	Step    int          `json:"step"`
	Message MessageChunk `json:"message"`
	// Model and Provider made it, if any did.
	Model    string `json:"model,omitempty"`
	Provider string `json:"provider,omitempty"`
}

// Step is a checkpoint as far as watchers need it at once.
type Step struct {
	ID     string   `json:"id"`
	Parent string   `json:"parent,omitempty"`
	Source Source   `json:"source"`
	Step   int      `json:"step"`
	Next   []string `json:"next"`
}

// Ended is how a run ended.
type Ended struct {
	Status RunStatus `json:"status"`
	// Error and Message are set when it failed: a type and a text for the user.
	Error   string `json:"error,omitempty"`
	Message string `json:"message,omitempty"`
	// Interrupts are the questions that it waits with.
	Interrupts []Interrupt `json:"interrupts,omitempty"`
}

// Recorded is an event with its place in the journal: readers that come back ask for
// what is after it.
type Recorded struct {
	Offset int64 // of the end of the event, in bytes
	Event  Event
}

// Notice is the shape of a [Event.Custom].
type Notice struct {
	Type string `json:"type"`
	// ToolCallID, Stream and Text are of NoticeOutput: what a tool prints.
	ToolCallID string `json:"tool_call_id,omitempty"`
	Stream     string `json:"stream,omitempty"`
	Text       string `json:"text,omitempty"`
	// SessionID is the sandbox in which it does.
	SessionID string `json:"session_id,omitempty"`
	// Message is for people: why something is repeated or left out.
	Message string `json:"message,omitempty"`
	// RetryAfter is of NoticeRetry, in milliseconds.
	RetryAfter int64 `json:"retry_after_ms,omitempty"`
	// Messages is of NoticeFolded: how many turns the model is no more shown.
	Messages int `json:"messages,omitempty"`
	// Cost and Tokens are of NoticeUsage: of the run so far.
	Tokens int      `json:"tokens,omitempty"`
	Cost   *float64 `json:"cost_usd,omitempty"`
}

// The types of notices.
const (
	NoticeOutput = "tool_output"
	NoticeRetry  = "retry"
	NoticeFolded = "context_folded"
	NoticeUsage  = "usage"
)
