package cell

import (
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/cubbyhq/cubby/internal/excerpt"
)

// Caps bound the texts of an [Execution], in characters; 0 and less is no
// bound. What is longer keeps its beginning and says how long it was.
type Caps struct {
	Stdout, Stderr int
	Result         int // each text of the result
	Traceback      int // and the message of an error
	// Ends: stdout and stderr keep their beginning and their end, half of the bound
	// each, and say nothing in between.
	Ends bool
}

// ends is c for a reader that shortens texts by itself.
func (c Caps) ends() Caps { return Caps{Stdout: c.Stdout, Stderr: c.Stderr, Ends: true} }

// DefaultCaps suit readers that pay for every word.
func DefaultCaps() Caps {
	return Caps{Stdout: 50_000, Stderr: 120_000, Result: 30_000, Traceback: 8_000}
}

// textBuffer keeps the beginning of a text, or its beginning and its end, and counts
// all of it. What is not UTF-8 becomes U+FFFD, a character for each byte.
type textBuffer struct {
	limit int // characters of kept; 0 and less: all
	kept  strings.Builder
	shown int    // characters in kept
	chars int64  // of the whole text
	torn  []byte // the beginning of a character

	last  int    // characters of end; 0: it is not kept
	end   []byte // what came after kept, at least the last of it
	ended int64  // characters in end
}

// newText returns a buffer of a text that is bounded.
func newText(limit int, ends bool) textBuffer {
	if !ends || limit <= 1 {
		return textBuffer{limit: limit}
	}
	return textBuffer{limit: limit - limit/2, last: limit / 2}
}

func (t *textBuffer) add(p []byte) {
	if len(t.torn) > 0 {
		// At most three bytes wait, and a few more settle what they are.
		head := slices.Concat(t.torn, p[:min(len(p), utf8.UTFMax)])
		used := 0
		for used < len(t.torn) && utf8.FullRune(head[used:]) {
			r, n := utf8.DecodeRune(head[used:])
			t.put(r)
			used += n
		}
		if used < len(t.torn) {
			t.torn = head[used:]
			return
		}
		p, t.torn = p[used-len(t.torn):], nil
	}
	whole := len(p) - tornTail(p)
	t.torn = append(t.torn[:0], p[whole:]...)
	p = p[:whole]
	n := utf8.RuneCount(p)
	switch {
	case t.limit > 0 && t.shown >= t.limit && t.last == 0:
		t.chars += int64(n)
	case t.limit > 0 && t.shown >= t.limit && utf8.Valid(p):
		t.chars += int64(n)
		t.putLast(p, n)
	case (t.limit <= 0 || t.shown+n <= t.limit) && utf8.Valid(p):
		t.kept.Write(p)
		t.shown += n
		t.chars += int64(n)
	default:
		for len(p) > 0 {
			r, n := utf8.DecodeRune(p)
			t.put(r)
			p = p[n:]
		}
	}
}

// tornTail is how many bytes at the end of p may be the beginning of a
// character.
func tornTail(p []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(p); n++ {
		if tail := p[len(p)-n:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				return n
			}
			return 0
		}
	}
	return 0
}

func (t *textBuffer) put(r rune) {
	t.chars++
	switch {
	case t.limit <= 0 || t.shown < t.limit:
		t.kept.WriteRune(r)
		t.shown++
	case t.last > 0:
		t.putLast(utf8.AppendRune(nil, r), 1)
	}
}

// putLast adds whole characters to the end. What is too much of it goes now and then.
func (t *textBuffer) putLast(p []byte, chars int) {
	t.end, t.ended = append(t.end, p...), t.ended+int64(chars)
	if t.ended > 2*int64(t.last)+64<<10 {
		t.trim()
	}
}

// trim leaves of the end what is kept of it.
func (t *textBuffer) trim() {
	if t.ended > int64(t.last) {
		t.end, t.ended = []byte(excerpt.Last(string(t.end), t.last)), int64(t.last)
	}
}

// finish takes what was torn as it is.
func (t *textBuffer) finish() {
	for range t.torn {
		t.put(utf8.RuneError)
	}
	t.torn = t.torn[:0]
}

// text ends the text. Each of the cut bytes, which did not come, counts as a
// character.
func (t *textBuffer) text(field string, cut int64, truncated map[string]int64) string {
	t.finish()
	if t.chars == int64(t.shown) && cut == 0 {
		return t.kept.String()
	}
	truncated[field] = t.chars + cut
	return t.kept.String() + excerpt.Suffix(t.chars+cut, t.shown)
}

// ends ends the text, and returns its beginning and, when something between them is
// missing, its end. There is no end when that is what did not come.
func (t *textBuffer) ends(field string, cut int64, truncated map[string]int64) (head, tail string) {
	t.finish()
	t.trim()
	head, tail = t.kept.String(), string(t.end)
	switch missing := t.chars - int64(t.shown) - t.ended; {
	case cut > 0:
		truncated[field] = t.chars + cut
		return head, ""
	case missing > 0:
		truncated[field] = t.chars
		return head, tail
	}
	return head + tail, ""
}

// capText is a whole text under a bound. Truncated may be nil when limit is
// none.
func capText(text string, limit int, field string, truncated map[string]int64) string {
	short, total := excerpt.Text(text, limit, 0)
	if total > 0 {
		truncated[field] = total
	}
	return short
}

// firstBytes is the beginning of a text, of whole characters.
func firstBytes(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "")
}

// ansi is what terminals act upon: colours, cursor moves, titles.
var ansi = regexp.MustCompile("\x1b(\\[[0-?]*[ -/]*[@-~]|\\][^\x07\x1b]*(\x07|\x1b\\\\)|[ -/]*[0-~])")

// withoutANSI is a text without what terminals act upon.
func withoutANSI(text string) string {
	if !strings.ContainsRune(text, 0x1b) {
		return text
	}
	return ansi.ReplaceAllString(text, "")
}
