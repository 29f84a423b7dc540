//go:build root

package core_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/core/cell"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// python runs a cell in the sandbox's kernel for Python to its end.
func (w *world) python(id, code string) cell.Execution {
	w.t.Helper()
	return w.code(id, cell.Request{Code: code})
}

func (w *world) code(id string, r cell.Request) cell.Execution {
	w.t.Helper()
	e, err := w.Code().Run(w.ctx, id, r, -1)
	if err != nil {
		w.t.Fatalf("%s: %v", r.Code, err)
	}
	return e
}

// startCode begins a cell and returns at once.
func (w *world) startCode(id string, r cell.Request) sandbox.Exec {
	w.t.Helper()
	x, err := w.Code().Start(w.ctx, id, r)
	if err != nil {
		w.t.Fatalf("%s: %v", r.Code, err)
	}
	return x
}

// says waits until a cell has printed a text.
func (w *world) says(id string, seq int64, text string) {
	w.t.Helper()
	var all strings.Builder
	for e, err := range w.Execs().Output(w.ctx, id, seq, 0, true) {
		if err != nil || e.Exit != nil {
			w.t.Fatalf("cell %d ended with %q and not %q: %+v, %v", seq, all.String(), text, e.Exit, err)
		}
		all.Write(e.Output.Data)
		if strings.Contains(all.String(), text) {
			return
		}
	}
	w.t.Fatalf("cell %d wrote %q and not %q", seq, all.String(), text)
}

// held is code that says ready and then waits, and what lets it go on. Waiting
// can be interrupted.
func held(t *testing.T) (code string, open func()) {
	path := filepath.Join(t.TempDir(), "gate")
	code = fmt.Sprintf(`
import os, time
print("ready", flush=True)
while not os.path.exists(%q):
    time.sleep(0.02)
`, path)
	return code, func() {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func plainResult(e cell.Execution) string {
	var text string
	if e.Result != nil {
		if err := json.Unmarshal(e.Result["text/plain"], &text); err != nil {
			return err.Error()
		}
	}
	return text
}

func TestCodeKeepsItsState(t *testing.T) {
	w := newWorld(t)
	b := w.create("a")
	if e := w.python("a", "x = 20\nprint('out')\nimport sys; print('err', file=sys.stderr)"); !e.Success || e.Stdout != "out\n" || e.Stderr != "err\n" ||
		e.Result != nil || e.Error != nil || e.Count != 1 {
		t.Fatalf("the first cell: %+v, error %+v", e, e.Error)
	}
	e := w.python("a", "x += 1; x")
	if !e.Success || plainResult(e) != "21" || e.Count != 2 || e.KernelRestarted != "" || e.Exec.Seq != 2 || *e.Exec.Exit.Code != 0 {
		t.Errorf("the second cell: %+v, error %+v", e, e.Error)
	}
	e = w.python("a", "def f(): raise ValueError('bad')\nf()")
	if e.Success || e.Error == nil || e.Error.Type != "ValueError" || e.Error.Message != "bad" || !strings.Contains(e.Error.Traceback, "ValueError: bad") ||
		strings.Contains(e.Error.Traceback, "\x1b") || e.Count != 3 || e.Exec.Status != sandbox.ExecDone || *e.Exec.Exit.Code != 1 {
		t.Errorf("the third cell: %+v, error %+v", e, e.Error)
	}
	// It is read again as it was, and what is stored says the same in short.
	again, err := w.Code().Execution(w.ctx, "a", 3)
	if err != nil || again.Error == nil || *again.Error != *e.Error || again.Stdout != e.Stdout || again.Count != 3 {
		t.Errorf("Execution = %+v, %v", again, err)
	}
	var stored sandbox.Exec
	w.until("the store knows the end", func() bool {
		stored, err = w.store.Exec(w.ctx, b.UID, 3)
		return err != nil || stored.Status.Finished()
	})
	want := `{"kernel":"python","language":"python","execution_count":3,"success":false,"error":{"type":"ValueError","message":"bad"}}`
	if string(stored.Result) != want {
		t.Errorf("the stored result is %s, want %s", stored.Result, want)
	}
	if string(stored.Spec.Detail) != `{"kernel":"python","language":"python"}` || stored.Spec.Cell.Code == "" {
		t.Errorf("the stored cell is %+v with %s", stored.Spec.Cell, stored.Spec.Detail)
	}
	kinds := eventKinds(w, b, 3)
	if !slices.Equal(kinds, []string{"code.run running", "code.run done"}) && !slices.Equal(kinds, []string{"code.run done"}) {
		t.Errorf("the history has %v of the cell", kinds)
	}
	events, err := w.store.Events(w.ctx, b.UID, 0, 0)
	if text := fmt.Sprint(events); err != nil || strings.Contains(text, "raise") {
		t.Errorf("the history holds code: %s, %v", text, err)
	}
}

// eventKinds lists the events of an exec with their status.
func eventKinds(w *world, b sandbox.Sandbox, seq int64) (kinds []string) {
	w.t.Helper()
	events, err := w.store.Events(w.ctx, b.UID, 0, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, e := range events {
		if e.Seq == seq {
			kinds = append(kinds, e.Kind+" "+string(e.Status))
		}
	}
	return kinds
}

func TestCodeRunsInTheOrderOfItsNumbers(t *testing.T) {
	w := newWorld(t)
	b := w.create("a")
	w.python("a", "log = []")
	hold, open := held(t)
	first := w.startCode("a", cell.Request{Code: hold})
	w.says("a", first.Seq, "ready")
	var last sandbox.Exec
	want := make([]string, 20)
	for i := range want {
		last = w.startCode("a", cell.Request{Code: fmt.Sprintf("log.append(%d)", i)})
		want[i] = fmt.Sprint(i)
	}
	// Polling sees it wait, and what it has to show by then.
	e, err := w.Code().Execution(w.ctx, "a", last.Seq)
	if err != nil || e.Exec.Status != sandbox.ExecPending || e.Success || e.Error != nil || e.Stdout != "" {
		t.Errorf("the last one is %+v, %v", e, err)
	}
	if e, err := w.Code().Execution(w.ctx, "a", first.Seq); err != nil || e.Exec.Status != sandbox.ExecRunning || e.Stdout != "ready\n" {
		t.Errorf("the first one is %+v, %v", e, err)
	}
	if k, err := w.Kernels().Get(w.ctx, "a", "python"); err != nil || k.Status != sandbox.KernelBusy || k.Waiting != 20 || k.PID == 0 {
		t.Errorf("the kernel is %+v, %v", k, err)
	}
	// Another kernel does not wait for this one, nor do commands.
	if e := w.code("a", cell.Request{Kernel: "other", Language: "python", Code: "'log' in globals()"}); plainResult(e) != "False" {
		t.Errorf("the other kernel says %+v, error %+v", e, e.Error)
	}
	if r := w.sh("a", "echo plain"); string(r.Stdout) != "plain\n" {
		t.Errorf("a command wrote %q", r.Stdout)
	}
	// A wait that is over first returns what goes on.
	if e, err := w.Code().Run(w.ctx, "a", cell.Request{Code: "log.append('poll')"}, 0); err != nil || e.Exec.Status != sandbox.ExecPending {
		t.Errorf("RunCode without a wait = %+v, %v", e, err)
	}
	if list, err := w.Sessions().List(w.ctx, "a"); err != nil || len(list) != 0 {
		t.Errorf("kernels are among the sessions: %v, %v", list, err)
	}
	open()
	e = w.python("a", "print(*log)")
	if e.Stdout != strings.Join(append(want, "poll"), " ")+"\n" {
		t.Errorf("they ran as %s", e.Stdout)
	}
	if kinds := eventKinds(w, b, last.Seq); len(kinds) == 0 || kinds[0] != "code.run pending" {
		t.Errorf("the history has %v of one that waited", kinds)
	}
}

func TestCodeThatTakesTooLongIsInterrupted(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	w.python("a", "x = 7")
	short := 100 * time.Millisecond
	e := w.code("a", cell.Request{Code: "while True: pass", Timeout: &short})
	if e.Success || e.Exec.Exit.Reason != sandbox.EndTimeout || e.Error == nil || e.Error.Type != "TimeoutError" || e.Error.Message != "Execution timed out after 0.1s" {
		t.Errorf("it ended %+v, error %+v", e.Exec.Exit, e.Error)
	}
	// What the kernel answers to an interrupt changes nothing about that.
	for _, code := range []string{
		"!sleep 3600",
		"import time\ntry:\n    while True: time.sleep(0.01)\nexcept KeyboardInterrupt: print('caught')\n'went on'",
		"%%bash\nsleep 3600; echo went on",
	} {
		second := time.Second
		e := w.code("a", cell.Request{Code: code, Timeout: &second})
		if e.Success || e.Exec.Exit.Reason != sandbox.EndTimeout || e.Exec.Exit.Code == nil || *e.Exec.Exit.Code == 0 ||
			e.Error == nil || e.Error.Type != "TimeoutError" || e.Error.Message != "Execution timed out after 1s" ||
			strings.Contains(code, "caught") && (e.Stdout != "caught\n" || plainResult(e) != "'went on'") {
			t.Errorf("%s ended %+v with %q, error %+v", code, e.Exec.Exit, e.Stdout, e.Error)
		}
	}
	if e := w.python("a", "x"); plainResult(e) != "7" || e.KernelRestarted != "" {
		t.Errorf("then x is %+v, error %+v", e, e.Error)
	}
}

func TestCodeIsCanceled(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	w.python("a", "x = 7")
	hold, _ := held(t)
	running := w.startCode("a", cell.Request{Code: hold})
	waiting := w.startCode("a", cell.Request{Code: "x = 8"})
	w.says("a", running.Seq, "ready")
	if x, err := w.Execs().Cancel(w.ctx, "a", waiting.Seq); err != nil || x.Exit == nil || x.Exit.Reason != sandbox.EndNotRun {
		t.Errorf("Cancel of the one that waits = %+v, %v", x.Exit, err)
	}
	if x, err := w.Execs().Cancel(w.ctx, "a", running.Seq); err != nil || x.Exit == nil || x.Exit.Reason != sandbox.EndKilled {
		t.Errorf("Cancel = %+v, %v", x.Exit, err)
	}
	e, err := w.Code().Execution(w.ctx, "a", running.Seq)
	if err != nil || e.Success || e.Error == nil || e.Error.Type != "KeyboardInterrupt" || e.Stdout != "ready\n" {
		t.Errorf("the canceled one is %+v, error %+v, %v", e, e.Error, err)
	}
	if e, err := w.Code().Execution(w.ctx, "a", waiting.Seq); err != nil || e.Error == nil || e.Error.Type != "NotStartedError" || e.Pruned {
		t.Errorf("the one that waited is %+v, error %+v, %v", e, e.Error, err)
	}
	if e := w.python("a", "x"); plainResult(e) != "7" || e.KernelRestarted != "" {
		t.Errorf("then x is %+v, error %+v", e, e.Error)
	}
	// What has ended leaves nothing to cancel, and the kernel alone.
	if x, err := w.Execs().Cancel(w.ctx, "a", running.Seq); err != nil || x.Exit.Reason != sandbox.EndKilled {
		t.Errorf("a second Cancel = %+v, %v", x.Exit, err)
	}
	if err := w.Execs().Signal(w.ctx, "a", running.Seq, "INT", true); !errors.Is(err, errs.WrongState) {
		t.Errorf("Signal = %v, want wrong state", err)
	}
	if e := w.python("a", "x"); plainResult(e) != "7" {
		t.Errorf("at last x is %+v, error %+v", e, e.Error)
	}
}

// TestCodeIsCanceledAsItBegins: whenever the cancel comes, the cell does not go on.
func TestCodeIsCanceledAsItBegins(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	w.python("a", "x = 7")
	for i := range 40 {
		e := w.startCode("a", cell.Request{Code: "while True: pass"})
		time.Sleep(time.Duration(i) * time.Millisecond / 4)
		if x, err := w.Execs().Cancel(w.ctx, "a", e.Seq); err != nil || x.Exit == nil || x.Exit.Reason != sandbox.EndKilled && x.Exit.Reason != sandbox.EndNotRun {
			t.Fatalf("Cancel number %d = %+v, %v", i, x.Exit, err)
		}
	}
	if e := w.python("a", "x"); plainResult(e) != "7" || e.KernelRestarted != "" {
		t.Errorf("then x is %+v, error %+v", e, e.Error)
	}
}

func TestCodeAsksForInput(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	x := w.startCode("a", cell.Request{Code: "name = input('who? '); print('hello', name)", Stdin: true})
	if _, err := w.Execs().WriteStdin(w.ctx, "a", x.Seq, -1, []byte("world\n"), false); err != nil {
		t.Fatal(err)
	}
	w.wait("a", x.Seq)
	if e, err := w.Code().Execution(w.ctx, "a", x.Seq); err != nil || !e.Success || !strings.Contains(e.Stdout, "hello world") {
		t.Errorf("it is %+v, error %+v, %v", e, e.Error, err)
	}
	if e := w.python("a", "input()"); e.Success || e.Error == nil || e.Error.Type != "StdinNotImplementedError" {
		t.Errorf("without input: %+v, error %+v", e, e.Error)
	}
}

func TestCodeRefused(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	w.create("stopped")
	if _, err := w.Sandboxes().Stop(w.ctx, "stopped", 0); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		id   string
		r    cell.Request
		want errs.Kind
	}{
		{"nobody", cell.Request{Code: "1"}, errs.NotFound},
		{"stopped", cell.Request{Code: "1"}, errs.WrongState},
		{"a", cell.Request{Code: "1", Kernel: "no/name"}, errs.Invalid},
		{"a", cell.Request{Code: "1", Kernel: "unknown"}, errs.NotFound},
		{"a", cell.Request{Code: "\xff"}, errs.Invalid},
		{"a", cell.Request{Code: strings.Repeat("#", sandbox.MaxCode+1)}, errs.TooLarge},
	}
	for _, tt := range tests {
		if _, err := w.Code().Start(w.ctx, tt.id, tt.r); !errors.Is(err, tt.want) {
			t.Errorf("StartCode of %.20q in %s of %s = %v, want %v", tt.r.Code, tt.r.Kernel, tt.id, err, tt.want)
		}
	}
	for name, call := range map[string]func(id string) error{
		"Kernels":         func(id string) error { _, _, err := w.Kernels().List(w.ctx, id); return err },
		"Kernel":          func(id string) error { _, err := w.Kernels().Get(w.ctx, id, "python"); return err },
		"InterruptKernel": func(id string) error { _, err := w.Kernels().Interrupt(w.ctx, id, "python"); return err },
		"RestartKernel":   func(id string) error { _, err := w.Kernels().Restart(w.ctx, id, "python"); return err },
		"DeleteKernel":    func(id string) error { return w.Kernels().Delete(w.ctx, id, "python") },
		"CreateKernel": func(id string) error {
			_, err := w.Kernels().Create(w.ctx, id, sandbox.KernelSpec{Language: "cobol"})
			return err
		},
	} {
		if err := call("stopped"); !errors.Is(err, errs.WrongState) || errs.Public(err).Hint == "" {
			t.Errorf("%s of a stopped sandbox = %v, want wrong state with a hint", name, err)
		}
		if err := call("a"); name != "Kernels" && !errors.Is(err, errs.NotFound) {
			t.Errorf("%s = %v, want not found", name, err)
		}
	}
	// A language that the image has not is found out when the cell's turn comes.
	e := w.code("a", cell.Request{Language: "cobol", Code: "1"})
	if e.Exec.Exit.Reason != sandbox.EndNotRun || e.Error == nil || !strings.Contains(e.Error.Message, "cobol") {
		t.Errorf("a cell in cobol ended %+v, error %+v", e.Exec.Exit, e.Error)
	}
	x := w.sh("a", "true").Exec
	if _, err := w.Code().Execution(w.ctx, "a", x.Seq); !errors.Is(err, errs.Invalid) || errs.Public(err).Hint == "" {
		t.Errorf("Execution of a command = %v, want invalid with a hint", err)
	}
	if _, err := w.Code().Execution(w.ctx, "a", 99); !errors.Is(err, errs.NotFound) {
		t.Errorf("Execution of nothing = %v, want not found", err)
	}
}

func TestManyCellsAtOnce(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	w.python("a", "n = 0")
	var wg sync.WaitGroup
	for range 60 {
		wg.Go(func() {
			if e, err := w.Code().Run(w.ctx, "a", cell.Request{Code: "n += 1"}, -1); err != nil || !e.Success {
				t.Errorf("it ended %+v, %v", e.Exec.Exit, err)
			}
		})
	}
	wg.Wait()
	if e := w.python("a", "n"); plainResult(e) != "60" {
		t.Errorf("n is %+v, error %+v", e, e.Error)
	}
}
