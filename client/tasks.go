package client

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Tasks gives coding agents work in a sandbox. Make it with [Client.Tasks].
type Tasks struct {
	box string
	c   *Client
}

// Tasks returns access to the tasks of a sandbox. It asks nobody whether the
// sandbox exists.
func (c *Client) Tasks(id string) *Tasks { return &Tasks{id, c} }

// TaskOptions is what a coding agent is asked to do. Only the prompt is required.
type TaskOptions struct {
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
	// waits for [Tasks.Answer]. Otherwise everything is allowed.
	Ask bool `json:"-"`
	// Timeout ends the agent; zero is the daemon's 10 minutes, [NoTimeout] is none.
	Timeout time.Duration `json:"-"`

	// OnEvent, where [Tasks.Run] is given it, hears the events of the task.
	OnEvent func(TaskEvent) `json:"-"`
	// KillOnCancel cancels the task when the context of [Tasks.Run] ends before it.
	// Without it the task goes on.
	KillOnCancel bool `json:"-"`
}

// The protocols of agents that are given as a command.
const (
	ACP       = "acp"        // the Agent Client Protocol
	JSONLines = "json-lines" // one JSON object per line; the prompt is the last argument
)

func (o TaskOptions) wire() any {
	type plain TaskOptions
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
	return w
}

// TaskStatus is where a task stands.
type TaskStatus string

// The statuses of a task.
const (
	TaskRunning   TaskStatus = "running"
	TaskSucceeded TaskStatus = "succeeded"
	TaskFailed    TaskStatus = "failed"    // FailureReason says why
	TaskCancelled TaskStatus = "cancelled" // by [Tasks.Cancel], or killed
)

// Task is what a coding agent was asked to do, and how it ended. The fields from
// FailureReason on are those of a task that has ended.
type Task struct {
	ID          string     `json:"id"`
	SandboxID   string     `json:"sandbox_id,omitempty"`
	Status      TaskStatus `json:"status"`
	Agent       string     `json:"agent,omitempty"`
	Model       string     `json:"model,omitempty"`
	Prompt      string     `json:"prompt,omitempty"` // its first 8 KiB
	PromptCut   bool       `json:"prompt_cut,omitempty"`
	Cwd         string     `json:"cwd,omitempty"`
	Permissions string     `json:"permissions,omitempty"` // "allow" or "ask"
	Resume      string     `json:"resume,omitempty"`
	Seq         int64      `json:"seq,omitempty"` // of the exec that it is
	EventsURL   string     `json:"events_url,omitempty"`
	CreatedAt   time.Time  `json:"created_at"`

	// FailureReason is "agent_timeout", "agent_error", "cancelled",
	// "sandbox_unavailable" or "internal".
	FailureReason string `json:"failure_reason,omitempty"`
	ErrorMessage  string `json:"error_message,omitempty"`
	// FilesChanged are those that differ from the checkpoint; the first 1,000.
	FilesChanged []string `json:"files_changed,omitempty"`
	FinalMessage string   `json:"agent_message_final,omitempty"`
	// BuildOK is false when a build was tried and failed, which does not make the
	// task failed.
	BuildOK      bool        `json:"build_ok"`
	BuildMessage string      `json:"build_error_message,omitempty"`
	Preview      string      `json:"preview_status_after,omitempty"` // "ready", "error" or "down"
	PreviewError string      `json:"preview_error_message,omitempty"`
	Checkpoint   string      `json:"checkpoint_id,omitempty"` // what [Tasks.Restore] goes back to
	Session      string      `json:"session_id,omitempty"`    // the agent's
	StopReason   string      `json:"stop_reason,omitempty"`   // the agent's word
	Push         *TaskPush   `json:"push,omitempty"`
	DurationMS   int64       `json:"duration_ms"`
	Tokens       *TaskTokens `json:"tokens,omitempty"`
	StartedAt    *time.Time  `json:"started_at,omitempty"`
	FinishedAt   *time.Time  `json:"finished_at,omitempty"`
}

// Finished reports whether nothing will change any more.
func (t Task) Finished() bool { return t.Status != TaskRunning }

// Err is nil for a task that succeeded, and otherwise a [*TaskError].
func (t Task) Err() error {
	if t.Status == TaskSucceeded {
		return nil
	}
	return &TaskError{Task: t}
}

// String is short, for logs.
func (t Task) String() string {
	text := fmt.Sprintf("task %s: %s", t.ID, t.Status)
	if t.FailureReason != "" && t.FailureReason != string(t.Status) {
		text += " (" + t.FailureReason + ")"
	}
	return text
}

// TaskError is a task that did not succeed.
type TaskError struct{ Task Task }

// Error says how the task ended.
func (e *TaskError) Error() string {
	text := e.Task.String()
	if e.Task.ErrorMessage != "" {
		text += ": " + strings.TrimSpace(e.Task.ErrorMessage)
	}
	return text
}

// TaskPush is how the push to a sandbox's GitRemoteURL went.
type TaskPush struct {
	OK      bool   `json:"ok"`
	Commit  string `json:"commit,omitempty"`
	Branch  string `json:"branch,omitempty"`
	Message string `json:"message,omitempty"`
}

// TaskTokens is what the models used.
type TaskTokens struct {
	Input      int64   `json:"input"`
	Output     int64   `json:"output"`
	Reasoning  int64   `json:"reasoning"`
	CacheRead  int64   `json:"cache_read"`
	CacheWrite int64   `json:"cache_write"`
	Total      int64   `json:"total"`
	Cost       float64 `json:"cost"` // US dollars; 0 where the agent does not say it
}

func (t *Tasks) path(elems ...string) string {
	return sandboxPath(t.box, append([]string{"tasks"}, elems...)...)
}

// Start begins a task and returns it at once; it goes on without the caller. A
// sandbox that sleeps is woken. [TaskInProgress] while another task works in the
// same directory.
func (t *Tasks) Start(ctx context.Context, o TaskOptions) (Task, error) {
	var task Task
	return task, t.c.do(ctx, call{method: http.MethodPost, path: t.path(), json: o.wire()}, &task)
}

// Run begins a task and returns it when it has ended. One that fails is no error:
// see [Task.Err].
func (t *Tasks) Run(ctx context.Context, o TaskOptions) (Task, error) {
	start := func(ctx context.Context) (taskHandle, error) {
		task, err := t.Start(ctx, o)
		return taskHandle{t, task.ID}, err
	}
	return attended(ctx, t.c, o.KillOnCancel, start, func(h taskHandle) (Task, error) {
		if o.OnEvent == nil {
			return t.Wait(ctx, h.id)
		}
		for e, err := range t.Events(ctx, h.id, 0) {
			if err != nil {
				return Task{}, err
			}
			o.OnEvent(e)
		}
		return t.Wait(ctx, h.id)
	})
}

// taskHandle is a task that is followed.
type taskHandle struct {
	tasks *Tasks
	id    string
}

// Cancel cancels the task.
func (h taskHandle) Cancel(ctx context.Context) error {
	_, err := h.tasks.Cancel(ctx, h.id)
	return err
}

// Get returns a task as it stands, also one of a sandbox that was destroyed a while
// ago.
func (t *Tasks) Get(ctx context.Context, task string) (Task, error) { return t.get(ctx, task, 0) }

func (t *Tasks) get(ctx context.Context, task string, wait time.Duration) (Task, error) {
	q := url.Values{}
	if wait > 0 {
		q.Set("wait_seconds", strconv.Itoa(int(wait.Seconds())))
	}
	var got Task
	return got, t.c.do(ctx, call{method: http.MethodGet, path: t.path(task), query: q}, &got)
}

// Wait returns a task when it has ended. When ctx ends the task goes on. It outlives
// restarts of the daemon.
func (t *Tasks) Wait(ctx context.Context, task string) (Task, error) {
	return patient(ctx, t.c.newBackoff(), func() (Task, error) { return t.get(ctx, task, waitSlice) })
}

// List iterates over the tasks of a sandbox, the newest first, fetching page by page.
// After an error the iteration ends.
func (t *Tasks) List(ctx context.Context) iter.Seq2[Task, error] {
	return func(yield func(Task, error) bool) {
		q := url.Values{}
		for {
			var page struct {
				Tasks []Task `json:"tasks"`
				Next  int64  `json:"next_before"`
			}
			if err := t.c.do(ctx, call{method: http.MethodGet, path: t.path(), query: q}, &page); err != nil {
				yield(Task{}, err)
				return
			}
			for _, task := range page.Tasks {
				if !yield(task, nil) {
					return
				}
			}
			if page.Next == 0 {
				return
			}
			q.Set("before", strconv.FormatInt(page.Next, 10))
		}
	}
}

// Cancel asks a task to end and returns how it stands. The agent is killed when it
// goes on for five seconds; Cancel does not wait for that. A task that has ended
// stays as it is.
func (t *Tasks) Cancel(ctx context.Context, task string) (TaskStatus, error) {
	var answer struct {
		Status TaskStatus `json:"task_status"`
	}
	err := t.c.do(ctx, call{method: http.MethodPost, path: t.path(task, "cancel")}, &answer)
	return answer.Status, err
}

// Answer answers a question of the agent, an event of type "permission", with the id
// of one of its options. [WrongState] when it waits for no answer any more.
func (t *Tasks) Answer(ctx context.Context, task, question, option string) error {
	body := map[string]string{"option": option}
	return t.c.do(ctx, call{method: http.MethodPost, path: t.path(task, "permissions", question), json: body}, nil)
}

// Restore brings the files of a task's directory back to what they were before it,
// and returns the names of those that changed, at most 1,000. Later changes to them
// are lost too; files that the project's git ignores stay.
func (t *Tasks) Restore(ctx context.Context, task string) ([]string, error) {
	var answer struct {
		Files []string `json:"files"`
	}
	err := t.c.do(ctx, call{method: http.MethodPost, path: t.path(task, "restore")}, &answer)
	return answer.Files, err
}
