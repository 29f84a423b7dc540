// Package conversation has the nouns of cubby's agent: assistants, threads, the
// messages and checkpoints of threads, the runs that add to them, and what a run
// tells while it goes on. Their forms in JSON are those of LangGraph's platform,
// whose clients read them. It has no I/O and no clock.
//
// A thread's state is a list of messages. A [Checkpoint] is that list as it was
// between two steps of a run; each has a parent, so that a thread is a tree, and one
// of them is the thread's head. A checkpoint is never changed.
package conversation

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Graph is the id of the one graph that there is, and GraphAlias another name of it,
// which clients of sandbox-agent use.
const (
	Graph      = "agent"
	GraphAlias = "sandbox-agent"
)

// The nodes of the graph.
const (
	NodeStart = "__start__"
	NodeAgent = "agent" // asks the model
	NodeTools = "tools" // runs what it calls
	NodeEnd   = "__end__"
	// NodeInput is not a node: who updates a state as it gives the input of a run.
	NodeInput = "__input__"
)

// GraphNamespace is where the ids of the assistants of graphs are made from their
// names, as LangGraph's servers do: UUIDv5, "agent" has
// fe096781-5601-53d2-b2f6-0d3403f7e9ca.
var GraphNamespace = uuid.MustParse("6ba7b821-9dad-11d1-80b4-00c04fd430c8")

// GraphAssistant is the id of the assistant that a graph has by itself.
func GraphAssistant(graph string) string {
	return uuid.NewSHA1(GraphNamespace, []byte(graph)).String()
}

// Assistant is the graph with settings of its own.
type Assistant struct {
	ID          string // a UUID
	Tenant      string
	GraphID     string
	Name        string
	Description string
	Version     int
	Config      json.RawMessage // an object
	Context     json.RawMessage // an object
	Metadata    map[string]json.RawMessage
	CreatedAt   time.Time
	UpdatedAt   time.Time
}

// ThreadStatus is what goes on in a thread.
type ThreadStatus string

const (
	ThreadIdle        ThreadStatus = "idle"
	ThreadBusy        ThreadStatus = "busy"
	ThreadInterrupted ThreadStatus = "interrupted"
	ThreadFailed      ThreadStatus = "error"
)

// Thread is a conversation.
type Thread struct {
	// UID names this incarnation: its journals and messages are below it. ID is the
	// client's name for it, a UUID unless the client of sandbox-agent chose another.
	UID            sandbox.UID
	ID             string
	Tenant         string
	Owner          string // the principal's name that made it; its runs act as that one
	Metadata       map[string]json.RawMessage
	Config         json.RawMessage // an object
	Status         ThreadStatus
	Error          json.RawMessage // of the last run that failed; null: none
	Head           string          // the id of its newest checkpoint on the branch in use; "": none
	CreatedAt      time.Time
	UpdatedAt      time.Time
	StateUpdatedAt time.Time
}

// Source is how a checkpoint came to be.
type Source string

const (
	SourceInput  Source = "input"  // the input of a run, before it is in the messages
	SourceLoop   Source = "loop"   // a step of a run
	SourceUpdate Source = "update" // a client changed the state
	SourceFork   Source = "fork"   // a copy
)

// Checkpoint is the state between two steps.
type Checkpoint struct {
	ID       string // a UUID whose text grows with time, see [NewID]
	Parent   string // "": it is the first
	Source   Source
	Step     int // from -1
	Next     []string
	Tasks    []Task // those of Next
	Metadata map[string]json.RawMessage
	RunID    string
	// Messages are the state's, by their places in the thread.
	Messages Refs
	// Approval is what a person has to decide about; nil: nothing.
	Approval  *Approval
	CreatedAt time.Time
}

// Question is the id of the interrupt that a person has to answer before the run can go
// on; "": there is none.
func (c Checkpoint) Question() string {
	for _, t := range c.Tasks {
		for _, i := range t.Interrupts {
			return i.ID
		}
	}
	return ""
}

// Task is a node that is to run, or could not.
type Task struct {
	ID         string      `json:"id"` // a UUID
	Name       string      `json:"name"`
	Error      *string     `json:"error"`
	Interrupts []Interrupt `json:"interrupts"`
}

// Interrupt is a question to the client, who answers it with a command's resume.
type Interrupt struct {
	ID    string          `json:"id"` // 32 hexadecimal digits
	Value json.RawMessage `json:"value"`
}

// RunStatus is what became of a run.
type RunStatus string

const (
	RunPending     RunStatus = "pending"
	RunRunning     RunStatus = "running"
	RunFailed      RunStatus = "error"
	RunSuccess     RunStatus = "success"
	RunTimeout     RunStatus = "timeout"
	RunInterrupted RunStatus = "interrupted"
)

// Ended reports whether nothing more will come.
func (s RunStatus) Ended() bool { return s != RunPending && s != RunRunning }

// Multitask is what becomes of a run that is asked for while another one of its
// thread goes on; "" leaves it to the server: it interrupts a run that nobody
// follows, and rejects otherwise.
type Multitask string

const (
	MultitaskReject    Multitask = "reject"
	MultitaskInterrupt Multitask = "interrupt"
	MultitaskRollback  Multitask = "rollback"
	MultitaskEnqueue   Multitask = "enqueue"
)

// Run is one go at a thread.
type Run struct {
	ID          string // a UUID
	Thread      sandbox.UID
	Seq         int64 // from 1 in its thread: the journal's
	AssistantID string
	Status      RunStatus
	Error       json.RawMessage // {"error":type,"message":text}; null: none
	Metadata    map[string]json.RawMessage
	Multitask   Multitask
	// Request is what was asked, as far as the run needs it. It holds no key: those
	// of a request are sealed beside it, see Secret.
	Request RunRequest
	// Secret is kept sealed: the key of a provider that came with the request.
	Secret    string
	CreatedAt time.Time
	UpdatedAt time.Time
}

// RunRequest is what a run is to do.
type RunRequest struct {
	Input   json.RawMessage `json:"input,omitempty"` // null: none
	Command *Command        `json:"command,omitempty"`
	// Question is the interrupt that the thread waited with when the command came: it
	// answers no other one.
	Question        string                     `json:"question,omitempty"`
	Checkpoint      string                     `json:"checkpoint_id,omitempty"` // to go on from; "": the head
	Tags            []string                   `json:"tags,omitempty"`
	RecursionLimit  int                        `json:"recursion_limit,omitempty"` // steps; 0: the default
	Configurable    map[string]json.RawMessage `json:"configurable,omitempty"`
	Context         json.RawMessage            `json:"context,omitempty"`
	InterruptBefore []string                   `json:"interrupt_before,omitempty"` // nodes or tools; "*": all nodes
	InterruptAfter  []string                   `json:"interrupt_after,omitempty"`
	// Temporary: the thread goes with the run.
	Temporary bool `json:"temporary,omitempty"`
	// StreamMode is how the client that made the run watches it; who joins it and says
	// nothing else is shown the same.
	StreamMode []string `json:"stream_mode,omitempty"`
	// Webhook is where the end of the run is posted to; "": nowhere.
	Webhook string `json:"webhook,omitempty"`
	// CancelOnLeave: the run ends when the last one who follows it leaves.
	CancelOnLeave bool `json:"cancel_on_leave,omitempty"`
	// Canceled: somebody asked for the end of the run, and with TakeBack that it be as
	// if it had not been. A daemon that takes the run up does that.
	Canceled bool `json:"canceled,omitempty"`
	TakeBack bool `json:"take_back,omitempty"`
}
