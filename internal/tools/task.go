package tools

import (
	"context"
	"slices"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/cubbyhq/cubby/internal/core/tasks"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/task"
)

// A task takes longer than clients wait for a tool, so start_task returns at once,
// as start_command does, and get_task waits for a part of it. A call that is given up
// leaves the task running.

const (
	defaultTask = 600
	longestTask = 24 * 60 * 60
)

func taskID() *jsonschema.Schema { return filled("What start_task returned.") }

type startedTask struct {
	Success bool   `json:"success"`
	TaskID  string `json:"task_id" jsonschema:"what the other tools of tasks are given"`
	Again   string `json:"session_restarted,omitempty" jsonschema:"why the session was started again, and what it has lost"`
}

func (s *Set) startTaskTool() Tool {
	return Tool{
		Name: "start_task", Title: "Give a coding agent a task",
		Description: "Starts a coding agent on a directory of the session and returns at once; get_task follows it. The session needs the agents " +
			"(create_session with agents), and the operator has set the keys of their models. A checkpoint is made before, for restore_task.",
		Input: object([]string{"session_id", "prompt"}, map[string]*jsonschema.Schema{
			"session_id": sessionID(),
			"prompt":     filled("What the agent shall do."),
			"agent":      {Type: "string", Enum: anyOfThem(agentNames()), Default: []byte(`"` + task.DefaultAgent + `"`)},
			"model":      text("As the agent names it."),
			"cwd":        text("The project's directory; default /workspace."),
			"resume":     text("The task_id of an earlier task of the agent, whose conversation goes on."),
			"timeout":    number(defaultTask, 0, longestTask, "Seconds that the agent may work; 0 is no limit."),
			"ask":        {Type: "boolean", Description: "Wait for answer_task where the agent asks leave, instead of allowing everything."},
		}),
		Output: shape[startedTask](), Destructive: true, Open: true, run: startTask,
	}
}

func startTask(ctx context.Context, c *call) (Answer, error) {
	c.forSession()
	req := tasks.Request{
		Prompt: c.text("prompt"), Agent: c.oneOf("agent", agentNames()...), Model: c.textOr("model", ""), Cwd: c.textOr("cwd", ""),
		Resume: c.textOr("resume", ""),
	}
	limit := time.Duration(c.number("timeout", defaultTask, 0, longestTask)) * time.Second
	req.Timeout = &limit
	if c.truth("ask") {
		req.Permissions = task.Ask
	}
	if err := c.ready(ctx); err != nil {
		return Answer{}, err
	}
	if err := c.running(ctx); err != nil {
		return Answer{}, err
	}
	t, err := c.core.Tasks().Start(ctx, c.id, req)
	if err != nil {
		return Answer{}, err
	}
	again, err := c.restarted(ctx)
	return Answer{Value: startedTask{true, string(t.ID), again}}, err
}

// agentNames are the agents that are known by a name, the default first.
func agentNames() []string {
	others := slices.DeleteFunc(task.Names(), func(name string) bool { return name == task.DefaultAgent })
	return append([]string{task.DefaultAgent}, others...)
}

type taskState struct {
	Success    bool        `json:"success"`
	Status     string      `json:"status" jsonschema:"running, succeeded, failed or cancelled"`
	Reason     string      `json:"reason,omitempty" jsonschema:"why it failed"`
	Error      string      `json:"error_message,omitempty"`
	Events     []taskEvent `json:"events" jsonschema:"the newest from since on"`
	Omitted    int         `json:"omitted,omitempty" jsonschema:"how many older ones are left out"`
	Next       int64       `json:"next" jsonschema:"since of the next call"`
	Final      string      `json:"final_message,omitempty" jsonschema:"the agent's, at the end"`
	Files      []string    `json:"files_changed,omitempty" jsonschema:"at most 200"`
	Build      string      `json:"build_error,omitempty" jsonschema:"of a build that was tried and failed"`
	Preview    string      `json:"preview,omitempty" jsonschema:"what the application's port answered: ready, error or down"`
	Checkpoint bool        `json:"checkpoint,omitempty" jsonschema:"whether restore_task can undo it"`
	Cost       float64     `json:"cost_usd,omitempty"`
}

type taskEvent struct {
	Type string `json:"type" jsonschema:"message, thought, tool, plan, diff, build, push, permission (a question for answer_task), …"`
	Text string `json:"text"`
}

func (s *Set) getTaskTool() Tool {
	return Tool{
		Name: "get_task", Title: "Follow a task",
		Description: "Returns what a task's agent said and did since an event, and how the task ended.",
		Input: object([]string{"session_id", "task_id"}, map[string]*jsonschema.Schema{
			"session_id": sessionID(),
			"task_id":    taskID(),
			"since":      number(0, 0, 1<<53, "next of the call before."),
			"wait":       number(0, 0, longestWait, "Seconds to wait for the end of the task, or for a question."),
		}),
		Output: shape[taskState](), ReadOnly: true, Idempotent: true, run: getTask,
	}
}

func getTask(ctx context.Context, c *call) (Answer, error) {
	c.forSession()
	of := c.text("task_id")
	since := c.number("since", 0, 0, 1<<53)
	wait := time.Duration(c.number("wait", 0, 0, longestWait)) * time.Second
	if err := c.readyIfThere(ctx); err != nil {
		return Answer{}, err
	}
	if _, err := c.session(ctx); err != nil {
		return Answer{}, err
	}
	id := c.id
	if _, err := c.core.Tasks().Get(ctx, id, of); err != nil {
		return Answer{}, err
	}
	said, err := c.newest(ctx, of, since, wait)
	if err != nil {
		return Answer{}, err
	}
	// What ends meanwhile has its last events in the next answer.
	t, err := c.core.Tasks().Get(ctx, id, of)
	if err != nil {
		return Answer{}, err
	}
	out := taskState{Success: true, Status: string(t.State), Events: said.events, Omitted: said.omitted, Next: max(since, said.next)}
	if r := t.Result; r != nil {
		out.Reason, out.Error, out.Preview, out.Checkpoint, out.Cost = r.FailureReason, r.ErrorMessage, r.PreviewStatus, r.Checkpoint != "", r.Tokens.Cost
		out.Final, _ = Bounded(r.FinalMessage, maxTaskAnswer/2)
		out.Files = someNames(r.FilesChanged)
		if !r.BuildOK {
			out.Build = r.BuildMessage
		}
	}
	return Answer{Value: out}, nil
}

// newest reads the events of a task from an id on, and waits for the end or for a
// question of the agent.
func (c *call) newest(ctx context.Context, of string, since int64, wait time.Duration) (newestEvents, error) {
	said := newestEvents{events: []taskEvent{}} // an empty list is not null
	waiting, cancel := ctx, context.CancelFunc(func() {})
	if wait > 0 {
		waiting, cancel = context.WithTimeout(ctx, wait)
		defer context.AfterFunc(c.set.life, cancel)()
	}
	defer cancel()
	tell := func(string) {}
	if wait > 0 {
		var done func()
		tell, done = c.watch(waiting)
		defer done()
	}
	for e, err := range c.core.Tasks().Events(waiting, c.id, of, since, wait > 0) {
		switch {
		case err != nil && waiting.Err() != nil && ctx.Err() == nil:
			return said, nil // the time is over, or the daemon stops
		case err != nil:
			return said, err
		}
		question := said.add(e)
		if n := len(said.events); n > 0 {
			tell(said.events[n-1].Text)
		}
		if question && wait > 0 {
			break
		}
	}
	return said, nil
}

type doneTask struct {
	Success bool   `json:"success"`
	Status  string `json:"status" jsonschema:"of the task, which may take some seconds to end"`
}

func (s *Set) cancelTaskTool() Tool {
	return Tool{
		Name: "cancel_task", Title: "Cancel a task",
		Description: "Asks the agent to end, which is killed when it goes on. A task that has ended stays as it is.",
		Input:       object([]string{"session_id", "task_id"}, map[string]*jsonschema.Schema{"session_id": sessionID(), "task_id": taskID()}),
		Output:      shape[doneTask](), Destructive: true, Idempotent: true,
		run: func(ctx context.Context, c *call) (Answer, error) {
			of, err := c.ofTask(ctx)
			if err != nil {
				return Answer{}, err
			}
			t, err := c.core.Tasks().Cancel(ctx, c.id, of)
			return Answer{Value: doneTask{err == nil, string(t.State)}}, err
		},
	}
}

type answeredTask struct {
	Success bool `json:"success"`
}

func (s *Set) answerTaskTool() Tool {
	return Tool{
		Name: "answer_task", Title: "Answer a question of a task's agent",
		Description: "Chooses an option of a permission event.",
		Input: object([]string{"session_id", "task_id", "question", "option"}, map[string]*jsonschema.Schema{
			"session_id": sessionID(), "task_id": taskID(), "question": filled("Its id."), "option": filled("The id of one of its options."),
		}),
		Output: shape[answeredTask](),
		run: func(ctx context.Context, c *call) (Answer, error) {
			question, option := c.text("question"), c.text("option")
			of, err := c.ofTask(ctx)
			if err != nil {
				return Answer{}, err
			}
			err = c.core.Tasks().Answer(ctx, c.id, of, question, option)
			return Answer{Value: answeredTask{err == nil}}, err
		},
	}
}

type restoredTask struct {
	Success bool     `json:"success"`
	Files   []string `json:"files" jsonschema:"that are as they were before the task"`
}

func (s *Set) restoreTaskTool() Tool {
	return Tool{
		Name: "restore_task", Title: "Undo a task",
		Description: "Brings the files of a task's directory back to what they were before it; later changes to them are lost too.",
		Input:       object([]string{"session_id", "task_id"}, map[string]*jsonschema.Schema{"session_id": sessionID(), "task_id": taskID()}),
		Output:      shape[restoredTask](), Destructive: true, Idempotent: true,
		run: func(ctx context.Context, c *call) (Answer, error) {
			of, err := c.ofTask(ctx)
			if err != nil {
				return Answer{}, err
			}
			if _, err := c.core.Tasks().Get(ctx, c.id, of); err != nil {
				return Answer{}, err
			}
			if err := c.running(ctx); err != nil {
				return Answer{}, err
			}
			files, err := c.core.Tasks().Restore(ctx, c.id, of)
			return Answer{Value: restoredTask{err == nil, someNames(files)}}, err
		},
	}
}

// ofTask reads which task is meant; the session is one of the conversation.
func (c *call) ofTask(ctx context.Context) (of string, err error) {
	c.forSession()
	of = c.text("task_id")
	if err := c.readyIfThere(ctx); err != nil {
		return "", err
	}
	_, err = c.session(ctx)
	return of, err
}

// agentsImage is the image with the programs of coding agents.
const agentsImage = "dev"

// noAgents says what is to be done about a missing image.
func noAgents(err error) error {
	if errs.KindOf(err) != errs.NotFound {
		return err
	}
	return errs.E(errs.Unsupported, "this host has no image with coding agents").Hint("the operator makes it: cubby image build %s", agentsImage)
}
