package git

import (
	"bytes"
	"strconv"
	"strings"
)

// Status asks what differs between the last commit, the index and the files.
type Status struct{ Path string }

// WorkTree is the result of a [Status] and of an [Add].
type WorkTree struct {
	Branch   string       `json:"branch"` // "" when none is checked out
	Commit   string       `json:"commit"` // "" before the first one
	Upstream string       `json:"upstream,omitempty"`
	Ahead    int          `json:"ahead"`
	Behind   int          `json:"behind"`
	Clean    bool         `json:"clean"`
	Files    []FileStatus `json:"files"`
	Omitted  int          `json:"omitted,omitempty"` // files that are not listed
}

// FileStatus is a path that differs. Index and WorkTree are "", modified,
// added, deleted, renamed, copied, type_changed, unmerged or untracked.
type FileStatus struct {
	Path     string `json:"path"`
	From     string `json:"from,omitempty"` // of a rename or copy
	Index    string `json:"index,omitempty"`
	WorkTree string `json:"worktree,omitempty"`
	Conflict bool   `json:"conflict,omitempty"`
}

// maxListed bounds the files of a result: results are stored.
const maxListed = 1000

func (Status) Name() string { return "status" }

func (s Status) plan() (plan, error) {
	return plan{path: s.Path, argv: statusArgv(), env: map[string]string{"GIT_OPTIONAL_LOCKS": "0"}, asked: at(s.Path)}, nil
}

func statusArgv() []string {
	return []string{"git", "status", "--porcelain=v2", "--branch", "--untracked-files=all", "--ahead-behind", "-z"}
}

// where is the detail of operations that take no more than a path.
type where struct {
	Path string `json:"path,omitempty"`
}

func at(p string) where { return where{p} }

func parseStatus(out []byte) (any, error) {
	w := WorkTree{Files: []FileStatus{}}
	total := 0
	f := fields{rest: out}
	for !f.empty() {
		line := f.next()
		var file FileStatus
		switch {
		case strings.HasPrefix(line, "# "):
			w.header(line[2:])
			continue
		case strings.HasPrefix(line, "1 "):
			file = changed(line, 9)
		case strings.HasPrefix(line, "2 "):
			file = changed(line, 10)
			file.From = f.next()
		case strings.HasPrefix(line, "u "):
			file = changed(line, 11)
			file.Conflict = true
		case strings.HasPrefix(line, "? "):
			file = FileStatus{Path: line[2:], WorkTree: "untracked"}
		case strings.HasPrefix(line, "! "):
			continue
		default:
			return nil, errMalformed
		}
		if file.Path == "" {
			return nil, errMalformed
		}
		if total++; total <= maxListed {
			w.Files = append(w.Files, file)
		}
	}
	w.Clean, w.Omitted = total == 0, total-len(w.Files)
	return w, f.end()
}

func (w *WorkTree) header(h string) {
	key, value, _ := strings.Cut(h, " ")
	switch key {
	case "branch.oid":
		if value != "(initial)" {
			w.Commit = value
		}
	case "branch.head":
		if value != "(detached)" {
			w.Branch = value
		}
	case "branch.upstream":
		w.Upstream = value
	case "branch.ab":
		ahead, behind, _ := strings.Cut(value, " ")
		w.Ahead, w.Behind = count(strings.TrimPrefix(ahead, "+")), count(strings.TrimPrefix(behind, "-"))
	}
}

// count reads a number of git's; what is none is 0.
func count(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// changed reads a line of n words, the last of which is a path with spaces.
func changed(line string, n int) FileStatus {
	words := strings.SplitN(line, " ", n)
	if len(words) < n || len(words[1]) != 2 {
		return FileStatus{}
	}
	return FileStatus{Path: words[n-1], Index: change(words[1][0]), WorkTree: change(words[1][1])}
}

func change(c byte) string {
	switch c {
	case 'M':
		return "modified"
	case 'A':
		return "added"
	case 'D':
		return "deleted"
	case 'R':
		return "renamed"
	case 'C':
		return "copied"
	case 'T':
		return "type_changed"
	case 'U':
		return "unmerged"
	}
	return ""
}

// fields reads output that ends every field with a NUL.
type fields struct {
	rest []byte
	bad  bool
}

func (f *fields) empty() bool { return len(f.rest) == 0 || f.bad }

func (f *fields) next() string {
	field, rest, ok := bytes.Cut(f.rest, []byte{0})
	if !ok {
		f.bad = true
		return ""
	}
	f.rest = rest
	return string(field)
}

// end is an error when a field was missing.
func (f *fields) end() error {
	if f.bad {
		return errMalformed
	}
	return nil
}
