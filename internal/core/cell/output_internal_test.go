package cell

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/internal/excerpt"
	"github.com/cubbyhq/cubby/internal/kernel"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// rich is a line of rich output.
func rich(o kernel.Output) sandbox.Output {
	line, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	return richText(string(line) + "\n")
}

func richText(text string) sandbox.Output {
	return sandbox.Output{Stream: sandbox.Rich, Data: []byte(text)}
}

func printed(text string) sandbox.Output {
	return sandbox.Output{Stream: sandbox.Stdout, Data: []byte(text)}
}

func shows(id, text string) sandbox.Output {
	return rich(kernel.Output{Display: &kernel.Display{Data: plain(text), ID: id}})
}

func updates(id, text string) sandbox.Output {
	return rich(kernel.Output{Display: &kernel.Display{Data: plain(text), ID: id, Update: true}})
}

func clears(wait bool) sandbox.Output {
	return rich(kernel.Output{Clear: &kernel.Clear{Wait: wait}})
}

func plain(text string) kernel.Bundle { return kernel.Bundle{"text/plain": kernel.Quote(text)} }

// ended is a cell that ended.
func ended(reason sandbox.EndReason, code int) sandbox.Exec {
	limit := 2 * time.Second
	return sandbox.Exec{
		Spec: sandbox.ExecSpec{Kind: Kind, Cell: &sandbox.Cell{Kernel: "python"}, Timeout: &limit},
		Exit: &sandbox.Exit{Reason: reason, Code: &code},
	}
}

func assemble(x sandbox.Exec, caps Caps, all ...sandbox.Output) Execution {
	o := newOutput(caps)
	for _, out := range all {
		o.add(out)
	}
	var missing sandbox.Exit
	if x.Exit != nil {
		missing = *x.Exit
	}
	return o.execution(x, caps, missing)
}

func TestExecutionOfEverything(t *testing.T) {
	e := assemble(ended(sandbox.EndExited, 0), DefaultCaps(),
		rich(kernel.Output{Kernel: &kernel.Notice{Restarted: true, Reason: "it had died"}}),
		printed("a"),
		rich(kernel.Output{Display: &kernel.Display{
			Data: kernel.Bundle{"image/png": kernel.Quote("iVBO"), "text/plain": kernel.Quote("Figure")}, Metadata: json.RawMessage(`{"image/png":{"width":3}}`),
		}}),
		sandbox.Output{Stream: sandbox.Stderr, Data: []byte("warning\n")},
		printed("b\n"),
		rich(kernel.Output{Input: &kernel.Input{Prompt: "? "}}),
		rich(kernel.Output{Done: &kernel.Done{Count: 7}}),
		rich(kernel.Output{Result: &kernel.Result{Count: 7, Data: kernel.Bundle{
			"text/plain": kernel.Quote("(3, 2)"), "application/json": json.RawMessage(`{"a": [1, 2.50]}`),
		}}}),
	)
	want := Execution{
		Exec: e.Exec, Success: true, Stdout: "ab\n", Stderr: "warning\n", Count: 7, KernelRestarted: "it had died",
		Result: kernel.Bundle{"text/plain": kernel.Quote("(3, 2)"), "application/json": json.RawMessage(`{"a":[1,2.50]}`)},
		Outputs: []Display{{
			Data:     kernel.Bundle{"image/png": kernel.Quote("iVBO"), "text/plain": kernel.Quote("Figure")},
			Metadata: json.RawMessage(`{"image/png":{"width":3}}`),
		}},
		Truncated: map[string]int64{},
	}
	if diff := cmp.Diff(want, e); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDisplaysAreUpdatedAndCleared(t *testing.T) {
	tests := []struct {
		name string
		all  []sandbox.Output
		want []string
	}{
		{"updated in place", []sandbox.Output{shows("a", "1"), shows("", "2"), updates("a", "3")}, []string{"3", "2"}},
		{"updated everywhere", []sandbox.Output{shows("a", "1"), shows("a", "2"), updates("a", "3")}, []string{"3", "3"}},
		{"shown again", []sandbox.Output{shows("a", "1"), shows("a", "2")}, []string{"2", "2"}},
		{"of an earlier cell", []sandbox.Output{updates("a", "1"), updates("a", "2")}, []string{"2"}},
		{"no id", []sandbox.Output{updates("", "1"), updates("", "2")}, []string{"1", "2"}},
		{"cleared", []sandbox.Output{shows("a", "1"), clears(false), shows("", "2")}, []string{"2"}},
		{"an update of what was cleared", []sandbox.Output{shows("a", "1"), clears(false), updates("a", "2")}, []string{"2"}},
		{"cleared at the end", []sandbox.Output{shows("a", "1"), clears(false)}, nil},
		{"cleared by the next", []sandbox.Output{shows("a", "1"), clears(true), shows("", "2")}, []string{"2"}},
		{"cleared by text", []sandbox.Output{shows("a", "1"), clears(true), printed("x")}, nil},
		{"nothing came next", []sandbox.Output{shows("a", "1"), clears(true)}, []string{"1"}},
		{"an animation", []sandbox.Output{shows("", "1"), clears(true), shows("", "2"), clears(true), shows("", "3")}, []string{"3"}},
		{"torn apart", func() []sandbox.Output {
			var all []sandbox.Output
			for _, b := range shows("a", "1").Data {
				all = append(all, richText(string(b)))
			}
			return append(all, richText(`{"display":{"data":{"text/plain":"torn`))
		}(), []string{"1"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := assemble(ended(sandbox.EndExited, 0), Caps{}, tt.all...)
			var got []string
			for _, d := range e.Outputs {
				var text string
				if err := json.Unmarshal(d.Data["text/plain"], &text); err != nil {
					t.Fatal(err)
				}
				got = append(got, text)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("it shows (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCodeErrors(t *testing.T) {
	raised := rich(kernel.Output{Error: &kernel.Error{
		Name: "ValueError", Value: "\x1b[31mbad\x1b[0m", Traceback: []string{"\x1b[0;31mTraceback\x1b[0m", "line 1"},
	}})
	own := &Error{Type: "ValueError", Message: "bad", Traceback: "Traceback\nline 1"}
	died := rich(kernel.Output{Kernel: &kernel.Notice{Reason: "the kernel did not stop and was killed"}})
	cutOff := ended(sandbox.EndExited, 1)
	cutOff.Exit.Exception, cutOff.Exit.Message = "ns: ValueError", "ns: ValueError: bad: worse"
	untyped := ended(sandbox.EndExited, 1)
	untyped.Exit.Message = "ValueError: bad: worse"
	textless := ended(sandbox.EndExited, 1)
	textless.Exit.Exception, textless.Exit.Message = "KeyError", "KeyError: "
	said := ended(sandbox.EndKernel, 1)
	said.Exit.Message = "the kernel exited with code 3"
	tests := []struct {
		name string
		x    sandbox.Exec
		all  []sandbox.Output
		want *Error
	}{
		{"none", ended(sandbox.EndExited, 0), nil, nil},
		{"none yet", sandbox.Exec{}, nil, nil},
		{"raised", ended(sandbox.EndExited, 1), []sandbox.Output{raised}, own},
		{"raised while it still runs", sandbox.Exec{}, []sandbox.Output{raised}, own},
		{"failed without a word", ended(sandbox.EndExited, 1), nil,
			&Error{Type: "Error", Message: "the code failed"}},
		{"raised and not kept", cutOff, nil, &Error{Type: "ns: ValueError", Message: "bad: worse"}},
		{"raised, without a text, and not kept", textless, nil, &Error{Type: "KeyError", Message: "the code failed"}},
		{"raised under an agent that did not name it", untyped, nil, &Error{Type: "ValueError", Message: "bad: worse"}},
		{"timeout", ended(sandbox.EndTimeout, 1), []sandbox.Output{raised},
			&Error{Type: "TimeoutError", Message: "Execution timed out after 2s", Traceback: own.Traceback}},
		{"timeout that the kernel ignored", ended(sandbox.EndTimeout, 1), []sandbox.Output{died},
			&Error{Type: "TimeoutError", Message: "Execution timed out after 2s; the kernel did not stop and was killed"}},
		{"interrupted", ended(sandbox.EndKilled, 1), []sandbox.Output{raised}, own},
		{"interrupted without a word", ended(sandbox.EndKilled, 1), nil,
			&Error{Type: "InterruptedError", Message: "the code did not end by itself: killed"}},
		{"the kernel died", said, nil, &Error{Type: "KernelDiedError", Message: "the kernel exited with code 3"}},
		{"the kernel died after an error", said, []sandbox.Output{raised},
			&Error{Type: "KernelDiedError", Message: "the kernel exited with code 3", Traceback: own.Traceback}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := assemble(tt.x, DefaultCaps(), tt.all...)
			if diff := cmp.Diff(tt.want, e.Error); diff != "" {
				t.Errorf("the error (-want +got):\n%s", diff)
			}
		})
	}
	for _, reason := range []sandbox.EndReason{
		sandbox.EndTimeout, sandbox.EndOOM, sandbox.EndKilled, sandbox.EndDiskFull, sandbox.EndDestroyed, sandbox.EndStopped,
		sandbox.EndDied, sandbox.EndLost, sandbox.EndNotRun, sandbox.EndKernel,
	} {
		e := assemble(ended(reason, 1), DefaultCaps())
		if e.Success || e.Error == nil || e.Error.Type == "" || e.Error.Type == "Error" || e.Error.Message == "" {
			t.Errorf("a cell that ended %s has the error %+v", reason, e.Error)
		}
	}
}

func TestLongTextsAreTruncated(t *testing.T) {
	caps := Caps{Stdout: 10, Stderr: 4, Result: 6, Traceback: 5}
	e := assemble(ended(sandbox.EndExited, 1), caps,
		printed("0123456789"), printed("é"),
		sandbox.Output{Stream: sandbox.Stderr, Data: []byte("äöüß")},
		rich(kernel.Output{Result: &kernel.Result{Data: kernel.Bundle{
			"text/plain": kernel.Quote("äöüäöüx"), "text/html": kernel.Quote("123456"), "image/png": kernel.Quote("0123456789"),
		}}}),
		rich(kernel.Output{Error: &kernel.Error{Name: "E", Value: "short", Traceback: []string{"abc", "def"}}}),
	)
	text := func(original int, limit int, first string) string {
		return first + fmt.Sprintf("\n\n... [truncated — %d chars total, showing first %d]", original, limit)
	}
	want := Execution{
		Exec: e.Exec, Stdout: text(11, 10, "0123456789"), Stderr: "äöüß",
		Result: kernel.Bundle{"text/plain": kernel.Quote(text(7, 6, "äöüäöü")), "text/html": kernel.Quote("123456"), "image/png": kernel.Quote("0123456789")},
		Error:  &Error{Type: "E", Message: "short", Traceback: text(7, 5, "abc\nd")},
		Truncated: map[string]int64{
			"stdout": 11, "result.text/plain": 7, "error.traceback": 7,
		},
	}
	if diff := cmp.Diff(want, e); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// What the journal did not keep counts too.
	x := ended(sandbox.EndExited, 0)
	x.Exit.StdoutCut, x.Exit.RichCut = 1000, 7
	e = assemble(x, Caps{}, printed("01\xff"))
	if want := text(1003, 3, "01\uFFFD"); e.Stdout != want || e.Truncated["stdout"] != 1003 {
		t.Errorf("stdout = %q, %v, want %q", e.Stdout, e.Truncated, want)
	}
	if len(e.Outputs) != 1 || !strings.Contains(string(e.Outputs[0].Data["text/plain"]), "7 bytes") {
		t.Errorf("the outputs are %v, want a word about 7 bytes", e.Outputs)
	}
}

// TestTextInPieces compares every way to cut a text with the text.
func TestTextInPieces(t *testing.T) {
	for _, text := range []string{"", "plain", "añ€😀z", "\xff\xfe", "a\xe2\x82", "\xe2\x82a", "\xf0\x9f\x98\xe2\x82\xac", "\x80\x80\x80\x80\x80", "\xc3\xc3\xa9", "😀😀\xf0"} {
		for _, limit := range []int{0, 1, 2, 3, 100} {
			want := []rune(text)
			for at := range len(text) + 1 {
				for then := at; then <= len(text); then++ {
					b := textBuffer{limit: limit}
					truncated := make(map[string]int64)
					for _, piece := range []string{text[:at], text[at:then], text[then:]} {
						b.add([]byte(piece))
					}
					got := b.text("stdout", 0, truncated)
					if limit > 0 && len(want) > limit {
						if w := string(want[:limit]) + excerpt.Suffix(int64(len(want)), limit); got != w || truncated["stdout"] != int64(len(want)) {
							t.Fatalf("%q cut at %d and %d under %d is %q, %v, want %q", text, at, then, limit, got, truncated, w)
						}
					} else if got != string(want) || len(truncated) != 0 {
						t.Fatalf("%q cut at %d and %d under %d is %q, want %q", text, at, then, limit, got, string(want))
					}
				}
			}
		}
	}
}

// TestEndsInPieces compares the beginning and the end of a text that comes in pieces
// with the text.
func TestEndsInPieces(t *testing.T) {
	for _, text := range []string{"", "plain", "añ€😀zñ", "\xff\xfeab\xff", "a\xe2\x82bcd\xe2\x82", strings.Repeat("long", 40_000)} {
		for _, limit := range []int{0, 2, 3, 5, 100} {
			want := []rune(text)
			for _, size := range []int{1, 2, 3, 7, 70_000} {
				b, truncated := newText(limit, true), make(map[string]int64)
				for rest := text; rest != ""; {
					n := min(size, len(rest))
					b.add([]byte(rest[:n]))
					rest = rest[n:]
				}
				head, tail := b.ends("stdout", 0, truncated)
				switch {
				case limit == 0 || len(want) <= limit:
					if head != string(want) || tail != "" || len(truncated) > 0 {
						t.Errorf("%.20q under %d is %.20q and %.20q, %v", text, limit, head, tail, truncated)
					}
				case head != string(want[:limit-limit/2]) || tail != string(want[len(want)-limit/2:]) || truncated["stdout"] != int64(len(want)):
					t.Errorf("%.20q under %d is %.20q and %.20q, %v", text, limit, head, tail, truncated)
				}
				if head, tail := b.ends("stdout", 9, truncated); tail != "" || truncated["stdout"] != int64(len(want)+9) {
					t.Errorf("%.20q without its end is %.20q and %.20q, %v", text, head, tail, truncated)
				}
			}
		}
	}
}

func TestValuesAreWhatTheirTypeSays(t *testing.T) {
	in := `{"text/plain":7,"text/a":{"b":1},"text/list":["a\n","b",3],"text/null":null,"image/png":"iV\/BO","text/bad":"x\ud800y",` +
		`"text/pair":"\ud83d\ude00","application/json":{"a":"\u003c"},"application/vnd.plotly.v1+json":[1],"":"x","bad type":"x","ümlaut/x":"x"}`
	want := kernel.Bundle{
		"text/plain": kernel.Quote("7"), "text/a": kernel.Quote(`{"b":1}`), "text/list": kernel.Quote("a\nb"), "text/null": kernel.Quote("null"),
		"image/png": json.RawMessage(`"iV\/BO"`), "text/bad": kernel.Quote("x\uFFFDy"), "text/pair": kernel.Quote("😀"),
		"application/json": json.RawMessage(`{"a":"\u003c"}`), "application/vnd.plotly.v1+json": json.RawMessage(`[1]`),
	}
	if diff := cmp.Diff(want, bundle(json.RawMessage(in))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// FuzzRichOutput has anything for what a cell shows: what comes of it is
// bounded, valid UTF-8 and can be encoded.
func FuzzRichOutput(f *testing.F) {
	for _, out := range []sandbox.Output{
		shows("a", "1"), updates("a", "2"), clears(true), clears(false),
		rich(kernel.Output{Result: &kernel.Result{Count: 3, Data: plain("x")}}),
		rich(kernel.Output{Error: &kernel.Error{Name: "E", Value: "\x1b]0;t\x07v", Traceback: []string{"a", "b"}}}),
		rich(kernel.Output{Kernel: &kernel.Notice{Restarted: true, Reason: "r"}}),
		rich(kernel.Output{Kernel: &kernel.Notice{Reason: "r"}}),
	} {
		f.Add(out.Data, uint8(3))
	}
	f.Add([]byte("{\"display\":{\"data\":{\"text/plain\":\"\xff\\ud800\",\"a/json\":[[[{}]]]},\"metadata\":{\"a\":1}}}\n"), uint8(1))
	f.Fuzz(func(t *testing.T, data []byte, step uint8) {
		for _, reason := range []sandbox.EndReason{sandbox.EndExited, sandbox.EndTimeout} {
			o := newOutput(Caps{Result: 3, Traceback: 3})
			for rest := data; len(rest) > 0; {
				n := min(len(rest), 1+int(step))
				o.add(sandbox.Output{Stream: sandbox.Rich, Data: bytes.Clone(rest[:n])})
				rest = rest[n:]
			}
			e := o.execution(ended(reason, 1), Caps{Result: 3, Traceback: 3}, sandbox.Exit{})
			text, err := json.Marshal(struct {
				Result  kernel.Bundle
				Outputs []Display
				Error   *Error
				Why     string
			}{e.Result, e.Outputs, e.Error, e.KernelRestarted})
			if err != nil || !utf8.Valid(text) {
				t.Fatalf("%q became %q, %v", data, text, err)
			}
		}
	})
}
