package tools

import (
	"fmt"
	"unicode/utf8"
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
