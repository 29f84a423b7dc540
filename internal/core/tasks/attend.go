package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"strconv"
	"time"

	"github.com/cubbyhq/cubby/internal/auth"
	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/core/program"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/git"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/task"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

const (
	// actTime bounds an act that a supervisor asked for; it waits no longer.
	actTime = 110 * time.Second
	// silentTime is what a supervisor may take to print its first record: that of a
	// sandbox that runs since before there were tasks never does.
	silentTime = time.Minute
	// maxActs bounds how often one asks: once each is what it needs.
	maxActs = 8
	// pushBranch is where tasks are pushed to, as sandboxed's.
	pushBranch = "main"
	// The operator's secrets for the push.
	gitToken = "GIT_TOKEN"    //nolint:gosec // the name of a secret
	gitUser  = "GIT_USERNAME" //nolint:gosec // the name of a secret
)

// Attend is beside a task for as long as it runs: the sandbox may reach the
// provider, and what the supervisor asks for is done. What an earlier daemon was
// asked and did not answer is done now: the supervisor prints nothing while it waits.
func (t *Tasks) Attend(ctx context.Context, r *live.Run, e *live.Exec) {
	x := e.Snapshot()
	if x.Spec.Kind != task.Kind {
		return
	}
	ctx, cancel := context.WithCancel(auth.WithPrincipal(ctx, auth.Principal{Name: x.Actor}))
	defer cancel()
	asked := detailOf(x)
	for _, provider := range asked.Providers {
		defer t.cfg.Live.Egress().Lend(r, provider)()
	}
	defer t.setPhase(x.UID, "")
	silent := time.AfterFunc(silentTime, func() {
		t.cfg.Gate.Spawn(func(context.Context) { t.killAfter(ctx, string(r.ID), x, 0) })
	})
	defer silent.Stop()
	before := t.count(ctx, x)
	seen, acted := 0, 0
	for record, err := range records(t.cfg.Journals.Read(ctx, x.Box, x.Seq, 0, true)) {
		if err != nil {
			break // it ends, or goes on with the next run
		}
		silent.Stop()
		seen++
		var status task.Status
		if record.Type == task.StatusType && json.Unmarshal(record.Data, &status) == nil {
			t.setPhase(x.UID, status.Phase)
		}
		var want task.Request
		if record.Type != task.RequestType || seen < before || json.Unmarshal(record.Data, &want) != nil {
			continue
		}
		if acted++; acted > maxActs {
			continue
		}
		if err := t.act(ctx, r, x, want); err != nil && ctx.Err() == nil && !errors.Is(err, errs.WrongState) {
			t.cfg.Log.Warn("do what a task asked for", telemetry.KeyUID, x.Box, telemetry.KeySeq, x.Seq, telemetry.KeyErr, err)
		}
	}
	// What is lent is given back when the task has ended, not when its output has.
	select {
	case <-e.Done():
	case <-ctx.Done():
	}
}

// count is how many records a task has printed; what cannot be read now is 0.
func (t *Tasks) count(ctx context.Context, x sandbox.Exec) (n int) {
	for _, err := range records(t.cfg.Journals.Read(ctx, x.Box, x.Seq, 0, false)) {
		if err != nil {
			return 0
		}
		n++
	}
	return n
}

// setPhase notes where a task stands; "" forgets it.
func (t *Tasks) setPhase(id sandbox.UID, phase task.Phase) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if phase == "" {
		delete(t.phases, id)
	} else {
		t.phases[id] = phase
	}
}

// noteProvider says in the history what the sandbox may reach for the task.
func (t *Tasks) noteProvider(ctx context.Context, x sandbox.Exec, provider string) {
	host, port, err := net.SplitHostPort(provider)
	if err != nil {
		return
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		return
	}
	ev := event.New(x.Box, x.Actor, event.Lent{Host: host, Port: number, Task: string(x.UID)})
	ev.Seq = x.Seq
	t.cfg.Note(ctx, ev)
}

// act does what a supervisor asked for and tells it. One that was told before hears
// it again, which changes nothing.
func (t *Tasks) act(ctx context.Context, r *live.Run, x sandbox.Exec, want task.Request) error {
	ctx, cancel := context.WithTimeout(ctx, actTime)
	defer cancel()
	answer := task.Acted{ID: want.ID}
	var err error
	switch want.Act {
	case task.ActRestart:
		_, err = t.cfg.Services.Restart(ctx, string(r.ID), devServerName)
		answer.OK = err == nil
	case task.ActPush:
		var p task.Push
		if p, err = t.push(ctx, r, x); err != nil {
			p.Message = errs.Public(err).Message
		}
		answer.OK, answer.Push = p.OK, &p
	default:
		err = errs.E(errs.Unsupported, "the host does not know this act")
	}
	if err != nil {
		answer.Message = errs.Public(err).Message
	}
	return t.tell(ctx, string(r.ID), x.Seq, task.Reply{Acted: &answer})
}

// push commits what the task left, as the sandbox's user and without credentials,
// and pushes that commit as root, who reads nothing of the repository but its
// objects: no process of the user sees the credentials. A user who is root would;
// then a push that needs credentials is Unsupported.
func (t *Tasks) push(ctx context.Context, r *live.Run, x sandbox.Exec) (task.Push, error) {
	b, err := t.cfg.Store.SandboxByUID(ctx, x.Box)
	if err != nil {
		return task.Push{}, err
	}
	if b.Spec.GitRemoteURL == "" {
		return task.Push{}, errs.E(errs.Unsupported, "the sandbox has no git_remote_url")
	}
	set, err := t.cfg.Secrets(ctx, b.Tenant, []string{gitToken, gitUser})
	if err != nil {
		return task.Push{}, err
	}
	if set[gitToken] != "" && isRoot(b.Spec.User) {
		return task.Push{}, errs.E(errs.Unsupported, "not pushed: the sandbox's user is root, and its programs could read GIT_TOKEN").
			Hint("create the sandbox with the user sandbox")
	}
	id := string(r.ID)
	var made git.Recorded
	failure, err := t.runGit(ctx, id, git.Record{Path: detailOf(x).Cwd, Branch: pushBranch, Message: "task " + string(x.UID)}, "", &made)
	if err != nil || failure != "" {
		return task.Push{Message: failure}, err
	}
	op := git.Publish{URL: b.Spec.GitRemoteURL, Branch: pushBranch, Commit: made.Commit, Objects: made.Objects}
	if token := set[gitToken]; token != "" {
		op.Login = git.Credentials{Username: set[gitUser], Token: token}
	}
	var pushed git.Pushed
	failure, err = t.runGit(ctx, id, op, sandbox.UserRoot, &pushed)
	return task.Push{OK: err == nil && failure == "", Commit: made.Commit, Branch: pushBranch, Message: failure}, err
}

// isRoot reports whether a sandbox's user is root, by name or by number.
func isRoot(user string) bool {
	uid, err := strconv.ParseUint(user, 10, 32)
	return user == sandbox.UserRoot || err == nil && uid == 0
}

// runGit runs an operation of git as a user, "" being the sandbox's, and reads its
// result. A failure of git itself is no error.
func (t *Tasks) runGit(ctx context.Context, id string, op git.Operation, user string, result any) (failure string, err error) {
	limit := actTime
	done, err := t.cfg.Git.Run(ctx, id, op, program.GitOptions{Timeout: &limit, User: user}, -1, live.OutputCaps{})
	if err != nil {
		return "", err
	}
	var failed struct {
		Error *git.Failure `json:"error"`
	}
	if done.Exec.Result == nil || json.Unmarshal(done.Exec.Result, &failed) != nil {
		return "git was ended", nil
	}
	if failed.Error != nil {
		return failed.Error.Message, nil
	}
	return "", json.Unmarshal(done.Exec.Result, result)
}
