package git

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"unicode/utf8"
)

// Diff asks for changes of tracked files that are not committed.
type Diff struct {
	Path   string
	Staged bool     // between the last commit and the index, instead of the index and the files
	Files  []string // only these, and what lies below them; none is all
}

// Changes is the result of a [Diff].
type Changes struct {
	Files     []FileDiff `json:"files"`
	Additions int64      `json:"additions"`         // lines
	Deletions int64      `json:"deletions"`         // lines
	Omitted   int        `json:"omitted,omitempty"` // files that are not listed, but counted
	// Patch is there only beside the output that has it: it is file contents,
	// which results do not keep.
	Patch         *string `json:"patch,omitempty"`
	PatchEncoding string  `json:"patch_encoding,omitempty"` // "base64" when it is not UTF-8
}

// FileDiff is how much a file changed.
type FileDiff struct {
	Path      string `json:"path"`
	From      string `json:"from,omitempty"` // of a rename
	Additions int64  `json:"additions"`
	Deletions int64  `json:"deletions"`
	Binary    bool   `json:"binary,omitempty"`
}

func (Diff) Name() string { return "diff" }

func (d Diff) plan() (plan, error) {
	if err := validateFiles(d.Files); err != nil {
		return plan{}, err
	}
	var args []string
	if d.Staged {
		args = append(args, "--cached")
	}
	return plan{
		path: d.Path, argv: script("diff", diffScript, append(append(args, "--"), d.Files...)...),
		env: map[string]string{"GIT_OPTIONAL_LOCKS": "0"},
		asked: struct {
			Path   string   `json:"path,omitempty"`
			Staged bool     `json:"staged,omitempty"`
			Files  []string `json:"files,omitempty"`
		}{d.Path, d.Staged, d.Files},
	}, nil
}

// diffScript asks twice: git prints conflicts as patches before any count.
const diffScript = `
git diff --no-color --no-ext-diff --find-renames -z --numstat "$@" || exit
printf '\0'
git diff --no-color --no-ext-diff --find-renames --patch "$@"
`

func parseDiff(out []byte) (any, error) {
	c, _, err := splitDiff(out)
	return c, err
}

// WithPatch returns the result of a diff with the patch in it that its output
// has.
func WithPatch(result json.RawMessage, stdout []byte) json.RawMessage {
	c, patch, err := splitDiff(stdout)
	var failed struct{ Error *Failure }
	if err != nil || json.Unmarshal(result, &failed) != nil || failed.Error != nil {
		return result
	}
	text := string(patch)
	if !utf8.Valid(patch) {
		text, c.PatchEncoding = base64.StdEncoding.EncodeToString(patch), "base64"
	}
	c.Patch = &text
	full, err := plainJSON(c)
	if err != nil {
		return result
	}
	return full
}

// splitDiff reads the counts, which an empty field separates from the patch.
func splitDiff(out []byte) (Changes, []byte, error) {
	c := Changes{Files: []FileDiff{}}
	f := fields{rest: out}
	total := 0
	for !f.empty() && f.rest[0] != 0 {
		file, err := f.numstat()
		if err != nil {
			return c, nil, err
		}
		c.Additions += file.Additions
		c.Deletions += file.Deletions
		if n := len(c.Files); n > 0 && c.Files[n-1].Path == file.Path {
			c.Files[n-1] = file // a path in conflict comes twice
			continue
		}
		if total++; total <= maxListed {
			c.Files = append(c.Files, file)
		}
	}
	c.Omitted = total - len(c.Files)
	return c, bytes.TrimPrefix(f.rest, []byte{0}), f.end()
}

// numstat reads "added TAB deleted TAB path", or for a rename "added TAB
// deleted TAB" and two more fields.
func (f *fields) numstat() (FileDiff, error) {
	added, rest, ok := bytes.Cut(f.rest, []byte{'\t'})
	deleted, rest, ok2 := bytes.Cut(rest, []byte{'\t'})
	if !ok || !ok2 {
		return FileDiff{}, errMalformed
	}
	f.rest = rest
	d := FileDiff{Path: f.next()}
	if d.Path == "" {
		d.From, d.Path = f.next(), f.next()
	}
	if string(added) == "-" && string(deleted) == "-" {
		d.Binary = true
	} else {
		a, err := strconv.ParseInt(string(added), 10, 64)
		b, err2 := strconv.ParseInt(string(deleted), 10, 64)
		if err != nil || err2 != nil || a < 0 || b < 0 {
			return d, errMalformed
		}
		d.Additions, d.Deletions = a, b
	}
	if d.Path == "" {
		return d, errMalformed
	}
	return d, f.end()
}
