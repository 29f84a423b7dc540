// Package excerpt shortens texts for readers that pay for every word. What is longer
// than its bound keeps its beginning and says how long it was, in the same words
// wherever cubby cuts something by characters. It never splits a character.
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
