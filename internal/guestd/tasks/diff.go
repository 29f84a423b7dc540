package tasks

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"strings"

	"github.com/cubbyhq/cubby/internal/task"
)

const (
	maxPatch   = 64 << 10
	maxPatches = 2 << 20
	// maxChanged and maxChangedNames bound the files of a diff: their number, and
	// the bytes of JSON of their names.
	maxChanged      = 1000
	maxChangedNames = 256 << 10
)

// changes lists what differs between two trees.
func (c *checkpoints) changes(ctx context.Context, from, to string) ([]task.Diff, error) {
	out, err := c.run(ctx, nil, "diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-ext-diff", "--no-textconv", from, to)
	if err != nil {
		return nil, err
	}
	return parseChanges(out), nil
}

// parseChanges reads what "git diff-tree -z --raw" prints. A file that became a
// link, or one that became a file, counts as modified.
func parseChanges(raw []byte) []task.Diff {
	var diffs []task.Diff
	fields := strings.Split(string(raw), "\x00")
	for i := 0; i+1 < len(fields); i += 2 {
		meta := strings.Fields(fields[i])
		if len(meta) != 5 || meta[4] == "" {
			break
		}
		d := task.Diff{Path: fields[i+1], Status: "modified"}
		switch meta[4][0] {
		case 'A':
			d.Status = "added"
		case 'D':
			d.Status = "deleted"
		case 'T':
			d.Truncated = true // has two patches; see patches
		}
		diffs = append(diffs, d)
	}
	return diffs
}

// compare returns the diffs between two trees, with their patches, as far as the
// bounds allow.
func (c *checkpoints) compare(ctx context.Context, from, to string, redact *redactor) ([]task.Diff, error) {
	diffs, err := c.changes(ctx, from, to)
	if err != nil || len(diffs) == 0 {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, gitPatience)
	defer cancel()
	cmd := c.command(ctx, "diff-tree", "-r", "-p", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-color", "--full-index", from, to)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.kids.start(cmd); err != nil {
		return nil, err
	}
	diffs = patches(out, diffs, redact)
	cancel() // what is over the bounds is not wanted
	_ = c.kids.wait(cmd)
	return diffs, nil
}

// patches reads what "git diff-tree -p" prints into the diffs, which are in the
// same order, and cuts them to the bounds.
func patches(from io.Reader, diffs []task.Diff, redact *redactor) []task.Diff {
	twice := make([]bool, len(diffs))
	names, kept := 0, len(diffs)
	for i := range diffs {
		twice[i], diffs[i].Truncated = diffs[i].Truncated, false
		name := printable(redact.text(diffs[i].Path))
		diffs[i].Path = name
		if names += len(escaped(name)) + 3; i >= maxChanged || names > maxChangedNames {
			kept = i
			break
		}
	}
	diffs, twice = diffs[:kept], twice[:kept]
	at, total := -1, 0
	second := false
	var text bytes.Buffer
	over := false
	finish := func() {
		if at < 0 || at >= len(diffs) {
			return
		}
		patch := redact.text(strings.ToValidUTF8(text.String(), "\uFFFD"))
		if cut := head(patch, min(maxPatch, maxPatches-total)); over || len(cut) < len(patch) {
			patch, diffs[at].Truncated = cut, true
		}
		diffs[at].Patch = patch
		total += len(patch)
	}
	lines := bufio.NewReaderSize(from, 64<<10)
	begin := true
	for {
		line, err := lines.ReadSlice('\n')
		if begin && bytes.HasPrefix(line, []byte("diff --git ")) {
			if at >= 0 && at < len(diffs) && twice[at] && !second {
				second = true
			} else {
				finish()
				at++
				second, over = false, false
				text.Reset()
				if at >= len(diffs) {
					return diffs
				}
			}
		}
		switch {
		case at < 0 || total >= maxPatches:
			over = true
		case begin && bytes.HasPrefix(line, []byte("Binary files ")):
			diffs[at].Binary = true
		case text.Len() > maxPatch+redact.longest:
			over = true
		default:
			text.Write(line)
		}
		begin = err == nil
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			break
		}
	}
	for finish(); at+1 < len(diffs); at++ {
		diffs[at+1].Truncated = diffs[at+1].Truncated || total >= maxPatches
	}
	for i := range diffs {
		if diffs[i].Binary {
			diffs[i].Patch, diffs[i].Truncated = "", false
		}
	}
	return diffs
}
