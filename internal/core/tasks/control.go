package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/cubbyhq/cubby/internal/auth"
	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/task"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// cancelTime is what a supervisor gets to end its agent and to say what had changed
// before everything of the task is killed.
const cancelTime = 30 * time.Second

// tellTime is how long a supervisor may take to read a line.
const tellTime = 5 * time.Second

// Cancel ends a task: the agent is told, and killed with all that it started when it
// has not ended after five seconds. When the supervisor of the task does not do that,
// all of it is killed later. It returns the task as it stands; one that has
// ended stays as it is.
func (t *Tasks) Cancel(ctx context.Context, id, taskID string) (Task, error) {
	b, x, err := t.find(ctx, id, taskID)
	if err != nil || x.Status.Finished() {
		return taskOf(b, x), err
	}
	// It is carried out even if the caller goes away. A supervisor that does not read is
	// killed later.
	telling, cancel := context.WithTimeout(context.WithoutCancel(ctx), tellTime)
	defer cancel()
	err = t.tell(telling, id, x.Seq, task.Reply{Cancel: true})
	if err != nil && !errors.Is(err, errs.WrongState) && telling.Err() == nil {
		return Task{}, err
	}
	// Only now, for whoever is told of an error asks again.
	at := t.cfg.Now()
	if err := t.cfg.Store.CancelExec(context.WithoutCancel(ctx), x.Box, x.Seq, at); err != nil {
		return Task{}, err
	}
	t.killLater(auth.From(ctx), id, x, at)
	return t.Get(ctx, id, taskID)
}

// KillCancelled sees to the tasks whose cancel an earlier daemon answered and did not
// see the end of: as that one would have, it kills those that do not end.
func (t *Tasks) KillCancelled(ctx context.Context) {
	for pauses := gate.NewPauses(); ctx.Err() == nil; gate.Pause(ctx, pauses) {
		err := t.takeUpCancels(ctx)
		if err == nil {
			return
		}
		t.cfg.Log.Error("look for tasks that were cancelled; it is tried again", telemetry.KeyErr, err)
	}
}

func (t *Tasks) takeUpCancels(ctx context.Context) error {
	list, err := t.cfg.Store.CancelledExecs(ctx)
	if err != nil {
		return err
	}
	for _, x := range list {
		if x.Spec.Kind != task.Kind {
			continue
		}
		b, err := t.cfg.Store.SandboxByUID(ctx, x.Box)
		if err != nil {
			return err
		}
		t.killLater(auth.Principal{Name: x.Actor, Tenant: b.Tenant}, string(b.ID), x, x.CancelledAt)
	}
	return nil
}

// killLater kills a task that has not ended [cancelTime] after it was cancelled, once
// however often that was.
func (t *Tasks) killLater(who auth.Principal, id string, x sandbox.Exec, cancelled time.Time) {
	wait := max(0, cancelTime-t.cfg.Now().Sub(cancelled))
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cancelled[x.UID] {
		return
	}
	t.cancelled[x.UID] = t.cfg.Gate.Spawn(func(ctx context.Context) {
		t.killAfter(auth.WithPrincipal(ctx, who), id, x, wait)
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.cancelled, x.UID)
	})
}

// killAfter kills a task that has not ended after some time, until it has or ctx ends.
func (t *Tasks) killAfter(ctx context.Context, id string, x sandbox.Exec, wait time.Duration) {
	killUntilEnded(ctx, wait, killPause, func(wait time.Duration) bool {
		// By its own id: another sandbox may have this one's by now.
		now, err := t.Wait(ctx, id, string(x.UID), wait)
		return errors.Is(err, errs.NotFound) || err == nil && now.Result != nil
	}, func() error {
		_, err := t.cfg.Live.Execs().Cancel(ctx, id, x.Seq)
		return err
	})
}

// killPause is the time between two attempts to kill a task: each may wake a sandbox.
const killPause = 5 * time.Second

// killUntilEnded calls kill after some time until ended reports true or ctx ends. Ended
// waits for so long at most; both may fail while a sandbox or the store is away.
func killUntilEnded(ctx context.Context, wait, pause time.Duration, ended func(time.Duration) bool, kill func() error) {
	for deadline := time.Now().Add(wait); ctx.Err() == nil; gate.Sleep(ctx, pause) {
		if ended(max(0, time.Until(deadline))) {
			return
		}
		if !time.Now().Before(deadline) && kill() == nil && ended(0) {
			return
		}
	}
}

// Answer answers a question of the agent, and returns when the agent has taken this
// answer. NotFound when it did not ask this, WrongState when it does not wait any more
// or takes another answer, Invalid for an option that it did not give, Unavailable when
// it takes none within [tellTime].
func (t *Tasks) Answer(ctx context.Context, id, taskID, question, option string) error {
	_, x, err := t.find(ctx, id, taskID)
	if err != nil {
		return err
	}
	asked, err := t.permission(ctx, x, question, false)
	switch {
	case err != nil:
		return err
	case asked == nil:
		return errs.E(errs.NotFound, "the task did not ask this")
	case asked.Status != questionPending && asked.Outcome == option:
		return nil // as whoever repeats an answer wants it
	case x.Status.Finished() || asked.Status != questionPending:
		return errs.E(errs.WrongState, "the question waits for no answer any more")
	case !slices.ContainsFunc(asked.Options, func(o task.Option) bool { return o.ID == option }):
		return errs.E(errs.Invalid, "option: not one of the question's").Hint("they are in the permission event")
	}
	if err := t.tell(ctx, id, x.Seq, task.Reply{Permission: &task.Answer{ID: question, Option: option}}); err != nil {
		return err
	}
	// The supervisor drops an answer that comes after another one, or after the end of
	// the agent's time.
	waiting, cancel := context.WithTimeout(ctx, tellTime)
	defer cancel()
	asked, err = t.permission(waiting, x, question, true)
	if err != nil && (ctx.Err() != nil || waiting.Err() == nil) {
		return err
	}
	if _, x, err = t.find(ctx, id, taskID); err != nil {
		return err
	}
	switch resolved := asked != nil && asked.Status != questionPending; {
	case resolved && asked.Outcome == option:
		return nil
	case resolved || x.Status.Finished():
		return errs.E(errs.WrongState, "the question waits for no answer any more").Hint("its outcome is in the permission event")
	}
	return errs.E(errs.Unavailable, "the task has not taken the answer yet").RetryAfter(time.Second)
}

// questionPending is the status of a question that waits for its answer.
const questionPending = "pending"

// permission is the last record of a question, nil when there is none. With follow it
// waits for the one that says the outcome, until the task or ctx ends: then it returns
// the other with an error.
func (t *Tasks) permission(ctx context.Context, x sandbox.Exec, question string, follow bool) (last *task.Permission, err error) {
	for r, err := range records(t.cfg.Journals.Read(ctx, x.Box, x.Seq, 0, follow)) {
		if err != nil {
			return last, err
		}
		var p task.Permission
		if r.Type != task.PermissionType || json.Unmarshal(r.Data, &p) != nil || p.ID != question {
			continue
		}
		if last = &p; follow && p.Status != questionPending {
			break
		}
	}
	return last, nil
}

// tell writes a line to a supervisor.
func (t *Tasks) tell(ctx context.Context, id string, seq int64, r task.Reply) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = t.cfg.Live.Execs().WriteStdin(ctx, id, seq, -1, append(line, '\n'), false)
	return err
}

// Restore brings the files of a task's directory back to what they were before it,
// and returns the names of those that changed: later changes of others too are
// lost. Neither index nor branch of a repository change, and what the project's git
// ignores stays. TaskInProgress while a task works there.
func (t *Tasks) Restore(ctx context.Context, id, taskID string) ([]string, error) {
	leave, err := t.cfg.Gate.Enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	b, x, err := t.find(ctx, id, taskID)
	if err != nil {
		return nil, err
	}
	asked := detailOf(x)
	if !x.Status.Finished() {
		return nil, errs.E(errs.TaskInProgress, "the task has not ended").Hint("cancel it first")
	}
	checkpoint := resultOf(x).Checkpoint
	if checkpoint == "" {
		return nil, errs.E(errs.Unsupported, "the task has no checkpoint").Hint("checkpoints need git in the image")
	}
	unlock, err := t.dirs.Lock(ctx, string(b.UID)+" "+asked.Cwd)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := t.refuseSecond(ctx, b, asked.Cwd); err != nil {
		return nil, err
	}
	text, err := json.Marshal(detail{Cwd: asked.Cwd, Resume: string(x.UID)})
	if err != nil {
		return nil, err
	}
	limit := restoreTime
	done, err := t.cfg.Live.Execs().Run(ctx, id, sandbox.ExecSpec{
		Kind: task.KindRestore, Detail: text, Argv: append(slices.Clone(t.cfg.Program), task.RestoreVerb, asked.Cwd, checkpoint), Cwd: "/", Timeout: &limit,
		Program: sandbox.AgentTasks,
	}, -1, live.OutputCaps{})
	if err != nil {
		return nil, err
	}
	var r task.Restored
	if done.Exec.Result == nil || json.Unmarshal(done.Exec.Result, &r) != nil {
		return nil, errs.E(errs.Unavailable, "the files could not be restored").
			Hint("exec %d of the sandbox says why on its stderr", done.Exec.Seq)
	}
	return r.Files, nil
}

const restoreTime = 5 * time.Minute

// restored is the result of a restoring: nothing when it failed.
func (t *Tasks) restored(ctx context.Context, x sandbox.Exec) (json.RawMessage, error) {
	if x.Exit.Code == nil || *x.Exit.Code != 0 {
		return nil, nil
	}
	var said task.Restored
	for r, err := range records(t.cfg.Journals.Read(ctx, x.Box, x.Seq, 0, false)) {
		if err != nil {
			return nil, err
		}
		if r.Type == task.RestoredType && json.Unmarshal(r.Data, &said) == nil {
			said.Files = append([]string{}, said.Files[:min(len(said.Files), maxFiles)]...)
			return json.Marshal(said)
		}
	}
	return nil, nil
}
