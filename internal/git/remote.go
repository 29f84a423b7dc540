package git

import (
	"bytes"
	"strings"
)

// Pull fetches and merges, never rebases.
type Pull struct {
	Path   string
	Remote string // default the branch's, else origin
	Branch string // of the remote; default the branch's upstream
	Login  Credentials
}

// Pulled is the result of a [Pull].
type Pulled struct {
	Branch  string `json:"branch"`
	Before  string `json:"before"` // commit; "" when there was none
	Commit  string `json:"commit"`
	Updated bool   `json:"updated"`
}

func (Pull) Name() string { return "pull" }

func (p Pull) plan() (plan, error) {
	args, err := remoteArgs(p.Remote, p.Branch)
	if err != nil {
		return plan{}, err
	}
	return plan{path: p.Path, argv: script("pull", pullScript, args...), login: p.Login, asked: remoteDetail{
		Path: p.Path, Remote: p.Remote, Branch: p.Branch,
	}}, nil
}

type remoteDetail struct {
	Path   string `json:"path,omitempty"`
	Remote string `json:"remote,omitempty"`
	Branch string `json:"branch,omitempty"`
	Force  bool   `json:"force,omitempty"`
}

// remoteArgs are the remote and the branch, both possibly "".
func remoteArgs(remote, branch string) ([]string, error) {
	if remote != "" {
		if err := validateRemote(remote); err != nil {
			return nil, err
		}
	}
	if branch != "" {
		if err := validateBranch("branch", branch); err != nil {
			return nil, err
		}
		if remote == "" {
			remote = "origin"
		}
	}
	return []string{remote, branch}, nil
}

// usualRemote finds the remote of what is checked out.
const usualRemote = `
current=$(git symbolic-ref -q --short HEAD)
used=$1
[ -n "$used" ] || used=$(git config "branch.$current.remote")
[ -n "$used" ] || used=origin
`

const pullScript = headFunction + identityFunction + loginFunction + usualRemote + `
identity
login "$(git remote get-url -- "$used" 2>/dev/null)"
before=$(git rev-parse -q --verify HEAD)
git pull --progress --no-rebase --no-edit -- ${1:+"$1"} ${2:+"$2"} >&2
code=$?
printf '%s\0' "$before"
head
[ $code = 0 ] || git diff --name-only --diff-filter=U -z
exit $code
`

func parsePull(out []byte) (any, error) {
	f := fields{rest: out}
	p := Pulled{Before: f.next(), Branch: f.next(), Commit: f.next()}
	p.Updated = p.Before != p.Commit
	return p, f.end()
}

// conflicts are the paths that a failed pull left unmerged.
func conflicts(out []byte) []string {
	f := fields{rest: out}
	_, _, _ = f.next(), f.next(), f.next()
	var paths []string
	for !f.empty() && len(paths) < maxListed {
		paths = append(paths, f.next())
	}
	return paths
}

// Push sends a branch to a remote, and makes it the branch's upstream.
type Push struct {
	Path   string
	Remote string // default the branch's, else origin
	Branch string // default what is checked out
	Force  bool   // although the remote has commits that the branch has not
	Login  Credentials
}

// Pushed is the result of a [Push].
type Pushed struct {
	Remote string    `json:"remote"`
	Refs   []PushRef `json:"refs"`
}

// PushRef is what became of one branch. Status is new, updated, forced,
// deleted, up_to_date or rejected.
type PushRef struct {
	From    string `json:"from"`
	To      string `json:"to"`
	Status  string `json:"status"`
	Summary string `json:"summary"` // "2c1e1a6..9f3a0b2", or why not
}

func (Push) Name() string { return "push" }

func (p Push) plan() (plan, error) {
	args, err := remoteArgs(p.Remote, p.Branch)
	if err != nil {
		return plan{}, err
	}
	if p.Force {
		args = append(args, "--force")
	}
	return plan{path: p.Path, argv: script("push", pushScript, args...), login: p.Login, asked: remoteDetail{
		Path: p.Path, Remote: p.Remote, Branch: p.Branch, Force: p.Force,
	}}, nil
}

const pushScript = loginFunction + usualRemote + `
branch=$2
shift 2
if [ -n "$branch" ]; then spec=refs/heads/$branch:refs/heads/$branch; else spec=HEAD; fi
login "$(git remote get-url --push -- "$used" 2>/dev/null)"
printf '%s\0' "$used"
exec git push --porcelain --progress --set-upstream "$@" -- "$used" "$spec"
`

func parsePush(out []byte) (any, error) {
	f := fields{rest: out}
	p := Pushed{Remote: f.next(), Refs: []PushRef{}}
	if err := f.end(); err != nil {
		return nil, err
	}
	for line := range bytes.Lines(f.rest) {
		// Other lines are git's talk, and a hook's.
		words := strings.SplitN(strings.TrimRight(string(line), "\n"), "\t", 3)
		if len(words) != 3 || len(words[0]) != 1 || len(p.Refs) == maxListed {
			continue
		}
		from, to, ok := strings.Cut(words[1], ":")
		if status := pushStatus(words[0][0], words[2]); ok && status != "" {
			p.Refs = append(p.Refs, PushRef{From: from, To: to, Status: status, Summary: words[2]})
		}
	}
	return p, nil
}

func pushStatus(flag byte, summary string) string {
	switch flag {
	case ' ':
		return "updated"
	case '+':
		return "forced"
	case '-':
		return "deleted"
	case '*':
		if strings.HasPrefix(summary, "[new") {
			return "new"
		}
		return "updated"
	case '=':
		return "up_to_date"
	case '!':
		return "rejected"
	}
	return ""
}
