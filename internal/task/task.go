// Package task is what the two ends of a coding-agent task tell each other: the
// order that the supervisor in the sandbox gets, the records that it prints, the
// replies that it reads, and the result. What comes out of a sandbox is not
// trusted: a record is read under bounds, and what cannot be read is left out.
package task

import (
	"encoding/json"
	"time"
)

// The kinds of the execs that a task, and the restoring of its files, are.
const (
	KindPrefix  = "task"
	Kind        = KindPrefix + ".run"
	KindRestore = KindPrefix + ".restore"
)

// The arguments that make cubby-init the supervisor of a task, or what restores
// files to a checkpoint: then the directory and the checkpoint follow.
const (
	Verb        = "task"
	RestoreVerb = "task-restore"
)

// Program is where cubby-init lies in every sandbox.
const Program = "/sbin/cubby-init"

// Order is what a supervisor is asked to do. It has no secret: those are variables
// of the supervisor's environment, and Secrets has their names.
type Order struct {
	ID     string `json:"id"` // names its checkpoint
	Prompt string `json:"prompt"`
	Cwd    string `json:"cwd"` // absolute; made when it is missing
	Agent  Agent  `json:"agent"`
	// Session is the agent's own name of the session to go on with; "" begins one.
	Session     string      `json:"session,omitempty"`
	Permissions Permissions `json:"permissions"`
	// Seconds is the time limit of the agent: of everything before the build check.
	// A sleep of the sandbox does not count. 0 is none.
	Seconds float64 `json:"seconds,omitempty"`
	// Secrets names variables whose values are kept out of every record and of
	// standard error.
	Secrets []string `json:"secrets,omitempty"`
	// Push has the supervisor ask the host to push when the agent succeeded, and
	// DevServer has it ask for a restart of the dev server when a file changed that
	// the server reads only at its start.
	Push      bool `json:"push,omitempty"`
	DevServer bool `json:"dev_server,omitempty"`
	// Port is where the application answers, for the health check.
	Port int `json:"port,omitempty"`
	// Output is how many bytes the host keeps of all that is printed; 0 is as many as
	// the supervisor's own bound.
	Output int64 `json:"output,omitempty"`
}

// Permissions says who allows what an agent asks leave for.
type Permissions string

// The policies of permissions.
const (
	Allow Permissions = "allow" // the supervisor allows everything: the sandbox is the wall
	Ask   Permissions = "ask"   // each question is an event, and waits for its answer
)

// Protocol is how a supervisor speaks with its agent.
type Protocol string

// The protocols of agents.
const (
	// ACP is the Agent Client Protocol on the agent's standard streams, see
	// https://agentclientprotocol.com.
	ACP Protocol = "acp"
	// JSONLines reads one JSON object per line of the agent's standard output, as
	// "opencode run --format json" and "claude -p --output-format stream-json" print
	// them. The prompt is the last argument.
	JSONLines Protocol = "json-lines"
)

// Agent is the program that does a task's work.
type Agent struct {
	Name     string   `json:"name"`
	Protocol Protocol `json:"protocol"`
	Command  []string `json:"command"`
	// Env is further variables of the agent, none of them secret.
	Env map[string]string `json:"env,omitempty"`
	// AskEnv is further ones with the policy [Ask]: without them the agent would do
	// what it should ask leave for.
	AskEnv map[string]string `json:"ask_env,omitempty"`
	// Files are written before the agent starts.
	Files []File `json:"files,omitempty"`
	// Model is chosen through the protocol; "" is the agent's default.
	Model string `json:"model,omitempty"`
	// Auth is the ACP method by which the agent is told to take its key from the
	// environment; "" is none.
	Auth string `json:"auth,omitempty"`
	// AllowMode and AskMode are the modes of the agent's session with [Allow], in
	// which it need not ask, and with [Ask], in which it does. "" is the agent's
	// default; one that the agent does not offer is not set.
	AllowMode string `json:"allow_mode,omitempty"`
	AskMode   string `json:"ask_mode,omitempty"`
}

// File is a file of settings. Path begins with "~/", the home of the sandbox's
// user. With Keep an existing file stays as it is.
type File struct {
	Path    string `json:"path"`
	Content string `json:"content"`
	Keep    bool   `json:"keep,omitempty"`
}

// Record is a line that a supervisor prints. Those of type [RequestType] are for
// the host; all others are events of the task, and [Done] is the last.
type Record struct {
	Type string          `json:"type"`
	At   time.Time       `json:"at"`
	Data json.RawMessage `json:"data"`
}

// The types of records.
const (
	StatusType     = "status"     // Status
	MessageType    = "message"    // Message
	ToolType       = "tool"       // Tool
	BuildType      = "build"      // Build
	DoneType       = "done"       // Result
	DeltaType      = "delta"      // Delta
	ThoughtType    = "thought"    // Thought
	PlanType       = "plan"       // Plan
	DiffType       = "diff"       // Diff
	UsageType      = "usage"      // Tokens
	PermissionType = "permission" // Permission
	PushType       = "push"       // Push
	RequestType    = "request"    // Request
	RestoredType   = "restored"   // Restored, of [KindRestore]
)

// Phase is where a task stands.
type Phase string

// The phases of a task, in their order.
const (
	PhaseStarting Phase = "starting"
	PhaseCheck    Phase = "checkpoint"
	PhaseAgent    Phase = "agent_running"
	PhaseBuild    Phase = "build_check"
	PhaseHealth   Phase = "health_check"
)

// Status says that a phase begins.
type Status struct {
	Phase Phase `json:"phase"`
	// Checkpoint is the one that was made, from agent_running on.
	Checkpoint string `json:"checkpoint_id,omitempty"`
}

// The roles of messages.
const (
	RoleAgent = "agent"
	RoleError = "agent_error"
)

// Message is a whole message of the agent, or what it says went wrong.
type Message struct {
	Role string `json:"role"`
	Text string `json:"text"`
	ID   string `json:"message_id,omitempty"` // that of its deltas
}

// Delta is a piece of a message or a thought, as it comes.
type Delta struct {
	Of   string `json:"of"` // MessageType or ThoughtType
	ID   string `json:"message_id"`
	Text string `json:"text"`
}

// Thought is what the agent thinks, whole.
type Thought struct {
	Text string `json:"text"`
	ID   string `json:"message_id,omitempty"`
}

// Tool is a call of one of the agent's tools. There is one record for each status
// that a call has, at most.
type Tool struct {
	Name   string `json:"name"`
	Status string `json:"status"` // pending, running, completed, error
	// Path is what the call is about: a file, a pattern or a command, at most 200
	// characters of it.
	Path string `json:"path"`
	ID   string `json:"tool_call_id,omitempty"`
	Kind string `json:"kind,omitempty"` // ACP's: read, edit, execute, …
	// Output is the end of what the call gave, of one that has ended.
	Output string `json:"output,omitempty"`
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

// Diff is what a task changed about one file, against its checkpoint.
type Diff struct {
	Path   string `json:"path"`
	Status string `json:"status"` // added, modified, deleted
	// Patch is a unified diff; "" of a binary file, and cut where it is long.
	Patch     string `json:"patch,omitempty"`
	Binary    bool   `json:"binary,omitempty"`
	Truncated bool   `json:"truncated,omitempty"`
}

// Tokens is what the models have used so far. Cost is in US dollars, 0 where the
// agent does not say it.
type Tokens struct {
	Input      int64   `json:"input"`
	Output     int64   `json:"output"`
	Reasoning  int64   `json:"reasoning"`
	CacheRead  int64   `json:"cache_read"`
	CacheWrite int64   `json:"cache_write"`
	Total      int64   `json:"total"`
	Cost       float64 `json:"cost"`
}

// Permission is a question of the agent: pending, or resolved with Outcome.
type Permission struct {
	ID      string   `json:"id"`
	Status  string   `json:"status"` // pending, resolved
	Tool    Tool     `json:"tool"`
	Options []Option `json:"options"`
	// Outcome is the option that was chosen, "cancelled" when the task was.
	Outcome string `json:"outcome,omitempty"`
}

// Option is one way to answer a question.
type Option struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	Kind string `json:"kind"` // allow_once, allow_always, reject_once, reject_always
}

// Build is how the project's build went.
type Build struct {
	OK      bool   `json:"build_ok"`
	Message string `json:"build_error_message"` // the end of its output
}

// Push is how the push to the project's remote went.
type Push struct {
	OK      bool   `json:"ok"`
	Commit  string `json:"commit,omitempty"`
	Branch  string `json:"branch,omitempty"`
	Message string `json:"message,omitempty"`
}

// Restored says which files a return to a checkpoint wrote or removed.
type Restored struct {
	Files []string `json:"files"`
}

// Act is what a supervisor can ask of the host.
type Act string

// The acts of the host. The answer says nothing more than whether it went well.
const (
	ActPush    Act = "push"        // commit what there is and push it
	ActRestart Act = "restart_dev" // restart the dev server
)

// Request asks the host for an act. It is answered by a [Reply] with the same id.
type Request struct {
	ID  int64 `json:"id"` // from 1
	Act Act   `json:"act"`
}

// Reply is a line that a supervisor reads. One of its fields is set. One that comes
// twice changes nothing.
type Reply struct {
	Cancel     bool    `json:"cancel,omitempty"`
	Permission *Answer `json:"permission,omitempty"`
	Acted      *Acted  `json:"acted,omitempty"`
}

// Answer chooses an option of a [Permission].
type Answer struct {
	ID     string `json:"id"`
	Option string `json:"option"`
}

// Acted says how an act went.
type Acted struct {
	ID int64 `json:"id"`
	OK bool  `json:"ok"`
	// Push is how it went, of [ActPush].
	Push *Push `json:"push,omitempty"`
	// Message says what went wrong.
	Message string `json:"message,omitempty"`
}

// State is how a task stands.
type State string

// The states of tasks.
const (
	Running   State = "running"
	Succeeded State = "succeeded"
	Failed    State = "failed"
	Cancelled State = "cancelled"
)

// The reasons of failures.
const (
	ReasonTimeout     = "agent_timeout"
	ReasonAgent       = "agent_error"
	ReasonCancelled   = "cancelled"
	ReasonUnavailable = "sandbox_unavailable"
	ReasonInternal    = "internal"
)

// Result is how a task ended.
type Result struct {
	ID            string   `json:"id"`
	Status        State    `json:"status"`
	FailureReason string   `json:"failure_reason,omitempty"`
	ErrorMessage  string   `json:"error_message,omitempty"`
	FilesChanged  []string `json:"files_changed"`
	FinalMessage  string   `json:"agent_message_final,omitempty"`
	// BuildOK is false when a build was tried and failed; it does not make the task
	// failed.
	BuildOK      bool   `json:"build_ok"`
	BuildMessage string `json:"build_error_message,omitempty"`
	// PreviewStatus is ready, error or down: what the application's port answered
	// at the end.
	PreviewStatus  string `json:"preview_status_after,omitempty"`
	PreviewMessage string `json:"preview_error_message,omitempty"`
	Checkpoint     string `json:"checkpoint_id,omitempty"` // a commit
	// CheckpointMessage says what the checkpoint lacks, or why there is none.
	CheckpointMessage string    `json:"checkpoint_message,omitempty"`
	Session           string    `json:"session_id,omitempty"`  // the agent's, for a further task
	StopReason        string    `json:"stop_reason,omitempty"` // ACP's
	Push              *Push     `json:"push,omitempty"`
	DurationMS        int64     `json:"duration_ms"`
	Tokens            Tokens    `json:"tokens"`
	CreatedAt         time.Time `json:"created_at"`
	StartedAt         time.Time `json:"started_at"`
	FinishedAt        time.Time `json:"finished_at"`
}
