package mcp

import "testing"

func TestLine(t *testing.T) {
	for _, tt := range []struct {
		pieces []string
		want   string
	}{
		{nil, ""},
		{[]string{"one\n"}, "one"},
		{[]string{"one\ntwo"}, "two"},
		{[]string{"one\n\n  \n"}, "one"},
		{[]string{"on", "e\n", "  "}, "one"},
		{[]string{"\xff\xfeabc\n"}, "abc"},
	} {
		var l line
		for _, p := range tt.pieces {
			l.add([]byte(p))
		}
		if got := l.text(); got != tt.want {
			t.Errorf("%q: last line %q, want %q", tt.pieces, got, tt.want)
		}
	}
	var l line
	for range 1000 {
		l.add(make([]byte, 1000))
	}
	if len(l.open) > maxLine {
		t.Errorf("%d bytes of a line are kept", len(l.open))
	}
}
