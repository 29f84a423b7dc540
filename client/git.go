package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/cubbyhq/cubby/client/internal/texts"
)

// GitLogin is what a remote asks for. It goes with one operation and is kept
// nowhere; while that runs, other processes of the sandbox's user can read it.
type GitLogin struct {
	Username string `json:"username,omitempty"`
	Password string `json:"password,omitempty"`
	Token    string `json:"token,omitempty"` // instead of a password; needs no Username
}

// GitCloneOptions is a repository to copy.
type GitCloneOptions struct {
	GitLogin
	Path   string `json:"path,omitempty"`   // Dest is relative to it; default /workspace
	URL    string `json:"url"`              // http, https, or an absolute path in the sandbox
	Branch string `json:"branch,omitempty"` // or a tag; default the remote's
	Depth  int    `json:"depth,omitempty"`  // commits; 0 is all
	Dest   string `json:"dest,omitempty"`   // default the last part of the URL
}

// GitCloned says where a clone is.
type GitCloned struct {
	Path   string `json:"path"`
	Branch string `json:"branch"` // "" when a tag was asked for
	Commit string `json:"commit"` // "" in an empty repository
}

// GitWorkTree is what differs from the last commit.
type GitWorkTree struct {
	Branch   string          `json:"branch"` // "" when none is checked out
	Commit   string          `json:"commit"`
	Upstream string          `json:"upstream,omitempty"`
	Ahead    int             `json:"ahead"`  // commits that the upstream has not
	Behind   int             `json:"behind"` // commits that only the upstream has
	Clean    bool            `json:"clean"`
	Files    []GitFileStatus `json:"files"`
	Omitted  int             `json:"omitted,omitempty"` // files that are not listed
}

// GitFileStatus is a path that differs. Index and WorkTree are "", modified,
// added, deleted, renamed, copied, type_changed, unmerged or untracked.
type GitFileStatus struct {
	Path     string `json:"path"`
	From     string `json:"from,omitempty"` // of a rename or copy
	Index    string `json:"index,omitempty"`
	WorkTree string `json:"worktree,omitempty"`
	Conflict bool   `json:"conflict,omitempty"`
}

// GitDiffOptions selects changes that are not committed.
type GitDiffOptions struct {
	Path   string   `json:"path,omitempty"`
	Staged bool     `json:"staged,omitempty"` // what the next commit would have, instead of what it would not
	Files  []string `json:"files,omitempty"`  // only these
}

// GitChanges is how much files changed.
type GitChanges struct {
	Files     []GitFileDiff `json:"files"`
	Additions int64         `json:"additions"` // lines
	Deletions int64         `json:"deletions"` // lines
	Omitted   int           `json:"omitted,omitempty"`
	// Patch is the change itself, of a diff only; PatchEncoding is "base64"
	// when it is not UTF-8.
	Patch         string `json:"patch,omitempty"`
	PatchEncoding string `json:"patch_encoding,omitempty"`
}

// String is short, for logs: how much it is.
func (c GitChanges) String() string {
	return fmt.Sprintf("%d files, %d lines added, %d deleted", len(c.Files)+c.Omitted, c.Additions, c.Deletions)
}

// GitFileDiff is how much one file changed.
type GitFileDiff struct {
	Path      string `json:"path"`
	From      string `json:"from,omitempty"` // of a rename
	Additions int64  `json:"additions"`
	Deletions int64  `json:"deletions"`
	Binary    bool   `json:"binary,omitempty"`
}

// GitAddOptions is what to put into the next commit: Files, or All.
type GitAddOptions struct {
	Path  string   `json:"path,omitempty"`
	Files []string `json:"files,omitempty"`
	All   bool     `json:"all,omitempty"`
}

// GitCommitOptions is a commit to make.
type GitCommitOptions struct {
	Path        string   `json:"path,omitempty"`
	Message     string   `json:"message"`
	AuthorName  string   `json:"author_name,omitempty"` // default the sandbox's config
	AuthorEmail string   `json:"author_email,omitempty"`
	Files       []string `json:"files,omitempty"` // added first
	All         bool     `json:"all,omitempty"`   // add everything that differs first
}

// GitCommitted is a commit that was made.
type GitCommitted struct {
	GitRevision
	Branch  string     `json:"branch"`
	Changes GitChanges `json:"changes"`
}

// GitRevision is one commit.
type GitRevision struct {
	Commit    string    `json:"commit"`
	Parents   []string  `json:"parents"`
	Author    GitPerson `json:"author"`
	Committer GitPerson `json:"committer"`
	Subject   string    `json:"subject"`
	Body      string    `json:"body,omitempty"`
}

// String is short, for logs: the commit and its subject.
func (r GitRevision) String() string { return "commit " + r.Commit + ": " + texts.Line(r.Subject) }

// GitPerson is who made a commit, and when.
type GitPerson struct {
	Name  string    `json:"name"`
	Email string    `json:"email"`
	Time  time.Time `json:"time"`
}

// GitBranches lists branches.
type GitBranches struct {
	Current  string          `json:"current"` // "" when none is checked out
	Branches []GitBranchInfo `json:"branches"`
}

// GitBranchInfo is one branch, "origin/main" when it is a remote one.
type GitBranchInfo struct {
	Name     string `json:"name"`
	Commit   string `json:"commit"`
	Remote   bool   `json:"remote,omitempty"`
	Upstream string `json:"upstream,omitempty"`
	Ahead    int    `json:"ahead,omitempty"`
	Behind   int    `json:"behind,omitempty"`
}

// GitCheckoutOptions is where to switch to.
type GitCheckoutOptions struct {
	Path   string `json:"path,omitempty"`
	Name   string `json:"name"`             // a branch, a tag or a commit
	Create bool   `json:"create,omitempty"` // make the branch first
}

// GitHead is what is checked out.
type GitHead struct {
	Branch string `json:"branch"` // "" when it is no branch
	Commit string `json:"commit"`
}

// GitLogOptions selects commits.
type GitLogOptions struct {
	Path   string   `json:"path,omitempty"`
	Branch string   `json:"branch,omitempty"` // or any commit
	Limit  int      `json:"limit,omitempty"`  // 0: 20, at most 200
	Files  []string `json:"files,omitempty"`  // only commits that touch these
}

// GitPullOptions is what to fetch and merge.
type GitPullOptions struct {
	GitLogin
	Path   string `json:"path,omitempty"`
	Remote string `json:"remote,omitempty"`
	Branch string `json:"branch,omitempty"`
}

// GitPulled says what a pull did.
type GitPulled struct {
	Branch  string `json:"branch"`
	Before  string `json:"before"` // commit
	Commit  string `json:"commit"`
	Updated bool   `json:"updated"`
}

// GitPushOptions is what to send where.
type GitPushOptions struct {
	GitLogin
	Path   string `json:"path,omitempty"`
	Remote string `json:"remote,omitempty"`
	Branch string `json:"branch,omitempty"`
	Force  bool   `json:"force,omitempty"`
}

// GitPushed says what a push did.
type GitPushed struct {
	Remote string       `json:"remote"`
	Refs   []GitPushRef `json:"refs"`
}

// GitPushRef is what became of one branch. Status is new, updated, forced,
// deleted, up_to_date or rejected.
type GitPushRef struct {
	From    string `json:"from"`
	To      string `json:"to"`
	Status  string `json:"status"`
	Summary string `json:"summary"`
}

// GitError is git's refusal to do what it was asked.
type GitError struct {
	Code    string   `json:"code"` // auth_required, non_fast_forward, conflict, …: see docs/git.md
	Message string   `json:"message"`
	Hint    string   `json:"hint,omitempty"`
	Files   []string `json:"files,omitempty"` // in conflict

	Exec Exec `json:"-"` // the whole operation
}

func (e *GitError) Error() string { return e.Message }

// GitClone copies a repository into a sandbox. Like all operations of git it
// returns when the operation has ended; when ctx ends first, it goes on. A
// failure of git is a [*GitError]; an operation that something else ended, a
// time limit for example, is an [*ExitError].
func (c *Client) GitClone(ctx context.Context, id string, o GitCloneOptions) (GitCloned, error) {
	return git[GitCloned](ctx, c, id, "clone", o)
}

// GitStatus returns what differs from the last commit. path is the
// repository's directory, "" for /workspace.
func (c *Client) GitStatus(ctx context.Context, id, path string) (GitWorkTree, error) {
	return git[GitWorkTree](ctx, c, id, "status", map[string]string{"path": path})
}

// GitDiff returns changes that are not committed.
func (c *Client) GitDiff(ctx context.Context, id string, o GitDiffOptions) (GitChanges, error) {
	return git[GitChanges](ctx, c, id, "diff", o)
}

// GitAdd puts files into the next commit.
func (c *Client) GitAdd(ctx context.Context, id string, o GitAddOptions) (GitWorkTree, error) {
	return git[GitWorkTree](ctx, c, id, "add", o)
}

// GitCommit makes a commit.
func (c *Client) GitCommit(ctx context.Context, id string, o GitCommitOptions) (GitCommitted, error) {
	return git[GitCommitted](ctx, c, id, "commit", o)
}

// GitBranches lists the branches of the repository at path.
func (c *Client) GitBranches(ctx context.Context, id, path string) (GitBranches, error) {
	return git[GitBranches](ctx, c, id, "branch", map[string]string{"path": path})
}

// GitCreateBranch makes a branch where HEAD is, and lists all.
func (c *Client) GitCreateBranch(ctx context.Context, id, path, name string) (GitBranches, error) {
	return git[GitBranches](ctx, c, id, "branch", map[string]string{"path": path, "name": name})
}

// GitCheckout switches to a branch, a tag or a commit.
func (c *Client) GitCheckout(ctx context.Context, id string, o GitCheckoutOptions) (GitHead, error) {
	return git[GitHead](ctx, c, id, "checkout", o)
}

// GitLog lists commits, newest first.
func (c *Client) GitLog(ctx context.Context, id string, o GitLogOptions) ([]GitRevision, error) {
	l, err := git[struct {
		Commits []GitRevision `json:"commits"`
	}](ctx, c, id, "log", o)
	return l.Commits, err
}

// GitPull fetches and merges.
func (c *Client) GitPull(ctx context.Context, id string, o GitPullOptions) (GitPulled, error) {
	return git[GitPulled](ctx, c, id, "pull", o)
}

// GitPush sends a branch to a remote.
func (c *Client) GitPush(ctx context.Context, id string, o GitPushOptions) (GitPushed, error) {
	return git[GitPushed](ctx, c, id, "push", o)
}

// git runs an operation to its end and decodes its result.
func git[T any](ctx context.Context, c *Client, id, op string, body any) (T, error) {
	var result T
	var e Exec
	if err := c.do(ctx, call{method: http.MethodPost, path: sandboxPath(id, "git", op), json: body}, &e); err != nil {
		return result, err
	}
	if !e.Finished() {
		var err error
		if e, err = c.Process(id, e.Seq).Wait(ctx); err != nil {
			return result, err
		}
	}
	var failed struct{ Error *GitError }
	switch {
	case e.Result == nil:
		return result, &ExitError{Exec: e}
	case json.Unmarshal(e.Result, &failed) == nil && failed.Error != nil:
		failed.Error.Exec = e
		return result, failed.Error
	}
	if err := json.Unmarshal(e.Result, &result); err != nil {
		return result, &Error{Code: Internal, Message: "the result of git " + op + " has another form than expected", cause: err}
	}
	return result, nil
}
