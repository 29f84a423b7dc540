package tasks

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store"
	"github.com/cubbyhq/cubby/internal/task"
)

// Task is what a coding agent was asked to do, and how that stands.
type Task struct {
	ID      sandbox.UID
	Sandbox sandbox.ID
	Seq     int64 // of the exec that it is
	State   task.State
	// Prompt is the beginning of what was asked; Cut says that there is more.
	Prompt      string
	Cut         bool
	Agent       string
	Model       string
	Cwd         string
	Resume      string // the task whose session it goes on with
	Permissions task.Permissions
	Actor       string
	CreatedAt   time.Time
	Result      *task.Result // nil until it has ended
}

func detailOf(x sandbox.Exec) detail {
	var d detail
	// What this package wrote can be read; a field that was cut can not.
	_ = json.Unmarshal(x.Spec.Detail, &d)
	return d
}

func taskOf(b sandbox.Sandbox, x sandbox.Exec) Task {
	d := detailOf(x)
	t := Task{
		ID: x.UID, Sandbox: b.ID, Seq: x.Seq, State: task.Running, Prompt: d.Prompt, Cut: d.Cut, Agent: d.Agent, Model: d.Model,
		Cwd: d.Cwd, Resume: d.Resume, Permissions: d.Permissions, Actor: x.Actor, CreatedAt: x.CreatedAt,
	}
	if x.Status.Finished() {
		r := resultOf(x)
		t.State, t.Result = r.Status, &r
	}
	return t
}

func errNoTask() error { return errs.E(errs.NotFound, "no such task") }

// find returns a task's exec as it stands, and the sandbox that it belongs to, which
// may be destroyed.
func (t *Tasks) find(ctx context.Context, id, taskID string) (sandbox.Sandbox, sandbox.Exec, error) {
	b, err := t.cfg.Scope.FindHistory(ctx, id)
	if err != nil {
		return sandbox.Sandbox{}, sandbox.Exec{}, err
	}
	x, err := t.cfg.Store.ExecByUID(ctx, b.UID, sandbox.UID(taskID))
	if errs.KindOf(err) == errs.NotFound || err == nil && x.Spec.Kind != task.Kind {
		return sandbox.Sandbox{}, sandbox.Exec{}, errNoTask()
	}
	if err != nil {
		return sandbox.Sandbox{}, sandbox.Exec{}, err
	}
	x, err = t.cfg.Live.Execs().AsItStands(ctx, x)
	return b, x, err
}

// Get returns a task, also one of a sandbox that was destroyed, for as long as
// histories are kept.
func (t *Tasks) Get(ctx context.Context, id, taskID string) (Task, error) {
	b, x, err := t.find(ctx, id, taskID)
	if err != nil {
		return Task{}, err
	}
	return taskOf(b, x), nil
}

// Wait returns a task when it has ended, or when timeout is over; a negative one
// waits for ever.
func (t *Tasks) Wait(ctx context.Context, id, taskID string, timeout time.Duration) (Task, error) {
	b, x, err := t.find(ctx, id, taskID)
	if err != nil || x.Status.Finished() {
		return taskOf(b, x), err
	}
	if x, err = t.cfg.Live.Execs().Wait(ctx, id, x.Seq, timeout); err != nil {
		return Task{}, err
	}
	return taskOf(b, x), nil
}

// Page is some tasks, the newest first. Before, unless 0, gives the next page.
type Page struct {
	Tasks  []Task
	Before int64
}

// MaxPage is the most tasks of a page.
const MaxPage = 100

// List lists the tasks of a sandbox whose seq is below before; 0 begins with the
// newest.
func (t *Tasks) List(ctx context.Context, id string, before int64, limit int) (Page, error) {
	b, err := t.cfg.Scope.FindHistory(ctx, id)
	if err != nil {
		return Page{}, err
	}
	if limit <= 0 || limit > MaxPage {
		limit = MaxPage
	}
	done, err := t.cfg.Budget.Turn(ctx)
	if err != nil {
		return Page{}, err
	}
	defer done()
	q := store.ExecQuery{Kind: task.Kind, Newest: true, BeforeSeq: before, Limit: limit, Brief: true}
	list, err := t.cfg.Store.Execs(ctx, b.UID, q)
	if err != nil || len(list) == 0 {
		return Page{Tasks: []Task{}}, err
	}
	// It may be short because its tasks are long.
	last := list[len(list)-1].Seq
	q.BeforeSeq, q.Limit = last, 1
	more, err := t.cfg.Store.Execs(ctx, b.UID, q)
	if err != nil {
		return Page{}, err
	}
	p := Page{Tasks: make([]Task, 0, len(list))}
	var bytes int64
	if len(more) > 0 {
		p.Before = last
	}
	for _, x := range list {
		if x, err = t.cfg.Live.Execs().AsItStands(ctx, x); err != nil {
			return Page{}, err
		}
		bytes += x.Bytes()
		p.Tasks = append(p.Tasks, taskOf(b, x))
	}
	return p, t.cfg.Budget.ChargeList(ctx, bytes)
}

// Active is the task of a sandbox that runs, the oldest if there are several, and
// where it stands; "" is none.
func (t *Tasks) Active(ctx context.Context, b sandbox.Sandbox) (id sandbox.UID, phase task.Phase, err error) {
	list, err := t.cfg.Live.Execs().Unfinished(ctx, b.UID, task.Kind)
	if err != nil || len(list) == 0 {
		return "", "", err
	}
	id = list[0].UID
	t.mu.Lock()
	defer t.mu.Unlock()
	return id, cmp.Or(t.phases[id], task.PhaseStarting), nil
}

// sessionOf is the session of an earlier task of the same agent.
func (t *Tasks) sessionOf(ctx context.Context, b sandbox.Sandbox, taskID, agent string) (string, error) {
	_, x, err := t.find(ctx, string(b.ID), taskID)
	if errs.KindOf(err) == errs.NotFound {
		return "", errs.E(errs.Invalid, "resume: this sandbox has no such task")
	}
	if err != nil {
		return "", err
	}
	switch was := detailOf(x); {
	case !x.Status.Finished():
		return "", errs.E(errs.TaskInProgress, "resume: task %s has not ended", x.UID).Hint("wait for its end, or cancel it")
	case was.Agent != agent:
		return "", errs.E(errs.Invalid, "resume: that task was %s's", was.Agent).Hint("a session can be gone on with by the agent that began it")
	}
	session := resultOf(x).Session
	if session == "" {
		return "", errs.E(errs.Invalid, "resume: that task left no session")
	}
	return session, nil
}
