package git

import (
	"regexp"
	"strings"
	"unicode"
)

// Failure says why git did not do what it was asked.
type Failure struct {
	Code    string   `json:"code"`
	Message string   `json:"message"` // git's own line
	Hint    string   `json:"hint,omitempty"`
	Files   []string `json:"files,omitempty"` // in conflict
}

// The codes of a [Failure].
const (
	AuthRequired    = "auth_required"
	AuthFailed      = "auth_failed"
	EgressDenied    = "egress_denied"
	Forbidden       = "forbidden"
	RepoNotFound    = "repository_not_found"
	RefNotFound     = "ref_not_found"
	FileNotFound    = "file_not_found"
	NotARepository  = "not_a_repository"
	DestExists      = "dest_exists"
	BranchExists    = "branch_exists"
	Conflicted      = "conflict"
	NonFastForward  = "non_fast_forward"
	RemoteRejected  = "rejected"
	NothingToCommit = "nothing_to_commit"
	LocalChanges    = "local_changes"
	NoRemote        = "no_remote"
	NoUpstream      = "no_upstream"
	Detached        = "detached_head"
	Unrelated       = "unrelated_histories"
	NotOwned        = "not_owned"
	Protocol        = "protocol_not_allowed"
	Certificate     = "certificate"
	Unreachable     = "unreachable"
	Locked          = "locked"
	DiskFull        = "disk_full"
	NoDirectory     = "no_directory"
	NoGit           = "no_git"
	Unclassified    = "failed"
)

// cause is one way to fail. The first cause decides that says of any line what
// it says, so causes come before what they lead to.
type cause struct {
	code string
	says *regexp.Regexp
	hint string
}

func causes() []cause {
	c := func(code, says, hint string) cause { return cause{code, regexp.MustCompile("(?i)" + says), hint} }
	const allow = "name the host in the sandbox's network.allow, or ask the operator to add it to CUBBY_EGRESS_ALLOW"
	return []cause{
		c(NoGit, `git: (command )?not found`, noGitHint),
		c(NoDirectory, `^working directory .*: `, "path is relative to /workspace"),
		c(DiskFull, `no space left on device|disk quota exceeded`, "the sandbox's disk is full"),
		c(Unreachable, `temporary failure in name resolution`, "the way out of the sandbox is not connected at the moment; try again"),
		// Without the proxy names that are denied are the only ones that are not found.
		c(EgressDenied, `cubby: egress to |CONNECT tunnel failed, response 403|HTTP code 403 from proxy|`+
			`could not resolve host|access was denied|alert access denied`, allow),
		c(Unreachable, `CONNECT tunnel failed|from proxy after CONNECT|remote: cubby: `, "the host is allowed and does not answer"),
		c(Protocol, `transport '.*' not allowed`, "http, https, ssh and paths are allowed"),
		c(AuthRequired, `could not read (username|password)|terminal prompts disabled`, "give username and password, or token"),
		c(AuthFailed, `authentication failed|returned error: 401|invalid credentials`, "the remote does not take these credentials"),
		c(Forbidden, `returned error: 403|permission to .* denied|write access to repository not granted`, "the remote refuses this to these credentials"),
		c(Certificate, `certificate verif|SSL certificate|self[- ]signed certificate|server certificate`, "sandboxes trust the certificate authorities of the daemon's host; add the remote's there"),
		c(RepoNotFound, `repository .*not found|returned error: 404|repository '.*' does not exist`, "check the URL; a private repository needs credentials"),
		c(NoRemote, `no such remote|does not appear to be a git repository|no configured push destination`, "git remote in the sandbox lists the remotes"),
		c(NotOwned, `dubious ownership`, "the directory belongs to another user of the sandbox; change its owner, or allow it with git config --global safe.directory"),
		c(NotARepository, `not a git repository`, "path is the directory of a clone; the default is /workspace"),
		c(NoUpstream, `no tracking information|no upstream branch|no upstream configured`, "give remote and branch"),
		c(Detached, `not currently on a branch|HEAD cannot be resolved to branch|full refname \(i\.e\., starting with "refs/heads/"\)`, "check a branch out first, or give branch"),
		c(Unrelated, `unrelated histories`, "the two branches have no commit in common"),
		c(Conflicted, `CONFLICT \(|unmerged files|you have unmerged paths|you have not concluded your merge|needs merge|unresolved conflict`, "edit the files in conflict, then commit with all; or run: git merge --abort"),
		c(NonFastForward, `non-fast-forward|fetch first|stale info|not possible to fast-forward|divergent branches`, "the remote has commits that are missing here: pull first, or push with force"),
		c(RemoteRejected, `\[remote rejected\]|pre-receive hook declined`, "the remote refused the branch; its reason is in stderr"),
		c(LocalChanges, `would be overwritten by|local changes`, "commit the changes first, or undo them"),
		c(NothingToCommit, `nothing to commit|nothing added to commit|no changes added to commit|no changes$`, "add files first, or set all"),
		c(DestExists, `already exists and is not an empty directory`, "give another dest"),
		c(BranchExists, `a branch named .* already exists`, "check it out instead"),
		c(RefNotFound, `remote branch .* not found|couldn't find remote ref|unknown revision|bad revision|invalid reference|not a valid (object name|branch)|pathspec '.*' did not match any file\(s\) known|src refspec .* does not match|does not have any commits yet|ambiguous argument|reference is not a tree`, "no such branch, tag or commit"),
		c(FileNotFound, `pathspec '.*' did not match`, "paths are relative to path"),
		c(Locked, `\.lock'?: file exists|another git process`, "another git runs in this repository; try again"),
		c(Unreachable, `could not resolve proxy|failed to connect|unable to access|connection (refused|reset|timed out)|remote end hung up|early EOF|returned error: 5`, "the remote does not answer, or not as a git server"),
	}
}

// classify finds the cause in what git printed.
func classify(exitCode int, stdout, stderr []byte) Failure {
	text := append(append([]byte{}, tail(stderr)...), '\n')
	text = append(text, tail(stdout)...)
	lines := splitLines(string(text))
	for _, c := range causes() {
		for _, line := range lines {
			if c.says.MatchString(line) {
				return Failure{Code: c.code, Message: line, Hint: c.hint}
			}
		}
	}
	f := Failure{Code: Unclassified, Message: "git failed"}
	if exitCode == 127 {
		f.Code, f.Hint = NoGit, noGitHint
	}
	if len(lines) > 0 {
		f.Message = lines[len(lines)-1]
	}
	for _, line := range lines {
		if strings.HasPrefix(line, "fatal: ") || strings.HasPrefix(line, "error: ") {
			f.Message = line
		}
	}
	return f
}

const noGitHint = "the sandbox's image has no git; use the image base, or install git"

const (
	maxClassified = 64 << 10 // bytes of a stream's end that are looked at
	maxLine       = 500
)

func tail(b []byte) []byte { return b[max(0, len(b)-maxClassified):] }

// splitLines gives the lines of git's talk, without what its progress has
// overwritten, and without control characters.
func splitLines(text string) []string {
	var lines []string
	for line := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == '\n' || r == '\r' || r == 0 }) {
		line = strings.Map(func(r rune) rune {
			if unicode.IsControl(r) {
				return ' '
			}
			return r
		}, strings.ToValidUTF8(line, "?"))
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, shorten(line, maxLine))
		}
	}
	return lines
}
