package kernel

import (
	"slices"
	"strings"
	"testing"
)

// TestOutputAfterItsCellIsShownByTheNext is about threads and timers that print
// when their cell has ended.
func TestOutputAfterItsCellIsShownByTheNext(t *testing.T) {
	text := func(s string) Output { return Output{Stream: &Stream{Name: "stdout", Text: s}} }
	var b Backlog
	var shown []string
	var cut int64
	show := func(o Output) {
		cut += o.Cut
		switch {
		case o.Stream != nil && o.Stream.Text != "":
			shown = append(shown, o.Stream.Text[:1])
		case o.Display != nil:
			shown = append(shown, "display")
		}
	}
	want := func(when string, w ...string) {
		t.Helper()
		if !slices.Equal(shown, w) {
			t.Errorf("%s: shown = %q, want %q", when, shown, w)
		}
		shown = nil
	}
	b.Add(text("a"))
	b.Add(Output{Display: &Display{Data: Bundle{"text/plain": []byte(`"x"`)}}})
	b.Add(Output{Error: &Error{Name: "E"}})
	want("no cell runs")
	b.Begin(show)
	want("the next cell", "a", "display")
	b.Add(text("b"))
	want("while it runs", "b")
	b.End()
	for range 4 {
		b.Add(text(strings.Repeat("c", 100<<10)))
	}
	b.Add(text("d")) // behind what was left out
	want("after it")
	b.Begin(show)
	want("too much", "c", "c")
	if cut != 200<<10+1 {
		t.Errorf("cut = %d, want %d", cut, 200<<10+1)
	}
}
