package git

import "strconv"

// Log lists commits, newest first.
type Log struct {
	Path   string
	Branch string   // or any commit; default what is checked out
	Limit  int      // 0: 20, at most 200
	Files  []string // only commits that touch these
}

// History is the result of a [Log].
type History struct {
	Commits []Revision `json:"commits"`
}

const (
	usualLog = 20
	maxLog   = 200
)

func (Log) Name() string { return "log" }

func (l Log) plan() (plan, error) {
	if err := validateFiles(l.Files); err != nil {
		return plan{}, err
	}
	if l.Limit < 0 || l.Limit > maxLog {
		return plan{}, invalid("limit: between 1 and %d", maxLog)
	}
	limit := l.Limit
	if limit == 0 {
		limit = usualLog
	}
	argv := []string{"git", "log", "--max-count=" + strconv.Itoa(limit), "--encoding=UTF-8", "--no-show-signature", "--format=" + revisionFormat}
	if l.Branch != "" {
		if err := validateRef("branch", l.Branch); err != nil {
			return plan{}, err
		}
		argv = append(argv, l.Branch)
	}
	return plan{
		path: l.Path, argv: append(append(argv, "--"), l.Files...),
		asked: struct {
			Path   string   `json:"path,omitempty"`
			Branch string   `json:"branch,omitempty"`
			Limit  int      `json:"limit,omitempty"`
			Files  []string `json:"files,omitempty"`
		}{l.Path, l.Branch, l.Limit, l.Files},
	}, nil
}

func parseLog(out []byte) (any, error) {
	h := History{Commits: []Revision{}}
	f := fields{rest: out}
	for !f.empty() {
		r := f.revision()
		if f.bad || r.Commit == "" {
			return nil, errMalformed
		}
		h.Commits = append(h.Commits, r)
	}
	return h, nil
}
