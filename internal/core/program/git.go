// Package program is what sandboxes do for a caller by a command that is not the
// caller's: git, and the installation of packages. Each is an exec like any
// other, whose output becomes a result. What the programs say is not trusted: a
// result is made of what can be read in it, under bounds.
package program

import (
	"context"
	"encoding/json"
	"time"

	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/core/scope"
	"github.com/cubbyhq/cubby/internal/git"
	"github.com/cubbyhq/cubby/internal/journal"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store"
)

// GitOptions say how an operation of git runs. The zero value runs it beside
// everything else, within the sandbox's time limit.
type GitOptions struct {
	Session string // after what this session has to run before
	Timeout *time.Duration
	User    string // default the sandbox's
}

// Git runs git in sandboxes.
type Git struct {
	Execs *live.Execs
	Scope *scope.Scope
	Store *store.Store
}

// Run starts an operation of git and waits for its end as [live.Execs.Run]
// does; the operation goes on without the caller. It is an exec of its own
// kind, run by the sandbox's user unless the options name another; progress is on its stderr, and its Result
// is a type of package git or {"error": git.Failure}. A failure of git is not
// an error of this call.
//
// Credentials are in the environment of this one command and nowhere else on
// the host's side. Inside, other processes of the same user can read them as
// long as it runs.
func (g *Git) Run(ctx context.Context, id string, op git.Operation, o GitOptions, wait time.Duration, caps live.OutputCaps) (live.Result, error) {
	c, err := git.Make(op)
	if err != nil {
		return live.Result{}, err
	}
	return g.Execs.Run(ctx, id, sandbox.ExecSpec{
		Kind: c.Kind, Detail: c.Detail, Argv: c.Argv, Cwd: c.Cwd, Env: c.Env, Secrets: c.Secrets,
		Session: o.Session, Timeout: o.Timeout, User: o.User,
	}, wait, caps)
}

// lastClones is how many clones [Git.LastClone] looks at.
const lastClones = 100

// LastClone is the directory of the newest clone that did not fail, also of one
// that has yet to end; the workspace when there is none.
func (g *Git) LastClone(ctx context.Context, id string) (string, error) {
	b, err := g.Scope.FindHistory(ctx, id)
	if err != nil {
		return "", err
	}
	clones, err := g.Store.Execs(ctx, b.UID, store.ExecQuery{
		Kind: git.KindPrefix + git.Clone{}.Name(), Newest: true, Limit: lastClones,
	})
	if err != nil {
		return "", err
	}
	for _, x := range clones {
		if x.Exit != nil && (x.Exit.Code == nil || *x.Exit.Code != 0) {
			continue
		}
		var asked struct {
			Dest string `json:"dest"`
		}
		if err := json.Unmarshal(x.Spec.Detail, &asked); err != nil {
			return "", err
		}
		return asked.Dest, nil
	}
	return sandbox.WorkspaceDir, nil
}

const (
	// gitStdout and gitStderr bound what a result is made from: the first of
	// what git says to programs, the last of what it says to people.
	gitStdout = 16 << 20
	gitStderr = 64 << 10
)

// GitOperation is what is known of git's execs.
func GitOperation(j *journal.Journals) live.Operation {
	return live.Operation{
		Result: func(ctx context.Context, x sandbox.Exec) (json.RawMessage, error) { return gitResult(ctx, j, x) },
		Show:   showPatch,
	}
}

// gitResult makes the result of an operation that git itself ended.
func gitResult(ctx context.Context, j *journal.Journals, x sandbox.Exec) (json.RawMessage, error) {
	code := x.Exit.Code
	if code == nil || x.Exit.Reason != sandbox.EndExited && x.Exit.Reason != sandbox.EndNotRun {
		return nil, nil
	}
	if x.Exit.Reason == sandbox.EndNotRun {
		return git.Result(x.Spec.Kind, *code, nil, []byte(x.Exit.Message)), nil
	}
	var stdout, stderr []byte
	for entry, err := range j.Read(ctx, x.Box, x.Seq, 0, false) {
		switch data := entry.Output.Data; {
		case err != nil:
			return nil, err
		case entry.Output.Stream == sandbox.Stderr:
			stderr = append(stderr, data...)
			if len(stderr) > 2*gitStderr {
				stderr = append(stderr[:0], stderr[len(stderr)-gitStderr:]...)
			}
		default:
			stdout = append(stdout, data[:min(len(data), gitStdout-len(stdout))]...)
		}
	}
	return git.Result(x.Spec.Kind, *code, stdout, stderr), nil
}

// showPatch puts the patch of a diff beside its counts.
func showPatch(x sandbox.Exec, stdout []byte) json.RawMessage {
	if x.Spec.Kind != git.KindPrefix+(git.Diff{}).Name() {
		return x.Result
	}
	return git.WithPatch(x.Result, stdout)
}
