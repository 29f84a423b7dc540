package rest

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cubbyhq/cubby/internal/core/program"
	"github.com/cubbyhq/cubby/internal/front"
	"github.com/cubbyhq/cubby/internal/front/httpapi"
	"github.com/cubbyhq/cubby/internal/git"
)

// GitRun is what every git operation takes.
type GitRun struct {
	Path           string   `json:"path,omitempty" doc:"The repository's directory, relative to /workspace; default /workspace itself."`
	TimeoutSeconds *float64 `json:"timeout_seconds,omitempty" minimum:"0" doc:"0: none. Default: the sandbox's exec_timeout_seconds."`
	Wait           *bool    `json:"wait,omitempty" doc:"Default true: answer when the operation has ended."`
	WaitSeconds    *float64 `json:"wait_seconds,omitempty" minimum:"0" maximum:"600" doc:"Default 60: after that 202; the operation goes on."`
}

// GitLogin is what a remote asks for. It is used for this request and not kept.
type GitLogin struct {
	Username string `json:"username,omitempty"`
	Password string `json:"password,omitempty"`
	Token    string `json:"token,omitempty" doc:"Instead of a password; the username may be left out."`
}

func (l GitLogin) credentials() git.Credentials {
	return git.Credentials{Username: l.Username, Password: l.Password, Token: l.Token}
}

// GitCloneInput asks for a copy of a repository.
type GitCloneInput struct {
	GitRun
	GitLogin
	URL    string `json:"url" doc:"https://…, http://…, or the absolute path of a repository in the sandbox."`
	Branch string `json:"branch,omitempty" doc:"Or a tag; default the remote's."`
	Depth  int    `json:"depth,omitempty" minimum:"0" doc:"So many commits; default all."`
	Dest   string `json:"dest,omitempty" doc:"Relative to path; default the last part of the URL."`
}

// GitStatusInput asks what differs from the last commit.
type GitStatusInput struct{ GitRun }

// GitDiffInput asks for changes that are not committed.
type GitDiffInput struct {
	GitRun
	Staged bool     `json:"staged,omitempty" doc:"What the next commit would have, instead of what it would not."`
	Files  []string `json:"files,omitempty" doc:"Only these, and what lies below them."`
}

// GitAddInput puts files into the next commit.
type GitAddInput struct {
	GitRun
	Files []string `json:"files,omitempty" doc:"Names, not patterns."`
	All   bool     `json:"all,omitempty" doc:"Everything that differs, instead of files."`
}

// GitCommitInput makes a commit.
type GitCommitInput struct {
	GitRun
	Message     string   `json:"message"`
	AuthorName  string   `json:"author_name,omitempty" doc:"Default: the sandbox's git config."`
	AuthorEmail string   `json:"author_email,omitempty"`
	Files       []string `json:"files,omitempty" doc:"Added first. Names, not patterns."`
	All         bool     `json:"all,omitempty" doc:"Add everything that differs first, new files too."`
}

// GitBranchInput lists branches, or makes one.
type GitBranchInput struct {
	GitRun
	Name string `json:"name,omitempty" doc:"Make this branch, where HEAD is."`
}

// GitCheckoutInput switches.
type GitCheckoutInput struct {
	GitRun
	Name   string `json:"name" doc:"A branch, a tag or a commit."`
	Create bool   `json:"create,omitempty" doc:"Make the branch first, where HEAD is."`
}

// GitLogInput lists commits.
type GitLogInput struct {
	GitRun
	Branch string   `json:"branch,omitempty" doc:"Or any commit; default what is checked out."`
	Limit  int      `json:"limit,omitempty" minimum:"1" maximum:"200" doc:"Default 20."`
	Files  []string `json:"files,omitempty" doc:"Only commits that touch these."`
}

// GitPullInput fetches and merges.
type GitPullInput struct {
	GitRun
	GitLogin
	Remote string `json:"remote,omitempty" doc:"Its name; default the branch's, else origin."`
	Branch string `json:"branch,omitempty" doc:"Default: the upstream of what is checked out."`
}

// GitPushInput sends a branch.
type GitPushInput struct {
	GitRun
	GitLogin
	Remote string `json:"remote,omitempty" doc:"Its name; default the branch's, else origin."`
	Branch string `json:"branch,omitempty" doc:"Default: what is checked out."`
	Force  bool   `json:"force,omitempty" doc:"Although the remote has commits that are missing here."`
}

func (d *door) gitRoutes() {
	gitRoute(d, "clone", "Clone a repository", func(in *GitCloneInput) (GitRun, git.Operation) {
		return in.GitRun, git.Clone{Path: in.Path, URL: in.URL, Branch: in.Branch, Depth: in.Depth, Dest: in.Dest, Login: in.credentials()}
	})
	gitRoute(d, "status", "What differs from the last commit", func(in *GitStatusInput) (GitRun, git.Operation) {
		return in.GitRun, git.Status{Path: in.Path}
	})
	gitRoute(d, "diff", "Changes that are not committed", func(in *GitDiffInput) (GitRun, git.Operation) {
		return in.GitRun, git.Diff{Path: in.Path, Staged: in.Staged, Files: in.Files}
	})
	gitRoute(d, "add", "Put files into the next commit", func(in *GitAddInput) (GitRun, git.Operation) {
		return in.GitRun, git.Add{Path: in.Path, Files: in.Files, All: in.All}
	})
	gitRoute(d, "commit", "Make a commit", func(in *GitCommitInput) (GitRun, git.Operation) {
		return in.GitRun, git.Commit{
			Path: in.Path, Message: in.Message, AuthorName: in.AuthorName, AuthorEmail: in.AuthorEmail, Files: in.Files, All: in.All,
		}
	})
	gitRoute(d, "branch", "List branches, or make one", func(in *GitBranchInput) (GitRun, git.Operation) {
		return in.GitRun, git.Branch{Path: in.Path, Create: in.Name}
	})
	gitRoute(d, "checkout", "Switch to a branch, a tag or a commit", func(in *GitCheckoutInput) (GitRun, git.Operation) {
		return in.GitRun, git.Checkout{Path: in.Path, Target: in.Name, Create: in.Create}
	})
	gitRoute(d, "log", "List commits, newest first", func(in *GitLogInput) (GitRun, git.Operation) {
		return in.GitRun, git.Log{Path: in.Path, Branch: in.Branch, Limit: in.Limit, Files: in.Files}
	})
	gitRoute(d, "pull", "Fetch and merge", func(in *GitPullInput) (GitRun, git.Operation) {
		return in.GitRun, git.Pull{Path: in.Path, Remote: in.Remote, Branch: in.Branch, Login: in.credentials()}
	})
	gitRoute(d, "push", "Send a branch to a remote", func(in *GitPushInput) (GitRun, git.Operation) {
		return in.GitRun, git.Push{Path: in.Path, Remote: in.Remote, Branch: in.Branch, Force: in.Force, Login: in.credentials()}
	})
}

type gitRequest[B any] struct {
	exchange
	IDInput
	Body B
}

// gitRoute adds the endpoint of one operation.
func gitRoute[B any](d *door, name, summary string, read func(*B) (GitRun, git.Operation)) {
	register(d, operation{
		id: "git-" + name, method: http.MethodPost, path: "/v1/sandboxes/{id}/git/" + name, tag: "git", summary: summary,
		description: "The answer is the operation, with what came of it in result: see docs/git.md. A failure of git is result.error, with 200.",
		responses: map[string]*huma.Response{
			"200": {Description: "The operation has ended", Content: httpapi.Media("application/json", d.Schema(Exec{}, "Exec"))},
			"202": {Description: "The operation goes on", Content: httpapi.Media("application/json", d.Schema(Exec{}, "Exec"))},
		},
	}, func(ctx context.Context, in *gitRequest[B]) (*streamed, error) {
		run, op := read(&in.Body)
		return d.git(ctx, in.exchange, in.ID, run, op)
	})
}

func (d *door) git(ctx context.Context, x exchange, id string, run GitRun, op git.Operation) (*streamed, error) {
	wait, err := waitTime(run.WaitSeconds)
	if err != nil {
		return nil, err
	}
	if run.Wait != nil && !*run.Wait {
		wait = 0
	}
	var timeout *time.Duration
	if run.TimeoutSeconds != nil {
		limit, err := front.Seconds("timeout_seconds", *run.TimeoutSeconds)
		if err != nil {
			return nil, err
		}
		timeout = &limit
	}
	waiting, done := d.UntilDrain(ctx)
	res, err := d.Core.Git().Run(waiting, id, op, program.GitOptions{Timeout: timeout}, wait, httpapi.CapsOf(nil))
	done()
	// As with exec: what goes on has a number.
	if err != nil && (res.Exec.Seq == 0 || ctx.Err() != nil || !d.Drains()) {
		return nil, err
	}
	status := http.StatusOK
	if !res.Exec.Status.Finished() {
		status = http.StatusAccepted
		x.locate(id, "execs", res.Exec.Seq)
	}
	return stream(func() { d.writeResult(ctx, x.w, status, res) }), nil
}
