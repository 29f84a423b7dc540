//go:build root

package node

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/internal/kernel"
)

// start runs the kernel in Node.
func start(t *testing.T) (*Client, *exec.Cmd) {
	t.Helper()
	dir := t.TempDir()
	script := filepath.Join(dir, "kernel.cjs")
	if err := os.WriteFile(script, Script, 0o600); err != nil {
		t.Fatal(err)
	}
	inR, inW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stopR, stopW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("node", script)
	cmd.Dir = dir
	cmd.ExtraFiles = []*os.File{inR, outW, stopR}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	inR.Close()
	outW.Close()
	stopR.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c, err := Open(ctx, inW, stopW, outR)
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if c != nil {
			<-c.Gone()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return c, cmd
}

type shown struct {
	Stdout, Stderr, Result string
	Displays               []kernel.Bundle
	Error                  string
}

func (s *shown) take(o kernel.Output) {
	switch {
	case o.Stream != nil && o.Stream.Name == "stdout":
		s.Stdout += o.Stream.Text
	case o.Stream != nil:
		s.Stderr += o.Stream.Text
	case o.Result != nil:
		_ = json.Unmarshal(o.Result.Data["text/plain"], &s.Result)
	case o.Display != nil:
		s.Displays = append(s.Displays, o.Display.Data)
	case o.Error != nil:
		s.Error = o.Error.Name + ": " + o.Error.Value
	}
}

func execute(t *testing.T, c *Client, code string) (s shown) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	r, err := c.Execute(ctx, kernel.Cell{Code: code}, s.take)
	if err != nil {
		t.Fatalf("%s: %v", code, err)
	}
	if (r.Status == "error") != (s.Error != "") {
		t.Errorf("%s: reply %+v, error %q", code, r, s.Error)
	}
	return s
}

func TestCells(t *testing.T) {
	c, _ := start(t)
	if !strings.HasPrefix(c.Version(), "v") {
		t.Errorf("Version = %q", c.Version())
	}
	for _, tt := range []struct {
		code string
		want shown
	}{
		{"const x = 20; let y = 1", shown{}},
		{"const x = 21", shown{}},
		{"x + y + 20", shown{Result: "42"}},
		{"'text'", shown{Result: "text"}},
		{"{a: 1}", shown{Result: "{\n  \"a\": 1\n}"}},
		{"undefined", shown{}},
		{"null", shown{Result: "null"}},
		{"10n", shown{Result: "10n"}},
		{"NaN", shown{Result: "NaN"}},
		{"new Map([[1, 2]])", shown{Result: "Map(1) { 1 => 2 }"}},
		{"const o = {}; o.o = o; o", shown{Result: "<ref *1> { o: [Circular *1] }"}},
		{"new Date(0)", shown{Result: "\"1970-01-01T00:00:00.000Z\""}},
		{"({a: 1, f() {}})", shown{Result: "{ a: 1, f: [Function: f] }"}},
		{"({toJSON() { throw new Error('no') }})", shown{Result: "{ toJSON: [Function: toJSON] }"}},
		{"await Promise.resolve(5)", shown{Result: "5"}},
		{"Promise.resolve({p: 1})", shown{Result: "{\n  \"p\": 1\n}"}},
		{"async function* g() { yield 1; yield 2 }\nfor await (const v of g()) console.log(v)", shown{Stdout: "1\n2\n"}},
		{"console.log('out'); console.error('err')", shown{Stdout: "out\n", Stderr: "err\n"}},
		{"function twice(n) {\n  return 2 * n;\n}\ntwice(4)", shown{Result: "8"}},
		{"require('node:path').basename('/a/b')", shown{Result: "b"}},
		{"throw new TypeError('bad')", shown{Error: "TypeError: bad"}},
		{"throw 5", shown{Error: "Error: 5"}},
		{"nope", shown{Error: "ReferenceError: nope is not defined"}},
		{"const z = ;", shown{Error: "SyntaxError: Unexpected token ';'"}},
		{"console.dir({b: 2}); console.info('i'); console.warn('w')", shown{Stdout: "{ b: 2 }\ni\n", Stderr: "w\n"}},
		{"process.stdout.write('a'); process.stderr.write(Buffer.from('é')); process.cwd() === require('path').resolve('.')", shown{Stdout: "a", Stderr: "é", Result: "true"}},
		{"Promise.reject(new RangeError('r'))", shown{Error: "RangeError: r"}},
		{"(async () => { throw new Error('nobody waits') })(); 3", shown{
			Result: "3", Stderr: "[async Error] nobody waits\n", Error: "AsyncError: Error: nobody waits",
		}},
		{"setTimeout(() => { throw new Error('late') }, 5); 4", shown{
			Result: "4", Stderr: "[async Error] late\n", Error: "AsyncError: Error: late",
		}},
		{"display('<b>hi</b>'); display({image: Buffer.from('png')}); display({svg: '<svg/>'}); display({json: {a: [1]}})", shown{
			Displays: []kernel.Bundle{
				{"text/html": json.RawMessage(`"<b>hi</b>"`)}, {"image/png": json.RawMessage(`"cG5n"`)},
				{"image/svg+xml": json.RawMessage(`"<svg/>"`)}, {"application/json": json.RawMessage(`{"a":[1]}`)},
			},
		}},
	} {
		if diff := cmp.Diff(tt.want, execute(t, c, tt.code)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.code, diff)
		}
	}
}

// What an event calls is out of SIGINT's reach.
func TestInterruptKeepsState(t *testing.T) {
	const spin = "console.log('on'); for (;;) { try { for (;;); } catch {} }"
	c, cmd := start(t)
	execute(t, c, "const kept = 'yes'; const { AsyncLocalStorage } = require('node:async_hooks')")
	for _, code := range []string{
		spin,
		// A cell that waits says so from the event loop, when all of it has run:
		// the engine may drop a signal that comes as its code ends.
		"setTimeout(() => console.log('on'), 20); await new Promise(() => {})",
		"setTimeout(() => console.log('on'), 20); new Promise(() => {})",
		"await 1; " + spin,
		"(async () => { await 1; " + spin + " })()",
		"({ get a() { " + spin + " } })",
		"({ then() { " + spin + " } })",
		"setTimeout(() => { " + spin + " }, 1); await new Promise(() => {})",
		"setImmediate(() => { " + spin + " }); await new Promise(() => {})",
		"process.nextTick(() => { " + spin + " }); await new Promise(() => {})",
		"require('fs').readFile('/dev/null', () => { " + spin + " }); await new Promise(() => {})",
		"new AsyncLocalStorage().run(1, () => setTimeout(() => { " + spin + " }, 1)); await new Promise(() => {})",
		"await 1; new (require('node:vm').Script)(\"" + spin + "\").runInThisContext()",
	} {
		var s shown
		var number int64
		_, err := c.Execute(inTime(t), kernel.Cell{Code: code, Began: func(n int64) { number = n }}, func(o kernel.Output) {
			if o.Stream != nil {
				if err := errors.Join(cmd.Process.Signal(syscall.SIGINT), c.Interrupt(number)); err != nil {
					t.Error(err)
				}
			}
			s.take(o)
		})
		if err != nil || s.Error != "Interrupted: the cell was interrupted" {
			t.Errorf("%s: %+v, %v", code, s, err)
		}
		if got := execute(t, c, "await new Promise((r) => setTimeout(r, 5)); await 1; kept"); got.Result != "yes" {
			t.Fatalf("state after an interrupt of %s: %+v", code, got)
		}
	}
}

// The kernel goes on where a test library has put fakes.
func TestFakes(t *testing.T) {
	c, cmd := start(t)
	execute(t, c, "const { setTimeout: later } = globalThis; globalThis.setTimeout = globalThis.setImmediate = () => 0; Date.now = () => 0;"+
		"JSON.stringify = JSON.parse = () => null; Atomics.load = Atomics.store = () => 0; require('fs').writeSync = () => 0")
	if got := execute(t, c, "await new Promise((r) => later(r, 5)); [1]"); got.Result != "[\n  1\n]" {
		t.Errorf("%+v", got)
	}
	var s shown
	var number int64
	if _, err := c.Execute(inTime(t), kernel.Cell{Code: "await 1; console.log('on'); for (;;);", Began: func(n int64) { number = n }}, func(o kernel.Output) {
		if o.Stream != nil {
			if err := errors.Join(cmd.Process.Signal(syscall.SIGINT), c.Interrupt(number)); err != nil {
				t.Error(err)
			}
		}
		s.take(o)
	}); err != nil || s.Error != "Interrupted: the cell was interrupted" {
		t.Errorf("%+v, %v", s, err)
	}
}

// What a cell left running holds up the next one, which can be ended all the
// same, and ends that too.
func TestInterruptOfACellThatCannotBegin(t *testing.T) {
	c, _ := start(t)
	execute(t, c, "let turns = 0; setInterval(() => { turns++; for (;;); }, 250)")
	ended := make(chan struct{})
	var number atomic.Int64
	go func() {
		defer close(ended)
		for range time.Tick(300 * time.Millisecond) {
			select {
			case ended <- struct{}{}:
				return
			default:
				_ = c.Interrupt(number.Load())
			}
		}
	}()
	var s shown
	for s.Error == "" { // the first may be in time
		if _, err := c.Execute(inTime(t), kernel.Cell{Code: "await new Promise((r) => setTimeout(r, 1000))", Began: number.Store}, s.take); err != nil {
			t.Fatal(err)
		}
	}
	if s.Error != "Interrupted: the cell was interrupted" {
		t.Errorf("%+v", s)
	}
	// Where the first interrupt came before the loop, the loop may begin only
	// now, and this cell may be the one that is interrupted.
	var got shown
	for ctx := inTime(t); got.Result == ""; {
		got = shown{}
		if _, err := c.Execute(ctx, kernel.Cell{Code: "turns", Began: number.Store}, got.take); err != nil {
			t.Fatal(err)
		}
	}
	<-ended
	if got.Result != "1" {
		t.Errorf("%+v", got)
	}
}

func TestKernelThatDies(t *testing.T) {
	c, _ := start(t)
	if _, err := c.Execute(inTime(t), kernel.Cell{Code: "process.exit(3)"}, func(kernel.Output) {}); !errors.Is(err, kernel.ErrGone) {
		t.Errorf("Execute = %v, want ErrGone", err)
	}
	if _, err := c.Execute(inTime(t), kernel.Cell{Code: "1"}, func(kernel.Output) {}); !errors.Is(err, kernel.ErrGone) {
		t.Errorf("afterwards: %v, want ErrGone", err)
	}
}

func TestNonsenseOnTheKernelsDescriptor(t *testing.T) {
	c, _ := start(t)
	code := `require('fs').writeSync(4, 'nonsense\n{"id":1,"reply":5}\n{"id":99,"reply":{"status":"ok"}}\n[]\n'); 7`
	if got := execute(t, c, code); got.Result != "7" {
		t.Errorf("%+v", got)
	}
}

func TestDeepResult(t *testing.T) {
	c, _ := start(t)
	if got := execute(t, c, "let deep = []; for (let i = 0; i < 100000; i++) deep = [deep]; deep"); !strings.Contains(got.Result, "[Array]") || got.Error != "" {
		t.Errorf("%+v", got)
	}
}

// Frames of the kernel are not the cell's.
func TestTraceback(t *testing.T) {
	c, _ := start(t)
	for _, code := range []string{"nope", "(() => { throw new Error('x') })()", "await (async () => { nope })()"} {
		var trace string
		if _, err := c.Execute(inTime(t), kernel.Cell{Code: code}, func(o kernel.Output) {
			if o.Error != nil {
				trace = strings.Join(o.Error.Traceback, "\n")
			}
		}); err != nil || !strings.Contains(trace, "<anonymous>:1:") || strings.Contains(trace, "kernel.cjs") || strings.Contains(trace, "new Promise") {
			t.Errorf("%s: %v\n%s", code, err, trace)
		}
	}
}

// One write of more than a message may carry, in characters of several bytes.
func TestLargeWrite(t *testing.T) {
	c, _ := start(t)
	got := execute(t, c, "process.stdout.write('€'.repeat(20 << 20))")
	if got.Stdout != strings.Repeat("€", 20<<20) {
		t.Errorf("%d bytes", len(got.Stdout))
	}
}

func TestMuchOutput(t *testing.T) {
	c, _ := start(t)
	var got strings.Builder // a string that grows a hundred thousand times is slow
	if _, err := c.Execute(inTime(t), kernel.Cell{Code: "for (let i = 0; i < 100000; i++) console.log(i)"}, func(o kernel.Output) {
		if o.Stream != nil {
			got.WriteString(o.Stream.Text)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if s := got.String(); strings.Count(s, "\n") != 100000 || !strings.HasSuffix(s, "99999\n") {
		t.Errorf("%d bytes", len(s))
	}
}

// inTime bounds what may never come: it shall fail its test and not hang it.
func inTime(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}
