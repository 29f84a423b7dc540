// Package task is what the tasks of coding agents take and give: see
// [github.com/cubbyhq/cubby/client.Tasks].
package task

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Options is what a coding agent is asked to do. Only the prompt is required.
type Options struct {
	Prompt string `json:"prompt"`
	// Agent is "opencode" (default), "claude", "codex" or "gemini".
	Agent string `json:"agent,omitempty"`
	// Command is another agent: its program and arguments, which speaks Protocol:
	// [ACP] (default) or [JSONLines].
	Command  []string `json:"command,omitempty"`
	Protocol string   `json:"protocol,omitempty"`
	Model    string   `json:"model,omitempty"` // as the agent names it; "" is its default
	// Cwd is the directory of the project, made when it is missing; default
	// /workspace.
	Cwd string `json:"cwd,omitempty"`
	// Env is for the agent alone, as keys of its provider. The daemon keeps it
	// nowhere.
	Env map[string]string `json:"env,omitempty"`
	// Secrets names further secrets of the operator that the agent gets. Those of
	// its provider it has anyway.
	Secrets []string `json:"secrets,omitempty"`
	// Resume is the id of an earlier task of this sandbox and agent, whose session
	// goes on.
	Resume string `json:"resume,omitempty"`
	// Ask makes what the agent asks leave for an event of type "permission" that
	// waits for [client.Tasks.Answer]. Otherwise everything is allowed.
	Ask bool `json:"-"`
	// Timeout ends the agent; zero is the daemon's 10 minutes, negative is none.
	Timeout time.Duration `json:"-"`

	// OnEvent, where [client.Tasks.Run] is given it, hears the events of the task.
	OnEvent func(Event) `json:"-"`
	// KillOnCancel cancels the task when the context of [client.Tasks.Run] ends before it.
	// Without it the task goes on.
	KillOnCancel bool `json:"-"`
}

// The protocols of agents that are given as a command.
const (
	ACP       = "acp"        // the Agent Client Protocol
	JSONLines = "json-lines" // one JSON object per line; the prompt is the last argument
)

// MarshalJSON writes the body of the request.
func (o Options) MarshalJSON() ([]byte, error) {
	type plain Options
	w := struct {
		plain
		Permissions    string   `json:"permissions,omitempty"`
		TimeoutSeconds *float64 `json:"timeout_seconds,omitempty"`
	}{plain: plain(o)}
	if o.Ask {
		w.Permissions = "ask"
	}
	if o.Timeout != 0 {
		seconds := max(0, o.Timeout.Seconds())
		w.TimeoutSeconds = &seconds
	}
	return json.Marshal(w)
}

// Status is where a task stands.
type Status string

// The statuses of a task.
const (
	Running   Status = "running"
	Succeeded Status = "succeeded"
	Failed    Status = "failed"    // FailureReason says why
	Cancelled Status = "cancelled" // by [client.Tasks.Cancel], or killed
)

// Task is what a coding agent was asked to do, and how it ended. The fields from
// FailureReason on are those of a task that has ended.
type Task struct {
	ID          string    `json:"id"`
	SandboxID   string    `json:"sandbox_id,omitempty"`
	Status      Status    `json:"status"`
	Agent       string    `json:"agent,omitempty"`
	Model       string    `json:"model,omitempty"`
	Prompt      string    `json:"prompt,omitempty"` // its first 8 KiB
	PromptCut   bool      `json:"prompt_cut,omitempty"`
	Cwd         string    `json:"cwd,omitempty"`
	Permissions string    `json:"permissions,omitempty"` // "allow" or "ask"
	Resume      string    `json:"resume,omitempty"`
	Seq         int64     `json:"seq,omitempty"` // of the exec that it is
	EventsURL   string    `json:"events_url,omitempty"`
	CreatedAt   time.Time `json:"created_at"`

	// FailureReason is "agent_timeout", "agent_error", "cancelled",
	// "sandbox_unavailable" or "internal".
	FailureReason string `json:"failure_reason,omitempty"`
	ErrorMessage  string `json:"error_message,omitempty"`
	// FilesChanged are those that differ from the checkpoint; the first 1,000.
	FilesChanged []string `json:"files_changed,omitempty"`
	FinalMessage string   `json:"agent_message_final,omitempty"`
	// BuildOK is false when a build was tried and failed, which does not make the
	// task failed.
	BuildOK      bool   `json:"build_ok"`
	BuildMessage string `json:"build_error_message,omitempty"`
	Preview      string `json:"preview_status_after,omitempty"` // "ready", "error" or "down"
	PreviewError string `json:"preview_error_message,omitempty"`
	Checkpoint   string `json:"checkpoint_id,omitempty"` // what [client.Tasks.Restore] goes back to
	// CheckpointMessage says why there is no checkpoint, or what it lacks.
	CheckpointMessage string     `json:"checkpoint_message,omitempty"`
	Session           string     `json:"session_id,omitempty"`  // the agent's
	StopReason        string     `json:"stop_reason,omitempty"` // the agent's word
	Push              *Push      `json:"push,omitempty"`
	DurationMS        int64      `json:"duration_ms"`
	Tokens            *Tokens    `json:"tokens,omitempty"`
	StartedAt         *time.Time `json:"started_at,omitempty"`
	FinishedAt        *time.Time `json:"finished_at,omitempty"`
}

// Finished reports whether nothing will change any more.
func (t Task) Finished() bool { return t.Status != Running }

// Err is nil for a task that succeeded, and otherwise a [*Error].
func (t Task) Err() error {
	if t.Status == Succeeded {
		return nil
	}
	return &Error{Task: t}
}

// String is short, for logs.
func (t Task) String() string {
	text := fmt.Sprintf("task %s: %s", t.ID, t.Status)
	if t.FailureReason != "" && t.FailureReason != string(t.Status) {
		text += " (" + t.FailureReason + ")"
	}
	return text
}

// Error is a task that did not succeed.
type Error struct{ Task Task }

// Error says how the task ended.
func (e *Error) Error() string {
	text := e.Task.String()
	if e.Task.ErrorMessage != "" {
		text += ": " + strings.TrimSpace(e.Task.ErrorMessage)
	}
	return text
}

// Push is how the push to a sandbox's GitRemoteURL went.
type Push struct {
	OK      bool   `json:"ok"`
	Commit  string `json:"commit,omitempty"`
	Branch  string `json:"branch,omitempty"`
	Message string `json:"message,omitempty"`
}

// Tokens is what the models used.
type Tokens struct {
	Input      int64   `json:"input"`
	Output     int64   `json:"output"`
	Reasoning  int64   `json:"reasoning"`
	CacheRead  int64   `json:"cache_read"`
	CacheWrite int64   `json:"cache_write"`
	Total      int64   `json:"total"`
	Cost       float64 `json:"cost"` // US dollars; 0 where the agent does not say it
}
