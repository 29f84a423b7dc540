package replay

import (
	"bytes"
	"strings"
	"testing"
)

func TestSafeStart(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"", ""},
		{"rt of a line\nnext\n", "next\n"},
		{"\n", ""},
		{"31mred\x1b[0m plain", "\x1b[0m plain"},
		{"\x1b[1mbold", "\x1b[1mbold"},
		{"plain", "plain"},
		{"\xa4\xb8\xad文", "文"},
		{"\x82\xac", ""},
		{"\x80\x80\x80\x80\x80", "\x80"}, // no UTF-8 at all
	} {
		if got := tt.text[safeStart([]byte(tt.text)):]; got != tt.want {
			t.Errorf("%q begins at %q, want %q", tt.text, got, tt.want)
		}
	}
}

// TestQueriesAreNotAskedAgain: ! is where a question was cancelled, # where
// the rest of its end was taken out.
func TestQueriesAreNotAskedAgain(t *testing.T) {
	for _, tt := range []struct{ shown, want string }{
		{"plain text c n\r\n", ""},
		{"\x1b[1;31mred\x1b[0m \x1b[2J\x1b[H\x1b[?1049h\x1b[>4;1m\x1b[22;0t\x1b[2 q\x1b[s\x1b[u", ""},
		{"a\x1b[cb\x1b[>0cc\x1b[=cd", "a\x1b[!b\x1b[>0!c\x1b[=!d"},
		{"\x1b[6n\x1b[?6n\x1b[5n", "\x1b[6!\x1b[?6!\x1b[5!"},
		{"\x1b[>4n", ""},
		{"\x1b[?12$p\x1b[!p\x1b[>q\x1b[?u", "\x1b[?12$!\x1b[!p\x1b[>!\x1b[?!"},
		{"\x1b[14t\x1b[8;24;80t\x1b[x\x1bZ", "\x1b[14!\x1b[8;24;80t\x1b[!\x1b!"},
		{"\x1b]0;title\x07\x1b]0;title\x1b\\text", ""},
		{"\x1b]11;?\x07\x1b]10;?\x1b\\text", "\x1b]11;?!\x1b]10;?!#text"},
		{"\x1bP$qm\x1b\\\x1bP+q544e\x1b\\\x1bPpixels\x1b\\", "\x1bP$qm!#\x1bP+q544e!#\x1bPpixels\x1b\\"},
		{"\x1b]11;?\x1b[c", "\x1b]11;?![c"},
		{"\x1bP$q\x1b\x1bP$q\x1b\\", "\x1bP$q!\x1bP$q!#"},
		{"\x1b[\x18c \x1b[1\x1b[c", "\x1b[\x18c \x1b[1\x1b[!"},
	} {
		want := strings.NewReplacer("!", "\x18", "#", "\x00").Replace(tt.want)
		if tt.want == "" {
			want = tt.shown
		}
		want = strings.ReplaceAll(want, "[\x18p", "[!p") // a reset, no mark
		for cut := range len(tt.shown) {
			var q Filter
			got := []byte(tt.shown)
			q.Strip(got[:cut])
			q.Strip(got[cut:])
			if string(got) != want {
				t.Errorf("%q, cut at %d: %q, want %q", tt.shown, cut, got, want)
				break
			}
		}
	}
}

func FuzzQueryFilter(f *testing.F) {
	f.Add([]byte("\x1b[c\x1b]11;?\x1b\\\x1bP$q\x1b["))
	f.Fuzz(func(t *testing.T, b []byte) {
		got := bytes.Clone(b)
		var q Filter
		q.Strip(got)
		again := bytes.Clone(got)
		q = Filter{}
		if q.Strip(again); !bytes.Equal(got, again) {
			t.Errorf("%q became %q and then %q", b, got, again)
		}
		for i := range b {
			if b[i] != got[i] && got[i] != can && got[i] != 0 {
				t.Errorf("%q became %q", b, got)
			}
		}
	})
}
