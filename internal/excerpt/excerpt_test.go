package excerpt_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/cubbyhq/cubby/internal/excerpt"
)

func TestText(t *testing.T) {
	for _, tt := range []struct {
		text    string
		limit   int
		missing int64
		want    string
		total   int64
	}{
		{"", 3, 0, "", 0},
		{"abc", 3, 0, "abc", 0},
		{"abcd", 3, 0, "abc\n\n... [truncated — 4 chars total, showing first 3]", 4},
		{"äöüß", 3, 0, "äöü\n\n... [truncated — 4 chars total, showing first 3]", 4},
		{"äöü", 3, 0, "äöü", 0},
		{"ab", 3, 98, "ab\n\n... [truncated — 100 chars total, showing first 2]", 100},
		{"abcd", 0, 0, "abcd", 0},
		{"abcd", -1, 0, "abcd", 0},
	} {
		if got, total := excerpt.Text(tt.text, tt.limit, tt.missing); got != tt.want || total != tt.total {
			t.Errorf("%q to %d without %d: %q of %d, want %q of %d", tt.text, tt.limit, tt.missing, got, total, tt.want, tt.total)
		}
	}
}

func TestEnds(t *testing.T) {
	for _, tt := range []struct {
		head, tail string
		limit      int
		missing    int64
		want       string
		total      int64
	}{
		{"ab", "cd", 4, 0, "abcd", 0},
		{"abcd", "ef", 4, 0, "ab\n\n... [truncated — 6 chars total, showing first 2 and last 2] ...\n\nef", 6},
		{"abc", "def", 4, 94, "ab\n\n... [truncated — 100 chars total, showing first 2 and last 2] ...\n\nef", 100},
		{"äöü", "ßäö", 3, 94, "äö\n\n... [truncated — 100 chars total, showing first 2 and last 1] ...\n\nö", 100},
		{"abc", "def", 1, 0, "a\n\n... [truncated — 6 chars total, showing first 1]", 6},
		{"abc", "", 4, 97, "abc\n\n... [truncated — 100 chars total, showing first 3]", 100},
		{"abc", "def", 0, 0, "abcdef", 0},
	} {
		if got, total := excerpt.Ends(tt.head, tt.tail, tt.limit, tt.missing); got != tt.want || total != tt.total {
			t.Errorf("%q and %q to %d without %d: %q of %d, want %q of %d", tt.head, tt.tail, tt.limit, tt.missing, got, total, tt.want, tt.total)
		}
	}
}

func FuzzLast(f *testing.F) {
	f.Add("aä\u2028\U0001F600", 2)
	f.Fuzz(func(t *testing.T, text string, limit int) {
		last := excerpt.Last(text, limit)
		if !strings.HasSuffix(text, last) {
			t.Fatalf("%q does not end with %q", text, last)
		}
		if n := utf8.RuneCountInString(last); limit > 0 && utf8.ValidString(text) && (n > limit || n < limit && last != text || !utf8.ValidString(last)) {
			t.Errorf("the last %d characters of %q are %q", limit, text, last)
		}
	})
}

func FuzzFirst(f *testing.F) {
	f.Add("aä\u2028\U0001F600", 2)
	f.Fuzz(func(t *testing.T, text string, limit int) {
		first := excerpt.First(text, limit)
		if !strings.HasPrefix(text, first) {
			t.Fatalf("%q does not begin with %q", text, first)
		}
		if n := utf8.RuneCountInString(first); limit > 0 && n > limit || n < limit && first != text {
			t.Errorf("the first %d characters of %q are %q", limit, text, first)
		}
		if utf8.ValidString(text) && !utf8.ValidString(first) {
			t.Errorf("%q splits a character", first)
		}
	})
}
