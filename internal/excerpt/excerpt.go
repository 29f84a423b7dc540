// Package excerpt shortens texts for readers that pay for every word. What is longer
// than its bound keeps its beginning, or its beginning and its end, and says how long
// it was, in the same words wherever cubby cuts something by characters. It never
// splits a character.
package excerpt

import (
	"fmt"
	"unicode/utf8"
)

// Suffix says that a text is not all.
func Suffix(original int64, limit int) string {
	return fmt.Sprintf("\n\n... [truncated — %d chars total, showing first %d]", original, limit)
}

// First is the first characters of a text, all of it for a limit of 0 and less.
func First(text string, limit int) string {
	if limit <= 0 || len(text) <= limit {
		return text
	}
	n := 0
	for i := range text {
		if n == limit {
			return text[:i]
		}
		n++
	}
	return text
}

// Text is a text under a bound, of which so many bytes more did not come; each of
// those counts as a character. Total is how many characters there were when it is
// not whole, and 0 when it is.
func Text(text string, limit int, missing int64) (short string, total int64) {
	first := First(text, limit)
	if len(first) == len(text) && missing == 0 {
		return text, 0
	}
	total = int64(utf8.RuneCountInString(text)) + missing
	return first + Suffix(total, utf8.RuneCountInString(first)), total
}

// Last is the last characters of a text, all of it for a limit of 0 and less.
func Last(text string, limit int) string {
	if limit <= 0 || len(text) <= limit {
		return text
	}
	start := len(text)
	for range limit {
		_, size := utf8.DecodeLastRuneInString(text[:start])
		if start -= size; start == 0 {
			break
		}
	}
	return text[start:]
}

// Ends is a text under a bound that keeps its beginning and its end: the last lines
// of a build or a test say what went wrong. The text is head and tail, with so many
// bytes between them that did not come; each of those counts as a character. Without a
// tail they would have come last, and what is missing is the end. Total is as for
// [Text].
func Ends(head, tail string, limit int, missing int64) (short string, total int64) {
	whole := head + tail
	if tail == "" && missing > 0 {
		return Text(head, limit, missing)
	}
	if missing == 0 {
		if First(whole, limit) == whole {
			return whole, 0
		}
		head, tail = whole, whole
	}
	total = int64(utf8.RuneCountInString(whole)) + missing
	if limit > 0 {
		head, tail = First(head, max(1, limit-limit/2)), lastOrNone(tail, limit/2)
	}
	first, last := utf8.RuneCountInString(head), utf8.RuneCountInString(tail)
	if last == 0 {
		return head + Suffix(total, first), total
	}
	return head + Gap(total, first, last, "chars") + tail, total
}

// Gap stands between the beginning and the end of a text that is not all.
func Gap(original int64, first, last int, unit string) string {
	return fmt.Sprintf("\n\n... [truncated — %d %s total, showing first %d and last %d] ...\n\n", original, unit, first, last)
}

// lastOrNone is [Last] for which a limit of 0 is none.
func lastOrNone(text string, limit int) string {
	if limit == 0 {
		return ""
	}
	return Last(text, limit)
}
