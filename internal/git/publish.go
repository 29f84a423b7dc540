package git

import (
	"strings"
	"unicode/utf8"
)

// Record commits everything that differs, also into a repository that it makes. It
// is no failure when nothing differs.
type Record struct {
	Path    string
	Branch  string // of a repository that it makes
	Message string
}

// Recorded is the result of a [Record]: what is checked out now, and where git
// keeps it.
type Recorded struct {
	Commit  string `json:"commit"`
	Objects string `json:"objects"` // an absolute path
}

func (Record) Name() string { return "record" }

func (r Record) plan() (plan, error) {
	if err := validateBranch("branch", r.Branch); err != nil {
		return plan{}, err
	}
	if strings.TrimSpace(r.Message) == "" || len(r.Message) > maxMessage || !utf8.ValidString(r.Message) || strings.ContainsRune(r.Message, 0) {
		return plan{}, invalid("message: not text, or longer than %d bytes", maxMessage)
	}
	return plan{
		path: r.Path, argv: script("record", recordScript, r.Branch, r.Message),
		asked: struct {
			Path    string `json:"path,omitempty"`
			Message string `json:"message"`
		}{r.Path, shorten(r.Message, maxBody)},
	}, nil
}

const recordScript = identityFunction + `
git rev-parse --git-dir >/dev/null 2>&1 || git init --quiet --initial-branch="$1" >&2 || exit
identity
git add --all >&2 || exit
git diff --cached --quiet || git commit --quiet --message="$2" >&2 || exit
commit=$(git rev-parse --verify HEAD) || exit
objects=$(git rev-parse --git-path objects) && objects=$(cd -- "$objects" && pwd) || exit
printf '%s\0' "$commit" "$objects"
`

func parseRecord(out []byte) (any, error) {
	f := fields{rest: out}
	r := Recorded{Commit: f.next(), Objects: f.next()}
	return r, f.end()
}

// Publish pushes one commit to a branch of a remote, never by force. It reads a
// repository's objects and nothing else of it: neither its config nor a hook runs
// with the credentials. Whoever runs it is to be another user than those who own
// the repository.
type Publish struct {
	URL     string
	Branch  string
	Commit  string
	Objects string // the directory that has it
	Login   Credentials
}

func (Publish) Name() string { return "publish" }

func (p Publish) plan() (plan, error) {
	to, origin, login, err := remoteURL("url", p.URL, p.Login)
	if err != nil {
		return plan{}, err
	}
	if err := validateBranch("branch", p.Branch); err != nil {
		return plan{}, err
	}
	if !isCommit(p.Commit) {
		return plan{}, invalid("commit: not the hash of a commit")
	}
	if !strings.HasPrefix(p.Objects, "/") || len(p.Objects) > maxPath || strings.ContainsAny(p.Objects, "\x00\n") {
		return plan{}, invalid("objects: not an absolute path")
	}
	return plan{
		path: "/", login: login, origin: origin,
		argv: script("publish", publishScript, to, p.Branch, p.Commit, p.Objects),
		env:  map[string]string{"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"},
		asked: struct {
			URL    string `json:"url"`
			Branch string `json:"branch"`
			Commit string `json:"commit"`
		}{to, p.Branch, p.Commit},
	}, nil
}

// isCommit reports whether s is a whole hash, SHA-1 or SHA-256.
func isCommit(s string) bool {
	return (len(s) == 40 || len(s) == 64) && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'a' || r > 'f')
	})
}

const publishScript = `
bare=$(mktemp -d) || exit
trap 'rm -rf -- "$bare"' EXIT
format=sha1
[ ${#3} = 40 ] || format=sha256
git init --quiet --bare --template= --object-format=$format -- "$bare" >&2 || exit
printf '%s\n' "$4" > "$bare/objects/info/alternates" || exit
printf '%s\0' "$1"
GIT_DIR=$bare git push --porcelain --progress -- "$1" "$3:refs/heads/$2"
`
