package tools

import (
	"fmt"
	"unicode/utf8"

	"github.com/cubbyhq/cubby/internal/excerpt"
)

// Weight is how many bytes a text takes in a JSON string within a JSON string,
// which is the most that it takes anywhere in a result.
func Weight(s string) int {
	n := 0
	for i := 0; i < len(s); {
		w, size := runeWeight(s[i:])
		n, i = n+w, i+size
	}
	return n
}

func runeWeight(s string) (weight, size int) {
	r, size := utf8.DecodeRuneInString(s)
	switch {
	case r == '"' || r == '\\':
		return 4, size
	case r == '\n' || r == '\r' || r == '\t':
		return 3, size
	case r < ' ' || r == 0x7f || r == '<' || r == '>' || r == '&' || r == '\u2028' || r == '\u2029':
		return 7, size
	case r == utf8.RuneError:
		return 7, size
	}
	return size, size
}

// Head returns the longest beginning of a text whose weight is within a limit.
func Head(s string, limit int) string {
	for i := 0; i < len(s); {
		w, size := runeWeight(s[i:])
		if limit -= w; limit < 0 {
			return s[:i]
		}
		i += size
	}
	return s
}

// Bounded is a text within a limit, which says what it lacks; cut reports
// whether it does.
func Bounded(s string, limit int) (text string, cut bool) {
	h := Head(s, limit)
	if len(h) == len(s) {
		return s, false
	}
	return fmt.Sprintf("%s\n\n... [truncated — %d bytes total, showing first %d]", h, len(s), len(h)), true
}

// Tail returns the longest end of a text whose weight is within a limit.
func Tail(s string, limit int) string {
	for i := len(s); i > 0; {
		_, size := utf8.DecodeLastRuneInString(s[:i])
		w, _ := runeWeight(s[i-size : i])
		if limit -= w; limit < 0 {
			return s[i:]
		}
		i -= size
	}
	return s
}

// BoundedEnds is [Bounded] for what a command printed: it keeps the beginning and the
// end.
func BoundedEnds(s string, p Printed, limit int) (text string, cut bool) {
	if p.Cut == 0 && Weight(s) <= limit {
		return s, false
	}
	head, end := s, s
	if p.Cut > 0 {
		head, end = s[:len(s)-len(p.End)], p.End
	}
	head, end = Head(head, limit/2), Tail(end, limit/2)
	total := int64(len(s)) + p.Cut
	if p.Cut > 0 && p.End == "" {
		return head + fmt.Sprintf("\n\n... [truncated — %d bytes total, showing first %d]", total, len(head)), true
	}
	return head + excerpt.Gap(total, len(head), len(end), "bytes") + end, true
}
