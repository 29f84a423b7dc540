package git

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/cubbyhq/cubby/internal/errs"
)

// Add puts files into the index. Its result is a [WorkTree].
type Add struct {
	Path  string
	Files []string // names, not patterns; a directory is all below it
	All   bool     // everything that differs, instead of Files
}

func (Add) Name() string { return "add" }

func (a Add) plan() (plan, error) {
	if err := validateFiles(a.Files); err != nil {
		return plan{}, err
	}
	if a.All == (len(a.Files) > 0) {
		return plan{}, invalid("files: give files, or all, and not both")
	}
	args := a.Files
	if a.All {
		args = nil
	}
	return plan{
		path: a.Path, argv: script("add", addScript+strings.Join(statusArgv(), " "), args...),
		asked: struct {
			Path  string   `json:"path,omitempty"`
			Files []string `json:"files,omitempty"`
			All   bool     `json:"all,omitempty"`
		}{a.Path, a.Files, a.All},
	}, nil
}

const addScript = `
if [ $# = 0 ]; then git add --all >&2; else git add -- "$@" >&2; fi || exit
`

// Commit records the index, and before that Files or everything in it.
type Commit struct {
	Path    string
	Message string
	// AuthorName and AuthorEmail are who commits; default the sandbox's
	// config, and without one a name of cubby's.
	AuthorName, AuthorEmail string
	Files                   []string // added before; names, not patterns
	All                     bool     // everything that differs is added before, new files too
}

// Committed is the result of a [Commit].
type Committed struct {
	Revision
	Branch  string  `json:"branch"`
	Changes Changes `json:"changes"`
}

// Revision is one commit.
type Revision struct {
	Commit    string   `json:"commit"`
	Parents   []string `json:"parents"`
	Author    Person   `json:"author"`
	Committer Person   `json:"committer"`
	Subject   string   `json:"subject"`
	Body      string   `json:"body,omitempty"` // its first 4 KiB
}

// Person is who made a commit, and when.
type Person struct {
	Name  string    `json:"name"`
	Email string    `json:"email"`
	Time  time.Time `json:"time"`
}

func (Commit) Name() string { return "commit" }

func (c Commit) plan() (plan, error) {
	if err := validateFiles(c.Files); err != nil {
		return plan{}, err
	}
	switch {
	case c.All && len(c.Files) > 0:
		return plan{}, invalid("files: both files and all")
	case strings.TrimSpace(c.Message) == "":
		return plan{}, invalid("message: empty")
	case len(c.Message) > maxMessage:
		return plan{}, errs.E(errs.TooLarge, "message: longer than %d bytes", maxMessage)
	case !utf8.ValidString(c.Message) || strings.ContainsRune(c.Message, 0):
		return plan{}, invalid("message: not text")
	}
	env := map[string]string{}
	for field, who := range map[string]struct{ value, variable string }{
		"author_name":  {c.AuthorName, "NAME"},
		"author_email": {c.AuthorEmail, "EMAIL"},
	} {
		if who.value == "" {
			continue
		}
		if len(who.value) > maxRef || !utf8.ValidString(who.value) || strings.ContainsFunc(who.value, notInName) || strings.TrimSpace(who.value) == "" {
			return plan{}, invalid("%s: not a name", field)
		}
		env["GIT_AUTHOR_"+who.variable], env["GIT_COMMITTER_"+who.variable] = who.value, who.value
	}
	args := []string{c.Message}
	if c.All {
		args = append(args, "all")
	} else {
		args = append(append(args, "files"), c.Files...)
	}
	return plan{
		path: c.Path, argv: script("commit", commitScript, args...), env: env,
		asked: struct {
			Path        string   `json:"path,omitempty"`
			Message     string   `json:"message"`
			AuthorName  string   `json:"author_name,omitempty"`
			AuthorEmail string   `json:"author_email,omitempty"`
			Files       []string `json:"files,omitempty"`
			All         bool     `json:"all,omitempty"`
		}{c.Path, shorten(c.Message, maxBody), c.AuthorName, c.AuthorEmail, c.Files, c.All},
	}, nil
}

func notInName(r rune) bool { return unicode.IsControl(r) || r == '<' || r == '>' }

// revisionFormat has ten fields; parents are one of them.
const revisionFormat = "%H%x00%P%x00%an%x00%ae%x00%aI%x00%cn%x00%ce%x00%cI%x00%s%x00%b%x00"

const commitScript = identityFunction + `
message=$1 what=$2
shift 2
identity
if [ "$what" = all ]; then git add --all >&2 || exit
elif [ $# != 0 ]; then git add -- "$@" >&2 || exit
fi
git commit --message="$message" >&2 || exit
printf '%s\0' "$(git symbolic-ref -q --short HEAD)"
git log -1 --encoding=UTF-8 --no-show-signature --format='` + revisionFormat + `' || exit
git diff-tree --root --no-commit-id --numstat -r -z --find-renames HEAD
`

func parseCommit(out []byte) (any, error) {
	f := fields{rest: out}
	c := Committed{Branch: f.next()}
	c.Revision = f.revision()
	if err := f.end(); err != nil {
		return nil, err
	}
	var err error
	c.Changes, _, err = splitDiff(f.rest)
	return c, err
}

// maxBody bounds the text of a message in results.
const maxBody = 4 << 10

// revision reads one commit in revisionFormat, and the line end after it.
func (f *fields) revision() Revision {
	r := Revision{Commit: f.next(), Parents: strings.Fields(f.next())}
	r.Author, r.Committer = f.person(), f.person()
	r.Subject = shorten(f.next(), maxBody)
	r.Body = shorten(strings.TrimRight(f.next(), "\n"), maxBody)
	if !f.bad && len(f.rest) > 0 && f.rest[0] == '\n' {
		f.rest = f.rest[1:]
	}
	if r.Parents == nil {
		r.Parents = []string{}
	}
	return r
}

func (f *fields) person() Person {
	p := Person{Name: f.next(), Email: f.next()}
	// A commit may have a date that is none.
	p.Time, _ = time.Parse(time.RFC3339, f.next())
	if y := p.Time.Year(); y < 0 || y > 9999 {
		p.Time = time.Time{}
	}
	p.Time = p.Time.UTC()
	return p
}

// shorten cuts text to at most limit bytes, between characters.
func shorten(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}
