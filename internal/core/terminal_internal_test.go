package core

import "testing"

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
