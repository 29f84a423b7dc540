package sse

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"go.uber.org/goleak"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// numbers counts to n and then fails, or waits for the end of its context.
func numbers(n int, end error) func(context.Context) iter.Seq2[int, error] {
	return func(ctx context.Context) iter.Seq2[int, error] {
		return func(yield func(int, error) bool) {
			for i := range n {
				if !yield(i, nil) {
					return
				}
			}
			if end != nil {
				yield(0, end)
				return
			}
			<-ctx.Done()
		}
	}
}

func TestPumpKeepsOrderAndEndsForEveryReason(t *testing.T) {
	broken, refused := errors.New("broken"), errors.New("refused")
	drained := make(chan struct{})
	close(drained)
	tests := []struct {
		name  string
		drain chan struct{}
		end   error
		item  func(i int, cancel context.CancelFunc) error
		tick  error
		want  error
	}{
		{name: "the source fails", end: broken, want: broken},
		{name: "the client refuses", item: func(i int, _ context.CancelFunc) error {
			if i == 5 {
				return refused
			}
			return nil
		}, want: refused},
		{name: "the client leaves", item: func(i int, cancel context.CancelFunc) error {
			if i == 9 {
				cancel()
			}
			return nil
		}, want: context.Canceled},
		{name: "a ping fails", tick: refused, want: refused},
		{name: "the daemon drains", drain: drained, want: ErrDraining},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			last := -1
			err := Pump(ctx, tt.drain, numbers(10, tt.end), time.Millisecond, func(i int) error {
				if i != last+1 {
					t.Errorf("item %d came after %d", i, last)
				}
				last = i
				if tt.item != nil {
					return tt.item(i, cancel)
				}
				return nil
			}, func() error { return tt.tick })
			if !errors.Is(err, tt.want) {
				t.Errorf("Pump = %v, want %v", err, tt.want)
			}
		})
	}
}

func TestPumpEndsWithItsSource(t *testing.T) {
	seq := func(context.Context) iter.Seq2[int, error] {
		return func(yield func(int, error) bool) { yield(1, nil) }
	}
	got := 0
	if err := Pump(context.Background(), nil, seq, time.Hour, func(i int) error { got += i; return nil }, nil); err != nil || got != 1 {
		t.Errorf("Pump = %v with %d, want nil with 1", err, got)
	}
}

func TestJoinerKeepsCharactersWhole(t *testing.T) {
	text := "aé€😀b"
	for size := 1; size <= len(text); size++ {
		var j joiner
		var got strings.Builder
		next := int64(0)
		take := func(outputs []sandbox.Output) {
			for _, o := range outputs {
				if !utf8.Valid(o.Data) {
					t.Errorf("pieces of %d: %q is no text", size, o.Data)
				}
				if o.Offset != next {
					t.Errorf("pieces of %d: offset %d, want %d", size, o.Offset, next)
				}
				next = o.Offset + int64(len(o.Data))
				got.Write(o.Data)
			}
		}
		for at := 0; at < len(text); at += size {
			piece := []byte(text[at:min(at+size, len(text))])
			take(j.add(sandbox.Output{Offset: int64(at), Stream: sandbox.Stdout, Data: piece}))
		}
		take(j.flush())
		if got.String() != text {
			t.Errorf("pieces of %d: got %q, want %q", size, got.String(), text)
		}
	}
}

func TestJoinerLosesNothing(t *testing.T) {
	half, rest := []byte("\xe2\x82"), []byte("\xac")
	tests := []struct {
		name string
		in   []sandbox.Output
		want string
	}{
		{"the other stream comes between", []sandbox.Output{
			{Offset: 0, Stream: sandbox.Stdout, Data: half}, {Offset: 2, Stream: sandbox.Stderr, Data: []byte("x")}, {Offset: 3, Stream: sandbox.Stdout, Data: rest},
		}, `stdout@0"\xe2\x82" stderr@2"x" stdout@3"\xac"`},
		{"a gap", []sandbox.Output{
			{Offset: 0, Stream: sandbox.Stdout, Data: half}, {Offset: 9, Stream: sandbox.Stdout, Data: rest},
		}, `stdout@0"\xe2\x82" stdout@9"\xac"`},
		{"binary", []sandbox.Output{{Offset: 0, Stream: sandbox.Stdout, Data: []byte("\xff\x00\x80")}}, `stdout@0"\xff\x00\x80"`},
		{"it never ends", []sandbox.Output{{Offset: 7, Stream: sandbox.Stdout, Data: half}}, `stdout@7"\xe2\x82"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var j joiner
			var all []sandbox.Output
			for _, o := range tt.in {
				all = append(all, j.add(o)...)
			}
			var parts []string
			for _, o := range append(all, j.flush()...) {
				parts = append(parts, fmt.Sprintf("%s@%d%q", o.Stream, o.Offset, o.Data))
			}
			if got := strings.Join(parts, " "); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestRichLines(t *testing.T) {
	out := func(offset int64, text string) sandbox.Output {
		return sandbox.Output{Offset: offset, Stream: sandbox.Rich, Data: []byte(text)}
	}
	tests := []struct {
		name string
		in   []sandbox.Output
		want string
	}{
		{"whole lines", []sandbox.Output{out(5, "{\"a\":1}\n{\"b\":2}\n")}, `13{"a":1} 21{"b":2}`},
		{"pieces", []sandbox.Output{out(0, "{\"a\""), out(4, ":1}"), out(7, "\n{"), out(9, "}\n")}, `8{"a":1} 11{}`},
		{"text between pieces ends the line", []sandbox.Output{out(0, "{\"a\""), out(9, ":1}\n{}\n")}, `16{}`},
		{"a beginning in the middle", []sandbox.Output{out(7, "{\"c\":1}}\n{\"d\":1}\n")}, `24{"d":1}`},
		{"never ended", []sandbox.Output{out(0, "{\"a\":1}")}, ``},
		{"no events of its own", []sandbox.Output{out(0, "{\"a\":\r1}\nevent: exit\n\n{\"b\":\"\xff\"}\n")}, `9{"a":1} 32{"b":"` + "\uFFFD" + `"}`},
		{"too deep to be read", []sandbox.Output{out(0, "{\"[[\":"+strings.Repeat("[", 200)+strings.Repeat("]", 200)+"}\n{\"[\\\"[\":[]}\n")}, `420{"[\"[":[]}`},
		{"no object", []sandbox.Output{out(0, "1\n[]\nnull\n{}{}\n{\"a\":}\n{}\n")}, `25{}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var r richLines
			var parts []string
			for _, o := range tt.in {
				for _, line := range r.add(o) {
					parts = append(parts, fmt.Sprintf("%d%s", line.Next, line.JSON))
				}
			}
			if got := strings.Join(parts, " "); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

// TestRichLinesAreBounded: a line without an end takes no memory without end.
func TestRichLinesAreBounded(t *testing.T) {
	var r richLines
	piece := []byte("{" + strings.Repeat(" ", 1<<20))
	at := int64(0)
	for range largestRich/len(piece) + 2 {
		if got := r.add(sandbox.Output{Offset: at, Stream: sandbox.Rich, Data: piece}); len(got) > 0 || len(r.held) > largestRich {
			t.Fatalf("%d lines, %d bytes are held", len(got), len(r.held))
		}
		at += int64(len(piece))
	}
	if got := r.add(sandbox.Output{Offset: at, Stream: sandbox.Rich, Data: []byte("}\n{}\n")}); len(got) != 1 || string(got[0].JSON) != "{}" {
		t.Errorf("after a line without an end came %v", got)
	}
}

// TestDialectsEvents: data on one line with an id behind it, and a comment that no
// blank line makes an event of.
func TestDialectsEvents(t *testing.T) {
	w := httptest.NewRecorder()
	s, err := New(w, http.StatusOK)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{s.SendData("7.1", "values", []byte(`{"a":1}`)), s.Comment("heartbeat"), s.SendData("7.2", "end", []byte(`{}`))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	const want = "event: values\ndata: {\"a\":1}\nid: 7.1\n\n: heartbeat\nevent: end\ndata: {}\nid: 7.2\n\n"
	if got := w.Body.String(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
