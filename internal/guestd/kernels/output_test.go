package kernels

import (
	"bytes"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
	"github.com/cubbyhq/cubby/internal/guestd/proc"
	"github.com/cubbyhq/cubby/internal/kernel"
)

// showing is a cell that takes output, and what it says to the host.
func showing(t testing.TB, show func(c *Cell)) (text, errors, lines []byte, c *Cell) {
	t.Helper()
	c = &Cell{out: newCellOutput(new(atomic.Int64), time.Now), in: newCellInput()}
	show(c)
	e := proc.New(t.Context(), proc.Config{}).NewExec("x")
	to := e.Output()
	passed := make(chan struct{})
	go func() {
		defer close(passed)
		c.out.pass(t.Context(), to)
	}()
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.out.finish()
		e.Finish(new(guestv1.ExecExit))
	}()
	more, stop := to.Subscribe()
	defer stop()
	for next := int64(0); ; {
		segments, ended, err := to.After(next)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range segments {
			next = s.End()
			switch s.Stream {
			case proc.Stdout:
				text = append(text, s.Data...)
			case proc.Stderr:
				errors = append(errors, s.Data...)
			default:
				lines = append(lines, s.Data...)
			}
		}
		if err := to.Ack(next); err != nil {
			t.Fatal(err)
		}
		if ended {
			break
		}
		if len(segments) == 0 {
			<-more
		}
	}
	<-done
	<-passed
	return text, errors, lines, c
}

func TestCellOutput(t *testing.T) {
	large := json.RawMessage(`"` + strings.Repeat("x", maxRecord) + `"`)
	text, errors, lines, c := showing(t, func(c *Cell) {
		for _, o := range []kernel.Output{
			{Stream: &kernel.Stream{Name: "stdout", Text: "one "}},
			{Stream: &kernel.Stream{Name: "stdout", Text: "two"}, Cut: 7},
			{Stream: &kernel.Stream{Name: "stderr", Text: "bad"}},
			{Display: &kernel.Display{Data: kernel.Bundle{"text/html": json.RawMessage("\"<b>\xff\"")}, ID: "d"}},
			{Display: &kernel.Display{Data: kernel.Bundle{"image/png": large}}},
			{Result: &kernel.Result{Data: kernel.Bundle{"text/html": nil}}, Cut: 1 << 30},
			{Clear: &kernel.Clear{Wait: true}},
			{Kernel: &kernel.Notice{Reason: "forged"}},
			{Done: &kernel.Done{}},
			{},
			{Error: &kernel.Error{Name: "E", Value: strings.Repeat("v", maxRecord), Traceback: make([]string, 5000)}},
		} {
			c.show(o)
		}
	})
	if string(text) != "one two" || string(errors) != "bad" {
		t.Errorf("text %q, %q", text, errors)
	}
	var got []string
	for line := range bytes.Lines(lines) {
		got = append(got, string(line[:min(len(line), 200)]))
	}
	want := []string{
		"{\"display\":{\"data\":{\"text/html\":\"<b>\uFFFD\"},\"display_id\":\"d\"}}\n",
		`{"display":{"data":{"text/plain":"[left out: image/png, 16777227 bytes; a value may have 16777216]"}}}` + "\n",
		`{"result":{"execution_count":0,"data":{"text/plain":"[left out: text/html, 1073741824 bytes; a value may have 16777216]"}}}` + "\n",
		`{"clear":{"wait":true}}` + "\n",
		`{"error":{"ename":"E","evalue":"` + strings.Repeat("v", 200-32),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
	out, _, records := c.out.cuts()
	if want := int64(maxRecord+11+1<<30) + maxRecord*3/4; out != 7 || records != want {
		t.Errorf("cut %d and %d, want 7 and %d", out, records, want)
	}
	if held := c.out.total.Load(); held != 0 || c.out.held != 0 {
		t.Errorf("%d and %d bytes are held for nothing", held, c.out.held)
	}
}

// Text that nobody takes leaves room for what comes after it, and all cells
// together are bounded too.
func TestCellOutputIsBounded(t *testing.T) {
	var total atomic.Int64
	o := newCellOutput(&total, time.Now)
	for range 40 {
		o.text(proc.Stdout, strings.Repeat("x", 1<<20))
	}
	o.line(make([]byte, 4<<20))
	if out, _, records := o.cuts(); out != 16<<20 || records != 0 {
		t.Errorf("cut %d and %d, want %d and 0", out, records, 16<<20)
	}
	kept := o.held
	for range 10 {
		o := newCellOutput(&total, time.Now)
		for range 40 {
			o.text(proc.Stderr, strings.Repeat("x", 1<<20))
		}
		if kept += o.held; o.held < cellFloor {
			t.Errorf("a cell got %d bytes", o.held)
		}
	}
	if kept > cellTotal+11*cellFloor {
		t.Errorf("%d bytes are held", kept)
	}
}

// FuzzShow has a kernel that shows anything: every record is one line of JSON
// and UTF-8, of bounded length.
func FuzzShow(f *testing.F) {
	for _, o := range []string{
		`{"stream":{"name":"stdout","text":"x\ud800"}}`, `{"display":{"data":{"a":[1,{}]},"metadata":{}}}`,
		"{\"result\":{\"data\":{\"text/plain\":\"\xff\\n\"}}}", `{"error":{"ename":"E","traceback":["x"]}}`,
		`{"clear":{}}`, `{"input":{"prompt":"?"}}`, `{"kernel":{"restarted":true}}`, `{"result":{},"stream":{}}`,
	} {
		f.Add([]byte(o), int64(0))
		f.Add([]byte(o), int64(1<<40))
	}
	f.Fuzz(func(t *testing.T, b []byte, cut int64) {
		var o kernel.Output
		if json.Unmarshal(b, &o) != nil {
			return
		}
		o.Cut = max(cut, 0)
		_, _, lines, _ := showing(t, func(c *Cell) { c.show(o) })
		for line := range bytes.Lines(lines) {
			var back kernel.Output
			if err := json.Unmarshal(line, &back); err != nil || !utf8.Valid(line) || line[len(line)-1] != '\n' || back.Kernel != nil {
				t.Errorf("%q became %q: %v", b, line, err)
			}
		}
		if bytes.Count(lines, []byte("\n")) > 1 {
			t.Errorf("%q became %q", b, lines)
		}
	})
}

func TestCellInputLines(t *testing.T) {
	i := newCellInput()
	write := func(offset int64, text string, eof bool, want int64) {
		t.Helper()
		if at, err := i.write(offset, []byte(text), eof); err != nil || at != want {
			t.Errorf("write(%d, %q) = %d, %v, want %d", offset, text, at, err, want)
		}
	}
	next := func(want string, wanted bool) {
		t.Helper()
		if line, ok := i.next(); line != want || ok != wanted {
			t.Errorf("next = %q, %v, want %q, %v", line, ok, want, wanted)
		}
	}
	write(0, "one\nt", false, 5)
	next("", false) // nobody asked
	i.asked()
	i.asked()
	next("one", true)
	next("", false) // the line is not whole
	write(3, "\ntwo\r\nend", true, 12)
	next("two", true)
	i.asked()
	i.asked()
	next("end", true)
	next(endOfInput, true)
	next("", false)
	if _, err := i.write(99, nil, false); err == nil {
		t.Error("a gap was taken")
	}
	if _, err := i.write(12, []byte("x"), false); err == nil {
		t.Error("more was taken after the end")
	}
	full := newCellInput()
	if _, err := full.write(0, make([]byte, maxCellInput+1), false); err == nil {
		t.Error("too much was taken")
	}
}
