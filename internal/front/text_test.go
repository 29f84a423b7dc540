package front_test

import (
	"testing"

	"github.com/cubbyhq/cubby/internal/front"
)

func TestPartialRune(t *testing.T) {
	for s, want := range map[string]int{"": 0, "a": 0, "é": 0, "a\xc3": 1, "a\xe2\x82": 2, "\xf0\x9f\x98": 3, "\xff": 0, "\x80\x80\x80\x80": 0} {
		if got := front.PartialRune([]byte(s)); got != want {
			t.Errorf("%q: %d bytes are of an unfinished character, want %d", s, got, want)
		}
	}
}
