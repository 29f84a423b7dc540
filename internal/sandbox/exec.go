package sandbox

import (
	"encoding/json"
	"time"
)

// ExecSpec is one command to run.
type ExecSpec struct {
	// Kind names the operation that the command carries out: "git.clone". ""
	// is a plain command.
	Kind string `json:"kind,omitempty"`
	// Session names the session shell that runs the command: one after
	// another, in the order of their seqs, with one state.
	Session string `json:"session,omitempty"`
	// Terminal names the terminal whose program this is.
	Terminal string `json:"terminal,omitempty"`
	// Service marks a run of a service: it is no use of the sandbox, and not
	// among its commands.
	Service *ServiceRun `json:"service,omitempty"`
	// Detail is what an operation was asked, a JSON object without secrets:
	// histories show it.
	Detail json.RawMessage `json:"detail,omitempty"`

	// Exactly one of Argv, Shell and Cell is set. Shell runs through bash -c, or
	// sh -c where the image has no bash.
	Argv  []string          `json:"argv,omitempty"`
	Shell string            `json:"shell,omitempty"`
	Cell  *Cell             `json:"cell,omitempty"` // code for a kernel
	Cwd   string            `json:"cwd"`            // default WorkspaceDir
	Env   map[string]string `json:"env,omitempty"`
	User  string            `json:"user"` // default the sandbox's user
	// Stdin keeps the command's standard input open for writes; otherwise it
	// is empty.
	Stdin bool `json:"stdin,omitempty"`
	// PTY gives the command a terminal; stdout and stderr are then one stream.
	PTY *WindowSize `json:"pty,omitempty"`
	// Timeout kills the whole tree; 0 is none. Nil means the sandbox's default.
	Timeout *time.Duration `json:"timeout,omitempty"`
	// Secrets are further env values that are kept in memory only, so a
	// pending command that needs them does not outlive the daemon: it ends
	// [EndLost].
	Secrets      map[string]string `json:"-"`
	NeedsSecrets bool              `json:"needs_secrets,omitempty"` // it was given Secrets
	// Program is the capability of an agent whose own program the command runs; "": it
	// runs another one.
	Program AgentCapability `json:"-"`
	// RestoreIncomplete is what was lost, and what not, of the sandbox that was woken
	// to run this and whose memory was lost; "" otherwise.
	RestoreIncomplete string `json:"restore_incomplete,omitempty"`
}

// Needs is what the command needs of the sandbox's agent beyond the first version of
// its protocol.
func (x ExecSpec) Needs() (all []AgentCapability) {
	if x.Cell != nil {
		all = append(all, AgentKernels)
	}
	if x.Service != nil {
		all = append(all, AgentServices)
	}
	if x.Program != "" {
		all = append(all, x.Program)
	}
	return all
}

// WindowSize is a terminal's size in characters.
type WindowSize struct {
	Cols uint16 `json:"cols"`
	Rows uint16 `json:"rows"`
}

// ExecStatus is where an exec stands.
type ExecStatus string

const (
	ExecPending ExecStatus = "pending"
	ExecRunning ExecStatus = "running"
	ExecDone    ExecStatus = "done"  // the command itself ended, with any exit code
	ExecError   ExecStatus = "error" // something else ended it; Reason says what
)

// Finished reports whether nothing will change any more.
func (s ExecStatus) Finished() bool { return s == ExecDone || s == ExecError }

// EndReason says honestly why an exec ended.
type EndReason string

const (
	EndExited    EndReason = "exited"    // by itself, or by a signal that it sent itself
	EndTimeout   EndReason = "timeout"   // its own time limit
	EndOOM       EndReason = "oom"       // out of memory
	EndKilled    EndReason = "killed"    // canceled or signalled through the API
	EndDiskFull  EndReason = "disk_full" // its output could not be kept
	EndDestroyed EndReason = "sandbox_destroyed"
	EndStopped   EndReason = "sandbox_stopped"
	EndDied      EndReason = "container_died" // the sandbox died under it
	EndLost      EndReason = "lost"           // nobody can know how it ended
	EndNotRun    EndReason = "not_started"    // it never ran; Message says why
	EndKernel    EndReason = "kernel_died"    // of a cell: its kernel ended under it
)

// Exit is how an exec ended.
type Exit struct {
	// Code is the exit code, 128 + signal when a signal ended it, 127 when
	// the command was not found and 126 when it could not be executed.
	// Nil when nobody knows.
	Code    *int      `json:"exit_code"`
	Signal  string    `json:"signal,omitempty"` // "SIGKILL"
	Reason  EndReason `json:"reason"`
	Message string    `json:"message,omitempty"` // for people: which process ran out of memory
	// Exception is the name of what a cell raised; Message has its text behind
	// the name. "" for all else, and for cells of agents that did not say it.
	Exception string `json:"exception,omitempty"`
	// StdoutCut, StderrCut and RichCut count the bytes that were not kept
	// because a documented cap was reached.
	StdoutCut int64 `json:"stdout_cut,omitempty"`
	StderrCut int64 `json:"stderr_cut,omitempty"`
	RichCut   int64 `json:"rich_cut,omitempty"`
}

// Exec is one command of a sandbox, alone or for an operation or a terminal.
// Its output is in the journal.
type Exec struct {
	UID    UID   // the exec's own uid: a start that is sent twice runs once
	Box    UID   // the sandbox it belongs to
	Seq    int64 // 1, 2, 3 … within the sandbox, without gaps
	Spec   ExecSpec
	Status ExecStatus
	Exit   *Exit // nil until finished
	// Result is what an operation made out of its output, as JSON; nil until
	// finished, and for plain commands.
	Result json.RawMessage
	Actor  string // the principal's name who asked for it

	CreatedAt  time.Time
	StartedAt  time.Time // zero until running
	FinishedAt time.Time // zero until finished
	// CancelledAt is when somebody asked for an end that takes a while; zero: nobody did.
	// Only the store knows it.
	CancelledAt time.Time
}

// Took is how long the command ran; 0 when it never did or still does.
func (e Exec) Took() time.Duration {
	if e.StartedAt.IsZero() || e.FinishedAt.IsZero() {
		return 0
	}
	return e.FinishedAt.Sub(e.StartedAt)
}

// Unlogged reports whether a missing journal of the exec is no loss: it has none
// yet or never ran, or the host could not keep it, which its end says.
func (e Exec) Unlogged() bool {
	return !e.Status.Finished() || e.StartedAt.IsZero() || e.Exit != nil && e.Exit.Reason == EndDiskFull
}

// Stream names where output bytes came from.
type Stream uint8

const (
	Stdout Stream = 1
	Stderr Stream = 2
	// Rich is what a cell shows beside text: one JSON object per line, see
	// package kernel.
	Rich Stream = 3
)

func (s Stream) String() string {
	switch s {
	case Stdout:
		return "stdout"
	case Stderr:
		return "stderr"
	case Rich:
		return "rich"
	}
	return "unknown"
}

// Output is a piece of an exec's output. Offset counts all bytes of all
// streams before it, so Offset+len(Data) is where to resume.
type Output struct {
	Offset int64
	Stream Stream
	Time   time.Time
	Data   []byte
}
