package tty

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestValueIsReadWithoutItsLastNewline(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "v": "v", "v\n": "v", "v\r\n": "v", "v\n\n": "v\n", "a\nb": "a\nb", "a\nb\n": "a\nb", " v ": " v ", "v\r": "v\r", "\n": "",
	} {
		var asked strings.Builder
		got, err := ReadValue(t.Context(), strings.NewReader(in), &asked, "KEY")
		if err != nil || got != want || asked.Len() > 0 {
			t.Errorf("%q is read as %q, %v, asking %q, want %q", in, got, err, asked.String(), want)
		}
	}
}

// TestPartOfAValueIsNoValue: an input that breaks is an error.
func TestPartOfAValueIsNoValue(t *testing.T) {
	broken := errors.New("broken")
	got, err := ReadValue(t.Context(), io.MultiReader(strings.NewReader("hush"), iotest.ErrReader(broken)), io.Discard, "KEY")
	if !errors.Is(err, broken) || got != "" {
		t.Errorf("ReadValue = %q, %v", got, err)
	}
}
