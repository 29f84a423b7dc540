package render

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/client"
)

// What a cell takes back is gone from a terminal, whatever it was.
func TestClearOutput(t *testing.T) {
	text := func(s string) client.CodeOutput { return client.CodeOutput{Stream: "stdout", Text: s} }
	now, then := client.CodeOutput{Clear: &client.ClearOutput{}}, client.CodeOutput{Clear: &client.ClearOutput{Wait: true}}
	tests := []struct {
		name  string
		shown []client.CodeOutput
		want  string
	}{
		{"at once", []client.CodeOutput{text("a\nb\n"), now, text("c\n")}, "a\nb\n\x1b[2A\r\x1b[Jc\n"},
		{"with what comes next", []client.CodeOutput{text("a\n"), then, then, text("b")}, "a\n\x1b[1A\r\x1b[Jb"},
		{"nothing comes", []client.CodeOutput{text("a\n"), then}, "a\n"},
		{"nothing was there", []client.CodeOutput{now, text("a")}, "\r\x1b[Ja"},
		{"twice", []client.CodeOutput{text("a\n"), now, text("b\n"), now}, "a\n\x1b[1A\r\x1b[Jb\n\x1b[1A\r\x1b[J"},
		{"a line without an end", []client.CodeOutput{text("a"), now, text("b")}, "a\r\x1b[Jb"},
		{"a display", []client.CodeOutput{text("a"), {Result: client.Bundle{"text/plain": json.RawMessage(`"v"`)}}, now}, "a\nv\n\x1b[2A\r\x1b[J"},
		{"more than the screen has", []client.CodeOutput{text(strings.Repeat("x\n", 30)), now}, strings.Repeat("x\n", 30) + "\x1b[4A\r\x1b[J"},
	}
	for _, tt := range tests {
		var out strings.Builder
		s := New(Options{Out: &out, ErrOut: &out, Box: "box", Size: func() *client.WindowSize { return &client.WindowSize{Cols: 10, Rows: 5} }})
		for _, o := range tt.shown {
			if err := s.Output(1, o); err != nil {
				t.Fatal(err)
			}
		}
		if out.String() != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, out.String(), tt.want)
		}
	}
}

func TestExtent(t *testing.T) {
	for text, want := range map[string]extent{
		"":                              {0, 0},
		"abc":                           {0, 3},
		"0123456789":                    {0, 10},
		"0123456789a":                   {1, 1},
		"0123456789\n":                  {1, 0},
		"a\r\nb":                        {1, 1},
		"100%\r  5":                     {0, 3},
		"漢字漢字漢字":                        {1, 2},
		"e\u0301":                       {0, 1},
		"\x1b[31mred\x1b[0m":            {0, 3},
		"one\ntwo\x1b[A\rone\x1b[1B\rx": {1, 1},
		"a\tb":                          {0, 9},
		"a\b":                           {0, 0},
		"\xff":                          {0, 1},
	} {
		var got extent
		if got.add(text, 10); got != want {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	}
}
