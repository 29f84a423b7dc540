// Package replay decides what those who come to a terminal are shown of its earlier
// output: where it begins, and without the questions that programs put to the
// terminal. It reads nothing but the journal.
package replay

import (
	"bytes"
	"context"
	"unicode/utf8"

	"github.com/cubbyhq/cubby/internal/journal"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// replayBytes is how much of a terminal's output a new viewer sees at first.
const replayBytes = 256 << 10

// safeSearch is how far a replay looks for a place to begin. A line of a shell
// is shorter.
const safeSearch = 8 << 10

// From returns where a viewer begins who asks for the output after an
// offset, and where the output ends now.
func From(ctx context.Context, journals *journal.Journals, box sandbox.UID, seq, after int64) (from, end int64, err error) {
	first, end, err := journals.Span(box, seq)
	if err != nil {
		return 0, 0, err
	}
	if after >= first && after <= end {
		return after, end, nil // in the middle of anything, as the viewer has what was before
	}
	from = first
	if after < 0 || after > end {
		from = max(first, end-replayBytes)
	}
	if from == 0 {
		return 0, end, nil
	}
	var head []byte
	for entry, err := range journals.Read(ctx, box, seq, from, false) {
		if err != nil {
			return 0, 0, err
		}
		if entry.Exit != nil {
			break
		}
		if len(head) == 0 {
			from = entry.Output.Offset // a ring may have moved on
		}
		if head = append(head, entry.Output.Data...); len(head) >= safeSearch {
			break
		}
	}
	return from + int64(safeStart(head[:min(len(head), safeSearch)])), end, nil
}

// safeStart returns where output that was cut off in front can be shown from
// without showing a part of a character or of an escape sequence as text:
// behind the first line break, or else at the first escape, or else at the
// first whole character.
func safeStart(b []byte) int {
	if i := bytes.IndexByte(b, '\n'); i >= 0 {
		return i + 1
	}
	if i := bytes.IndexByte(b, '\x1b'); i >= 0 {
		return i
	}
	for i := range b {
		if i == utf8.UTFMax || utf8.RuneStart(b[i]) {
			return i
		}
	}
	return len(b)
}
