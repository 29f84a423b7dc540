package rest

import (
	"context"
	"iter"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cubbyhq/cubby/internal/core/tasks"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front/httpapi"
	"github.com/cubbyhq/cubby/internal/front/sse"
	"github.com/cubbyhq/cubby/internal/task"
)

// TaskInput is what a coding agent is asked to do.
type TaskInput struct {
	Prompt         string            `json:"prompt"`
	Agent          string            `json:"agent,omitempty" doc:"opencode (default), claude, codex, gemini; custom with command."`
	Command        []string          `json:"command,omitempty" nullable:"false" doc:"Another agent: its program and arguments."`
	Protocol       string            `json:"protocol,omitempty" enum:"acp,json-lines" doc:"What command speaks: the Agent Client Protocol (default), or JSON Lines with the prompt as last argument."`
	Model          string            `json:"model,omitempty" doc:"As the agent names it; for opencode provider/model."`
	Cwd            string            `json:"cwd,omitempty" doc:"The project's directory, made when it is missing; default /workspace."`
	Env            map[string]string `json:"env,omitempty" doc:"For the agent alone, as keys of its provider; kept nowhere and never shown."`
	Secrets        []string          `json:"secrets,omitempty" nullable:"false" doc:"Further names of secrets of the operator for the agent's environment. Those of its provider it has anyway."`
	TimeoutSeconds *float64          `json:"timeout_seconds,omitempty" minimum:"0" maximum:"86400" doc:"Of the agent; default 600, 0: none."`
	Resume         string            `json:"resume,omitempty" doc:"The id of an earlier task of this sandbox and agent, whose session goes on."`
	Permissions    string            `json:"permissions,omitempty" enum:"allow,ask" doc:"What the agent asks leave for is allowed (default), or an event that waits for an answer."`
}

func (in *TaskInput) request() (tasks.Request, error) {
	limit, err := optionalSeconds("timeout_seconds", in.TimeoutSeconds)
	return tasks.Request{
		Prompt: in.Prompt, Agent: in.Agent, Command: in.Command, Protocol: task.Protocol(in.Protocol), Model: in.Model, Cwd: in.Cwd,
		Env: in.Env, Secrets: in.Secrets, Timeout: limit, Resume: in.Resume, Permissions: task.Permissions(in.Permissions),
	}, err
}

// Task is what a coding agent was asked to do, and how it ended.
type Task struct {
	ID           string    `json:"id"`
	SandboxID    string    `json:"sandbox_id"`
	Status       string    `json:"status" enum:"running,succeeded,failed,cancelled"`
	Agent        string    `json:"agent"`
	Model        string    `json:"model,omitempty"`
	Prompt       string    `json:"prompt" doc:"Its first 8 KiB."`
	PromptCut    bool      `json:"prompt_cut,omitempty"`
	Cwd          string    `json:"cwd"`
	Permissions  string    `json:"permissions" enum:"allow,ask"`
	Resume       string    `json:"resume,omitempty"`
	Seq          int64     `json:"seq" doc:"Of the exec that it is."`
	EventsURL    string    `json:"events_url"`
	CreatedAt    time.Time `json:"created_at"`
	*TaskOutcome           // of one that has ended
}

// TaskOutcome is how a task ended.
type TaskOutcome struct {
	FailureReason string     `json:"failure_reason,omitempty" enum:"agent_timeout,agent_error,cancelled,sandbox_unavailable,internal"`
	ErrorMessage  string     `json:"error_message,omitempty"`
	FilesChanged  []string   `json:"files_changed" nullable:"false" doc:"Against the checkpoint; the first 1,000."`
	FinalMessage  string     `json:"agent_message_final,omitempty"`
	BuildOK       bool       `json:"build_ok" doc:"False when a build was tried and failed, which does not make the task failed."`
	BuildMessage  string     `json:"build_error_message,omitempty"`
	Preview       string     `json:"preview_status_after,omitempty" enum:"ready,error,down"`
	PreviewError  string     `json:"preview_error_message,omitempty"`
	Checkpoint    string     `json:"checkpoint_id,omitempty" doc:"What restore goes back to."`
	CheckpointMsg string     `json:"checkpoint_message,omitempty" doc:"Why there is no checkpoint, or what it lacks."`
	Session       string     `json:"session_id,omitempty" doc:"The agent's."`
	StopReason    string     `json:"stop_reason,omitempty" doc:"The agent's word for why it stopped."`
	Push          *TaskPush  `json:"push,omitempty"`
	DurationMS    int64      `json:"duration_ms"`
	Tokens        TaskTokens `json:"tokens"`
	StartedAt     *time.Time `json:"started_at,omitempty"`
	FinishedAt    time.Time  `json:"finished_at"`
}

// TaskPush is how the push to the sandbox's git_remote_url went.
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
	Cost       float64 `json:"cost" doc:"US dollars; 0 where the agent does not say it."`
}

// TaskList is one page of tasks.
type TaskList struct {
	Tasks []Task `json:"tasks" nullable:"false" doc:"The newest first."`
	Next  int64  `json:"next_before,omitempty" doc:"before of the next page; absent on the last one."`
}

// TaskEvent is one event of a task.
type TaskEvent struct {
	ID   int64     `json:"id" doc:"From 0."`
	Type string    `json:"type" doc:"status, message, tool, build, plan, diff, thought, usage, permission, delta or push; done is the last."`
	Time time.Time `json:"time"`
	Data any       `json:"data"`
}

// TaskEventList is events of a task, so far.
type TaskEventList struct {
	Events []TaskEvent `json:"events" nullable:"false"`
	Next   int64       `json:"next" doc:"since of the next call."`
}

// TaskAnswer answers a question of an agent.
type TaskAnswer struct {
	Option string `json:"option" doc:"The id of one of the question's options."`
}

// TaskRestored is what a restore changed.
type TaskRestored struct {
	Restored bool     `json:"restored"`
	Files    []string `json:"files" nullable:"false" doc:"That are as they were before the task again; the first 1,000."`
}

func taskJSON(t tasks.Task) Task {
	out := Task{
		ID: string(t.ID), SandboxID: string(t.Sandbox), Status: string(t.State), Agent: t.Agent, Model: t.Model, Prompt: t.Prompt, PromptCut: t.Cut,
		Cwd: t.Cwd, Permissions: string(t.Permissions), Resume: t.Resume, Seq: t.Seq, CreatedAt: t.CreatedAt.UTC(),
		EventsURL: "/v1/sandboxes/" + string(t.Sandbox) + "/tasks/" + string(t.ID) + "/events",
	}
	if r := t.Result; r != nil {
		out.TaskOutcome = &TaskOutcome{
			FailureReason: r.FailureReason, ErrorMessage: r.ErrorMessage, FilesChanged: r.FilesChanged, FinalMessage: r.FinalMessage,
			BuildOK: r.BuildOK, BuildMessage: r.BuildMessage, Preview: r.PreviewStatus, PreviewError: r.PreviewMessage, Checkpoint: r.Checkpoint, CheckpointMsg: r.CheckpointMessage,
			Session: r.Session, StopReason: r.StopReason, DurationMS: r.DurationMS, Tokens: TaskTokens(r.Tokens),
			StartedAt: timeOrNil(r.StartedAt), FinishedAt: r.FinishedAt,
		}
		if r.Push != nil {
			push := TaskPush(*r.Push)
			out.Push = &push
		}
	}
	return out
}

// TaskPath is exported because huma sets it inside of other inputs.
type TaskPath struct {
	IDInput
	Task string `path:"task" maxLength:"64"`
}

type taskOutput struct{ Body Task }

func (d *door) taskRoutes() {
	const all = "/v1/sandboxes/{id}/tasks"
	const one = all + "/{task}"
	answer := func(t tasks.Task, err error) (*taskOutput, error) {
		if err != nil {
			return nil, err
		}
		return &taskOutput{taskJSON(t)}, nil
	}
	register(d, operation{
		id: "start-task", method: http.MethodPost, path: all, tag: "tasks", status: http.StatusAccepted, summary: "Ask a coding agent to do something in a sandbox",
		description: "A sandbox that sleeps is woken. The task goes on without the client; its events tell how. 409 task_in_progress while another one works in the same directory. " +
			"While it runs the sandbox may also reach the provider of the agent's model.",
	}, func(ctx context.Context, in *struct {
		IDInput
		Body TaskInput
	}) (*taskOutput, error) {
		req, err := in.Body.request()
		if err != nil {
			return nil, err
		}
		req.Cwd = d.within(ctx, in.ID, req.Cwd)
		return answer(d.Core.Tasks().Start(ctx, in.ID, req))
	})
	register(d, operation{
		id: "list-tasks", method: http.MethodGet, path: all, tag: "tasks", summary: "List the tasks of a sandbox, the newest first",
		description: "Also of one that was destroyed, for as long as histories are kept.",
	}, func(ctx context.Context, in *struct {
		IDInput
		Before int64 `query:"before" minimum:"0" doc:"next_before of the page before."`
		Limit  int   `query:"limit" minimum:"1" maximum:"100" default:"100"`
	}) (*struct{ Body TaskList }, error) {
		page, err := d.Core.Tasks().List(ctx, in.ID, in.Before, in.Limit)
		if err != nil {
			return nil, err
		}
		out := TaskList{Tasks: make([]Task, len(page.Tasks)), Next: page.Before}
		for i, t := range page.Tasks {
			out.Tasks[i] = taskJSON(t)
		}
		return &struct{ Body TaskList }{out}, nil
	})
	register(d, operation{
		id: "get-task", method: http.MethodGet, path: one, tag: "tasks", summary: "Get a task",
		description: "With wait_seconds the answer waits for its end.",
	}, func(ctx context.Context, in *struct {
		TaskPath
		Wait float64 `query:"wait_seconds" minimum:"0" maximum:"600"`
	}) (*taskOutput, error) {
		return answer(d.Core.Tasks().Wait(ctx, in.ID, in.Task, time.Duration(in.Wait*float64(time.Second))))
	})
	register(d, operation{
		id: "cancel-task", method: http.MethodPost, path: one + "/cancel", tag: "tasks", summary: "Cancel a task",
		description: "The agent is told, and killed with all that it started when it goes on for five seconds. The answer does not wait for that. A task that has ended stays as it is.",
	}, func(ctx context.Context, in *TaskPath) (*struct{ Body TaskCancelled }, error) {
		t, err := d.Core.Tasks().Cancel(ctx, in.ID, in.Task)
		if err != nil {
			return nil, err
		}
		return &struct{ Body TaskCancelled }{TaskCancelled{ID: string(t.ID), Status: "cancelling", TaskStatus: string(t.State)}}, nil
	})
	register(d, operation{
		id: "answer-task", method: http.MethodPost, path: one + "/permissions/{permission}", tag: "tasks", status: http.StatusNoContent,
		summary: "Answer a question of the agent", description: "The question is an event of type permission.",
	}, func(ctx context.Context, in *struct {
		TaskPath
		Permission string `path:"permission" maxLength:"256"`
		Body       TaskAnswer
	}) (*struct{}, error) {
		return nil, d.Core.Tasks().Answer(ctx, in.ID, in.Task, in.Permission, in.Body.Option)
	})
	register(d, operation{
		id: "restore-task", method: http.MethodPost, path: one + "/restore", tag: "tasks", summary: "Bring the files back to what they were before a task",
		description: "Later changes to them are lost too; files that the project's git ignores stay. Neither index nor branch of a repository change.",
	}, func(ctx context.Context, in *TaskPath) (*struct{ Body TaskRestored }, error) {
		files, err := d.Core.Tasks().Restore(ctx, in.ID, in.Task)
		if err != nil {
			return nil, err
		}
		return &struct{ Body TaskRestored }{TaskRestored{Restored: true, Files: append([]string{}, files...)}}, nil
	})
	list := orEvents(httpapi.Media("application/json", d.Schema(TaskEventList{}, "TaskEventList")))
	register(d, operation{
		id: "list-task-events", method: http.MethodGet, path: one + "/events", tag: "tasks", summary: "Follow the events of a task",
		description: "Server-Sent Events until the task has ended, with done as the last one; resume by Last-Event-ID (from the next) or since (from that one, wins). " +
			"With Accept: application/json the events so far, at most limit.",
		responses: map[string]*huma.Response{"200": {Description: "Events", Content: list}},
	}, d.taskEvents)
}

// TaskCancelled is the answer to a cancel.
type TaskCancelled struct {
	ID         string `json:"id"`
	Status     string `json:"status" enum:"cancelling"`
	TaskStatus string `json:"task_status" enum:"running,succeeded,failed,cancelled" doc:"How the task stands."`
}

type taskEventsInput struct {
	exchange
	TaskPath
	Since       string `query:"since" doc:"The id of the first event."`
	LastEventID string `header:"Last-Event-ID" doc:"The id of the last event that the client has."`
	Limit       int    `query:"limit" minimum:"1" maximum:"1000" default:"1000" doc:"Of JSON."`
}

// from is the id of the first event that is wanted.
func (in *taskEventsInput) from() (int64, error) {
	for _, f := range []struct {
		name, text string
		add        int64
	}{{"since", in.Since, 0}, {"Last-Event-ID", in.LastEventID, 1}} {
		if f.text == "" {
			continue
		}
		n, err := strconv.ParseInt(f.text, 10, 64)
		if err != nil || n < 0 {
			return 0, errs.E(errs.Invalid, "%s: not the id of an event", f.name)
		}
		return n + f.add, nil
	}
	return 0, nil
}

func (d *door) taskEvents(ctx context.Context, in *taskEventsInput) (*streamed, error) {
	from, err := in.from()
	if err != nil {
		return nil, err
	}
	if err := d.Core.Tasks().CheckEvents(ctx, in.ID, in.Task); err != nil {
		return nil, err
	}
	accept := in.r.Header.Get("Accept")
	if httpapi.Accepts(accept, "application/json") && !wantsEvents(accept) {
		return d.listTaskEvents(ctx, in, from)
	}
	if in.head() {
		return &streamed{Body: nothing(sse.MediaType)}, nil
	}
	return stream(func() {
		s, err := sse.New(in.w, http.StatusOK)
		if err != nil {
			return
		}
		source := func(ctx context.Context) iter.Seq2[tasks.Event, error] {
			return d.Core.Tasks().Events(ctx, in.ID, in.Task, from, true)
		}
		err = sse.Pump(ctx, d.Life.Done(), source, sse.PingEvery, func(e tasks.Event) error {
			return s.Send(e.ID, e.Type, e.Data)
		}, s.Ping)
		d.failStream(ctx, s, err)
	}), nil
}
