package tools

import (
	"bytes"
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/excerpt"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

const (
	defaultMatches = 100
	mostMatches    = 500
	// searchTime is how long a search may take. What was found by then is given.
	searchTime = 60 * time.Second
	// searchOutput bounds what the search prints, in bytes, and matchedLine what is
	// shown of a line, in characters.
	searchOutput = 512 << 10
	matchedLine  = 400
	// matchWeight is what a match takes beside its texts.
	matchWeight = 64
)

type fileMatches struct {
	Success   bool    `json:"success"`
	Path      string  `json:"path"`
	Matches   []match `json:"matches"`
	Truncated bool    `json:"truncated" jsonschema:"whether there are, or may be, more"`
}

type match struct {
	Path string `json:"path"`
	Line int64  `json:"line" jsonschema:"its number, from 1"`
	Text string `json:"text" jsonschema:"of the line, at most 400 characters"`
}

func (s *Set) searchFilesTool() Tool {
	return Tool{
		Name: "search_files", Title: "Search files",
		Description: "Finds lines in the text files of the session that match a regular expression. What .gitignore names, and .git itself, is left out.",
		Input: object([]string{"session_id", "pattern"}, map[string]*jsonschema.Schema{
			"session_id":  sessionID(),
			"pattern":     filled("The regular expression, as ripgrep reads it."),
			"path":        {Type: "string", Default: []byte(`"/workspace"`), Description: "The directory or file. Relative to /workspace, or absolute."},
			"glob":        text("Only files whose names match, as *.py."),
			"ignore_case": {Type: "boolean"},
			"limit":       number(defaultMatches, 1, mostMatches, "How many lines at most."),
		}),
		Output: shape[fileMatches](), ReadOnly: true, Idempotent: true, run: searchFiles,
	}
}

// searchScript prints "path NUL number:line" for each match, and says at the end of
// stderr how the search ended. Images without ripgrep have grep, which knows nothing
// of .gitignore. Its arguments are the pattern, the path, the glob, the flag that
// ignores case, and how many bytes may be printed.
const searchScript = `
most=$5
if command -v rg >/dev/null 2>&1; then
  set -- rg --no-config --null --line-number --no-heading --with-filename --color=never --hidden --glob '!.git' --sort=path \
    ${4:+"$4"} ${3:+--glob "$3"} -e "$1" -- "$2"
else
  set -- grep -rnIHZ --color=never --exclude-dir=.git ${4:+"$4"} ${3:+--include "$3"} -E -e "$1" -- "$2"
fi
{ "$@"; echo "ended $?" >&2; } | head -c "$most"`

func searchFiles(ctx context.Context, c *call) (Answer, error) {
	c.forSession()
	pattern, path, glob := c.text("pattern"), c.textOr("path", sandbox.WorkspaceDir), c.textOr("glob", "")
	limit, flag := int(c.number("limit", defaultMatches, 1, mostMatches)), ""
	if c.truth("ignore_case") {
		flag = "-i"
	}
	if strings.ContainsAny(pattern+path+glob, "\x00") {
		c.add("value_error", "pattern", "Value error, NUL cannot be searched for")
	}
	if err := c.ready(ctx); err != nil {
		return Answer{}, err
	}
	path, err := sandbox.ResolvePath(path)
	if err != nil {
		return Answer{}, err
	}
	below := "." // what is searched, from /workspace on
	if rest, ok := strings.CutPrefix(path, sandbox.WorkspaceDir+"/"); ok {
		below = "./" + rest
	} else if path != sandbox.WorkspaceDir {
		below = path
	}
	c.Watch = nil // its output is not for people
	most := searchTime
	seq, err := c.runToEnd(ctx, func() (sandbox.Exec, error) {
		return c.core.Execs().Start(ctx, c.id, sandbox.ExecSpec{Argv: []string{"sh", "-c", searchScript, "search", pattern, below, glob, flag, strconv.Itoa(searchOutput)}, Timeout: &most})
	})
	if err != nil {
		return Answer{}, err
	}
	r, err := c.core.Execs().Result(ctx, c.id, seq, live.OutputCaps{Stdout: searchOutput, Stderr: 8 << 10})
	if err != nil {
		return Answer{}, err
	}
	end := r.Exec.Exit
	switch {
	case end == nil:
		return Answer{}, errs.E(errs.Internal, "a command that has ended has no end")
	case end.Reason == sandbox.EndTimeout:
	case end.Reason != sandbox.EndExited:
		return Answer{}, c.lost(ctx, r.Exec)
	}
	if why := searchFault(r); why != "" {
		return Answer{}, errs.E(errs.Invalid, "the search failed: %s", why)
	}
	out := fileMatches{Success: true, Path: path, Matches: []match{}}
	out.Truncated = end.Reason == sandbox.EndTimeout || len(r.Stdout) >= searchOutput || r.StdoutCut > 0
	room := c.set.bounds.EntryBytes
	for line := range bytes.Lines(r.Stdout) {
		m, ok := parseMatch(line)
		if !ok {
			continue
		}
		if !strings.HasPrefix(m.Path, "/") {
			m.Path = sandbox.WorkspaceDir + "/" + strings.TrimPrefix(m.Path, "./")
		}
		if room -= Weight(m.Path) + Weight(m.Text) + matchWeight; len(out.Matches) == limit || room < 0 {
			out.Truncated = true
			break
		}
		out.Matches = append(out.Matches, m)
	}
	return Answer{Value: out}, nil
}

// searchFault is why nothing could be searched; "" when it could.
func searchFault(r live.Result) string {
	text := strings.TrimSpace(asUTF8(r.Stderr))
	said, ended, ok := cutLast(text, "ended ")
	if len(r.Stdout) > 0 || ok && (ended == "0" || ended == "1") || r.Exec.Exit.Reason != sandbox.EndExited {
		return ""
	}
	return excerpt.First(strings.TrimSpace(said), 1000)
}

// cutLast cuts a text around the last of the places that have sep.
func cutLast(text, sep string) (before, after string, found bool) {
	i := strings.LastIndex(text, sep)
	if i < 0 {
		return text, "", false
	}
	return text[:i], text[i+len(sep):], true
}

// parseMatch reads one line of what the search prints. A sandbox decides what that is.
func parseMatch(line []byte) (m match, ok bool) {
	path, rest, ok := bytes.Cut(line, []byte{0})
	if !ok {
		return m, false
	}
	number, text, ok := bytes.Cut(rest, []byte{':'})
	if !ok {
		return m, false
	}
	n, err := strconv.ParseInt(string(number), 10, 64)
	if err != nil || n < 1 || len(path) == 0 {
		return m, false
	}
	return match{asUTF8(path), n, excerpt.First(strings.TrimRight(asUTF8(text), "\r\n"), matchedLine)}, true
}
