package tools

import (
	"testing"
	"unicode/utf8"
)

func TestParseMatch(t *testing.T) {
	for _, tt := range []struct {
		line string
		want match
		ok   bool
	}{
		{"./a b\x0012:x: y\n", match{"./a b", 12, "x: y"}, true},
		{"a\x001:\r\n", match{"a", 1, ""}, true},
		{"a\xff\x001:b\xff", match{"a\ufffd", 1, "b\ufffd"}, true},
		{"a:1:b", match{}, false}, {"a\x00b", match{}, false}, {"a\x00x:b", match{}, false}, {"a\x000:b", match{}, false}, {"\x001:b", match{}, false},
	} {
		if got, ok := parseMatch([]byte(tt.line)); got != tt.want || ok != tt.ok {
			t.Errorf("%q: %+v, %v", tt.line, got, ok)
		}
	}
}

func FuzzParseMatch(f *testing.F) {
	f.Add([]byte("a\x001:b\n"))
	f.Fuzz(func(t *testing.T, line []byte) {
		m, ok := parseMatch(line)
		if ok && (m.Path == "" || m.Line < 1 || !utf8.ValidString(m.Path+m.Text) || utf8.RuneCountInString(m.Text) > matchedLine) {
			t.Errorf("%q: %+v", line, m)
		}
	})
}
