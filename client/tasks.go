package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/cubbyhq/cubby/client/task"
)

// Tasks gives coding agents work in a sandbox. Make it with [Client.Tasks].
type Tasks struct {
	box string
	c   *Client
}

// Tasks returns access to the tasks of a sandbox. It asks nobody whether the
// sandbox exists.
func (c *Client) Tasks(id string) *Tasks { return &Tasks{id, c} }

func (t *Tasks) path(elems ...string) string {
	return sandboxPath(t.box, append([]string{"tasks"}, elems...)...)
}

// Start begins a task and returns it at once; it goes on without the caller. A
// sandbox that sleeps is woken. [TaskInProgress] while another task works in the
// same directory.
func (t *Tasks) Start(ctx context.Context, o task.Options) (task.Task, error) {
	var got task.Task
	return got, t.c.do(ctx, call{method: http.MethodPost, path: t.path(), json: o}, &got)
}

// Run begins a task and returns it when it has ended. One that fails is no error:
// see [task.Task.Err].
func (t *Tasks) Run(ctx context.Context, o task.Options) (task.Task, error) {
	start := func(ctx context.Context) (taskHandle, error) {
		got, err := t.Start(ctx, o)
		return taskHandle{t, got.ID}, err
	}
	return attended(ctx, t.c, o.KillOnCancel, start, func(h taskHandle) (task.Task, error) {
		if o.OnEvent == nil {
			return t.Wait(ctx, h.id)
		}
		for e, err := range t.Events(ctx, h.id, 0) {
			if err != nil {
				return task.Task{}, err
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
func (t *Tasks) Get(ctx context.Context, id string) (task.Task, error) { return t.get(ctx, id, 0) }

func (t *Tasks) get(ctx context.Context, id string, wait time.Duration) (task.Task, error) {
	q := url.Values{}
	if wait > 0 {
		q.Set("wait_seconds", strconv.Itoa(int(wait.Seconds())))
	}
	var got task.Task
	return got, t.c.do(ctx, call{method: http.MethodGet, path: t.path(id), query: q}, &got)
}

// Wait returns a task when it has ended. When ctx ends the task goes on. It outlives
// restarts of the daemon.
func (t *Tasks) Wait(ctx context.Context, id string) (task.Task, error) {
	return patient(ctx, t.c.newBackoff(), func() (task.Task, error) { return t.get(ctx, id, waitSlice) })
}

// List iterates over the tasks of a sandbox, the newest first, fetching page by page.
// After an error the iteration ends.
func (t *Tasks) List(ctx context.Context) iter.Seq2[task.Task, error] {
	return func(yield func(task.Task, error) bool) {
		q := url.Values{}
		for {
			var page struct {
				Tasks []task.Task `json:"tasks"`
				Next  int64       `json:"next_before"`
			}
			if err := t.c.do(ctx, call{method: http.MethodGet, path: t.path(), query: q}, &page); err != nil {
				yield(task.Task{}, err)
				return
			}
			for _, one := range page.Tasks {
				if !yield(one, nil) {
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
func (t *Tasks) Cancel(ctx context.Context, id string) (task.Status, error) {
	var answer struct {
		Status task.Status `json:"task_status"`
	}
	err := t.c.do(ctx, call{method: http.MethodPost, path: t.path(id, "cancel")}, &answer)
	return answer.Status, err
}

// Answer answers a question of the agent, an event of type "permission", with the id
// of one of its options. [WrongState] when it waits for no answer any more.
func (t *Tasks) Answer(ctx context.Context, id, question, option string) error {
	body := map[string]string{"option": option}
	return t.c.do(ctx, call{method: http.MethodPost, path: t.path(id, "permissions", question), json: body}, nil)
}

// Restore brings the files of a task's directory back to what they were before it,
// and returns the names of those that changed, at most 1,000. Later changes to them
// are lost too; files that the project's git ignores stay.
func (t *Tasks) Restore(ctx context.Context, id string) ([]string, error) {
	var answer struct {
		Files []string `json:"files"`
	}
	err := t.c.do(ctx, call{method: http.MethodPost, path: t.path(id, "restore")}, &answer)
	return answer.Files, err
}
