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

// Publish pushes one commit to a branch of a remote, never by force. It is to be
// run by root, and the repository is another user's, who must not see the
// credentials. Of that repository it reads the objects and nothing else: neither
// its config nor a hook runs with the credentials. Its programs are those of the
// system's directories, and of the sandbox's environment it has only the way to the
// remote and the certificates to trust.
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
		argv: append([]string{"/bin/sh"}, script("publish", publishScript, to, p.Branch, p.Commit, p.Objects)[1:]...),
		env: map[string]string{
			"PATH": "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin", "HOME": "/nonexistent", "TMPDIR": "/tmp",
			"LD_PRELOAD": "", "LD_LIBRARY_PATH": "", "LD_AUDIT": "",
			"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_COUNT": "0",
		},
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

// publishScript begins without what the sandbox's environment sets beside the names
// that it lists; CUBBY_* has the credentials, and how the agent knows the processes
// of a command. What bash does not let go of would end it.
const publishScript = `
for name in $(env | sed -n 's/^\([A-Za-z_][A-Za-z0-9_]*\)=.*/\1/p'); do
  case $name in
    PATH | HOME | TMPDIR | PWD | LC_ALL | LANGUAGE | CUBBY_* | UID | EUID | PPID | BASHOPTS | SHELLOPTS | BASH_VERSINFO) ;;
    HTTP_PROXY | HTTPS_PROXY | NO_PROXY | ALL_PROXY | http_proxy | https_proxy | no_proxy | all_proxy) ;;
    SSL_CERT_FILE | SSL_CERT_DIR | CURL_CA_BUNDLE | GIT_SSL_CAINFO | GIT_SSL_CAPATH) ;;
    GIT_CONFIG_GLOBAL | GIT_CONFIG_NOSYSTEM | GIT_CONFIG_COUNT | GIT_CONFIG_KEY_? | GIT_CONFIG_VALUE_?) ;;
    GIT_TERMINAL_PROMPT | GIT_ASKPASS | SSH_ASKPASS | GIT_ALLOW_PROTOCOL) ;;
    *) unset "$name" ;;
  esac
done
bare=$(mktemp -d) || exit
trap 'rm -rf -- "$bare"' EXIT
format=sha1
[ ${#3} = 40 ] || format=sha256
git init --quiet --bare --template= --object-format=$format -- "$bare" >&2 || exit
printf '%s\n' "$4" > "$bare/objects/info/alternates" || exit
printf '%s\0' "$1"
GIT_DIR=$bare git -c core.commitGraph=false -c core.multiPackIndex=false push --porcelain --progress -- "$1" "$3:refs/heads/$2"
`
