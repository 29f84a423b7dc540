// Package git makes the commands that carry out git's operations in a sandbox,
// and typed results out of what they print. It runs nothing.
//
// Nothing that a caller gives becomes part of a shell's text: it travels as an
// argument of a fixed script, behind "--" or in one word with its option, and
// what begins with "-" is refused where it could be taken for an option.
// Credentials travel in the environment of the one command that needs them,
// where a credential helper reads them, so neither an argument nor a file of
// the repository ever has them; the helper answers for the scheme and host of
// the remote only, and hides every other helper, which might keep them.
package git

import (
	"encoding/json"
	"path"
	"strings"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// KindPrefix begins the kind of every operation: "git.clone".
const KindPrefix = "git."

// Operation is one act of git. [Clone], [Status], [Diff], [Add], [Commit],
// [Branch], [Checkout], [Log], [Pull], [Push], [Record] and [Publish] are all of them.
type Operation interface {
	// Name is the operation's verb: "clone".
	Name() string
	plan() (plan, error)
}

// plan is what an operation makes of its fields.
type plan struct {
	path string // working directory as the caller gave it
	argv []string
	env  map[string]string
	// asked is the operation as histories show it.
	asked any
	// login, when not empty, is for origin; without an origin the script finds
	// it out.
	login  Credentials
	origin string
}

// Command is what carries an operation out, and what is remembered of it.
type Command struct {
	Kind    string
	Argv    []string
	Cwd     string // absolute
	Env     map[string]string
	Secrets map[string]string // further env, which must not be kept anywhere
	Detail  json.RawMessage   // the operation without credentials
}

// Make validates an operation and returns its command. Errors are Invalid and
// name the field.
func Make(op Operation) (Command, error) {
	p, err := op.plan()
	if err != nil {
		return Command{}, err
	}
	dir, err := directory(p.path)
	if err != nil {
		return Command{}, err
	}
	detail, err := plainJSON(p.asked)
	if err != nil {
		return Command{}, err
	}
	if len(detail) > sandbox.MaxDetail {
		return Command{}, errs.E(errs.TooLarge, "the operation is described by more than %d bytes", sandbox.MaxDetail).
			Hint("name directories instead of files, or set all")
	}
	c := Command{Kind: KindPrefix + op.Name(), Argv: p.argv, Cwd: dir, Env: environment(), Detail: detail}
	for name, value := range p.env {
		c.Env[name] = value
	}
	if err := p.login.addTo(&c, p.origin); err != nil {
		return Command{}, err
	}
	return c, nil
}

// environment keeps git from asking a person, from pagers and editors, from
// translated messages, and from transports that run other programs.
func environment() map[string]string {
	return map[string]string{
		"GIT_TERMINAL_PROMPT":   "0",
		"GIT_ASKPASS":           "",
		"SSH_ASKPASS":           "",
		"GIT_EDITOR":            "true",
		"GIT_MERGE_AUTOEDIT":    "no",
		"GIT_PAGER":             "cat",
		"GIT_ALLOW_PROTOCOL":    "http:https:ssh:file",
		"GIT_LITERAL_PATHSPECS": "1",
		"GIT_TRACE_REDACT":      "1",
		"LC_ALL":                "C.UTF-8",
		"LANGUAGE":              "",
	}
}

// directory makes an absolute path of one that may be relative to the
// workspace.
func directory(p string) (string, error) {
	if len(p) > maxPath || strings.ContainsRune(p, 0) {
		return "", invalid("path: not a path")
	}
	if !path.IsAbs(p) {
		p = path.Join(sandbox.WorkspaceDir, p)
	}
	return path.Clean(p), nil
}

// script runs fixed text of sh with arguments.
func script(name, text string, args ...string) []string {
	return append([]string{"sh", "-c", text, "git-" + name}, args...)
}

// Functions of scripts.
const (
	// head prints the branch, empty when none is checked out, and the commit.
	headFunction = `
head() {
  printf '%s\0' "$(git symbolic-ref -q --short HEAD)" "$(git rev-parse -q --verify HEAD)"
}
`
	// identity names an author where neither the caller nor any config does.
	identityFunction = `
identity() {
  git config user.name >/dev/null || { : "${GIT_AUTHOR_NAME:=Cubby Sandbox}" "${GIT_COMMITTER_NAME:=Cubby Sandbox}"; export GIT_AUTHOR_NAME GIT_COMMITTER_NAME; }
  git config user.email >/dev/null || { : "${GIT_AUTHOR_EMAIL:=sandbox@localhost}" "${GIT_COMMITTER_EMAIL:=sandbox@localhost}"; export GIT_AUTHOR_EMAIL GIT_COMMITTER_EMAIL; }
}
`
	// login makes the credentials answer for the origin of a URL.
	loginFunction = `
login() {
  [ -n "$CUBBY_GIT_USERNAME" ] || return
  case $1 in
    http://* | https://*) ;;
    *) return ;;
  esac
  rest=${1#*://}
  rest=${rest%%/*}
  GIT_CONFIG_KEY_1="credential.${1%%://*}://${rest##*@}.helper"
  export GIT_CONFIG_KEY_1
}
`
)

func invalid(format string, args ...any) *errs.Error { return errs.E(errs.Invalid, format, args...) }
