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

	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// python runs a cell in the sandbox's kernel for Python to its end.
func (w *world) python(id, code string) core.Execution {
	w.t.Helper()
	return w.code(id, core.CodeRequest{Code: code})
}

func (w *world) code(id string, r core.CodeRequest) core.Execution {
	w.t.Helper()
	e, err := w.RunCode(w.ctx, id, r, -1)
	if err != nil {
		w.t.Fatalf("%s: %v", r.Code, err)
	}
	return e
}

// startCode begins a cell and returns at once.
func (w *world) startCode(id string, r core.CodeRequest) sandbox.Exec {
	w.t.Helper()
	x, err := w.StartCode(w.ctx, id, r)
	if err != nil {
		w.t.Fatalf("%s: %v", r.Code, err)
	}
	return x
}

// says waits until a cell has printed a text.
func (w *world) says(id string, seq int64, text string) {
	w.t.Helper()
	var all strings.Builder
	for e, err := range w.Output(w.ctx, id, seq, 0, true) {
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

func plainResult(e core.Execution) string {
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
	again, err := w.Execution(w.ctx, "a", 3)
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
	first := w.startCode("a", core.CodeRequest{Code: hold})
	w.says("a", first.Seq, "ready")
	var last sandbox.Exec
	want := make([]string, 20)
	for i := range want {
		last = w.startCode("a", core.CodeRequest{Code: fmt.Sprintf("log.append(%d)", i)})
		want[i] = fmt.Sprint(i)
	}
	// Polling sees it wait, and what it has to show by then.
	e, err := w.Execution(w.ctx, "a", last.Seq)
	if err != nil || e.Exec.Status != sandbox.ExecPending || e.Success || e.Error != nil || e.Stdout != "" {
		t.Errorf("the last one is %+v, %v", e, err)
	}
	if e, err := w.Execution(w.ctx, "a", first.Seq); err != nil || e.Exec.Status != sandbox.ExecRunning || e.Stdout != "ready\n" {
		t.Errorf("the first one is %+v, %v", e, err)
	}
	if k, err := w.Kernel(w.ctx, "a", "python"); err != nil || k.Status != sandbox.KernelBusy || k.Waiting != 20 || k.PID == 0 {
		t.Errorf("the kernel is %+v, %v", k, err)
	}
	// Another kernel does not wait for this one, nor do commands.
	if e := w.code("a", core.CodeRequest{Kernel: "other", Language: "python", Code: "'log' in globals()"}); plainResult(e) != "False" {
		t.Errorf("the other kernel says %+v, error %+v", e, e.Error)
	}
	if r := w.sh("a", "echo plain"); string(r.Stdout) != "plain\n" {
		t.Errorf("a command wrote %q", r.Stdout)
	}
	// A wait that is over first returns what goes on.
	if e, err := w.RunCode(w.ctx, "a", core.CodeRequest{Code: "log.append('poll')"}, 0); err != nil || e.Exec.Status != sandbox.ExecPending {
		t.Errorf("RunCode without a wait = %+v, %v", e, err)
	}
	if list, err := w.Sessions(w.ctx, "a"); err != nil || len(list) != 0 {
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
	e := w.code("a", core.CodeRequest{Code: "while True: pass", Timeout: &short})
	if e.Success || e.Exec.Exit.Reason != sandbox.EndTimeout || e.Error == nil || e.Error.Type != "TimeoutError" || e.Error.Message != "Execution timed out after 0.1s" {
		t.Errorf("it ended %+v, error %+v", e.Exec.Exit, e.Error)
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
	running := w.startCode("a", core.CodeRequest{Code: hold})
	waiting := w.startCode("a", core.CodeRequest{Code: "x = 8"})
	w.says("a", running.Seq, "ready")
	if x, err := w.Cancel(w.ctx, "a", waiting.Seq); err != nil || x.Exit == nil || x.Exit.Reason != sandbox.EndNotRun {
		t.Errorf("Cancel of the one that waits = %+v, %v", x.Exit, err)
	}
	if x, err := w.Cancel(w.ctx, "a", running.Seq); err != nil || x.Exit == nil || x.Exit.Reason != sandbox.EndKilled {
		t.Errorf("Cancel = %+v, %v", x.Exit, err)
	}
	e, err := w.Execution(w.ctx, "a", running.Seq)
	if err != nil || e.Success || e.Error == nil || e.Error.Type != "KeyboardInterrupt" || e.Stdout != "ready\n" {
		t.Errorf("the canceled one is %+v, error %+v, %v", e, e.Error, err)
	}
	if e, err := w.Execution(w.ctx, "a", waiting.Seq); err != nil || e.Error == nil || e.Error.Type != "NotStartedError" || e.Pruned {
		t.Errorf("the one that waited is %+v, error %+v, %v", e, e.Error, err)
	}
	if e := w.python("a", "x"); plainResult(e) != "7" || e.KernelRestarted != "" {
		t.Errorf("then x is %+v, error %+v", e, e.Error)
	}
	// What has ended leaves nothing to cancel, and the kernel alone.
	if x, err := w.Cancel(w.ctx, "a", running.Seq); err != nil || x.Exit.Reason != sandbox.EndKilled {
		t.Errorf("a second Cancel = %+v, %v", x.Exit, err)
	}
	if err := w.Signal(w.ctx, "a", running.Seq, "INT", true); !errors.Is(err, errs.WrongState) {
		t.Errorf("Signal = %v, want wrong state", err)
	}
	if e := w.python("a", "x"); plainResult(e) != "7" {
		t.Errorf("at last x is %+v, error %+v", e, e.Error)
	}
}

func TestCodeAsksForInput(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	x := w.startCode("a", core.CodeRequest{Code: "name = input('who? '); print('hello', name)", Stdin: true})
	if _, err := w.WriteStdin(w.ctx, "a", x.Seq, -1, []byte("world\n"), false); err != nil {
		t.Fatal(err)
	}
	w.wait("a", x.Seq)
	if e, err := w.Execution(w.ctx, "a", x.Seq); err != nil || !e.Success || !strings.Contains(e.Stdout, "hello world") {
		t.Errorf("it is %+v, error %+v, %v", e, e.Error, err)
	}
	if e := w.python("a", "input()"); e.Success || e.Error == nil || e.Error.Type != "StdinNotImplementedError" {
		t.Errorf("without input: %+v, error %+v", e, e.Error)
	}
}

func TestKernelThatDies(t *testing.T) {
	w := newWorld(t)
	b := w.create("a")
	w.python("a", "x = 7")
	e := w.python("a", "import os; print('last words', flush=True); os._exit(3)")
	if e.Success || e.Exec.Exit.Reason != sandbox.EndKernel || e.Error == nil || e.Error.Type != "KernelDiedError" || !strings.Contains(e.Error.Message, "3") {
		t.Errorf("it ended %+v, error %+v", e.Exec.Exit, e.Error)
	}
	k, err := w.Kernel(w.ctx, "a", "python")
	if err != nil || k.Status != sandbox.KernelDead || k.Reason == "" {
		t.Errorf("the kernel is %+v, %v", k, err)
	}
	e = w.python("a", "'x' in globals()")
	if plainResult(e) != "False" || e.KernelRestarted == "" || e.Count != 1 {
		t.Errorf("the next one is %+v, error %+v", e, e.Error)
	}
	if e := w.python("a", "1"); e.KernelRestarted != "" {
		t.Errorf("the one after says that the kernel was restarted: %s", e.KernelRestarted)
	}
	w.until("the history tells of it", func() bool {
		events, err := w.store.Events(w.ctx, b.UID, 0, 0)
		return err == nil && count(events, event.KernelDied) == 1
	})
}

func TestKernels(t *testing.T) {
	w := newWorld(t)
	b := w.create("a")
	kernels, kinds, err := w.Kernels(w.ctx, "a")
	if err != nil || len(kernels) != 0 || !slices.ContainsFunc(kinds, func(k sandbox.KernelKind) bool { return k.Language == "python" && k.Spec == "python3" }) {
		t.Fatalf("Kernels = %v, %v, %v", kernels, kinds, err)
	}
	k, err := w.CreateKernel(w.ctx, "a", sandbox.KernelSpec{Name: "mine", Cwd: "dir/..", Env: map[string]string{"MINE": "yes"}})
	if err != nil || k.Name != "mine" || k.Language != "python" || k.Status != sandbox.KernelIdle {
		t.Fatalf("CreateKernel = %+v, %v", k, err)
	}
	if _, err := w.CreateKernel(w.ctx, "a", sandbox.KernelSpec{Name: "mine", Language: "python"}); !errors.Is(err, errs.Conflict) {
		t.Errorf("a second one = %v, want conflict", err)
	}
	if e := w.code("a", core.CodeRequest{Kernel: "mine", Code: "import os; x = 1; print(os.environ['MINE'], os.path.basename(os.getcwd()))"}); e.Stdout != "yes workspace\n" {
		t.Errorf("in it: %+v, error %+v", e, e.Error)
	}
	hold, _ := held(t)
	x := w.startCode("a", core.CodeRequest{Kernel: "mine", Code: hold})
	w.says("a", x.Seq, "ready")
	if _, err := w.InterruptKernel(w.ctx, "a", "mine"); err != nil {
		t.Errorf("InterruptKernel: %v", err)
	}
	if x = w.wait("a", x.Seq); x.Exit.Reason != sandbox.EndKilled {
		t.Errorf("the interrupted cell ended %+v", x.Exit)
	}
	if e := w.code("a", core.CodeRequest{Kernel: "mine", Code: "x"}); plainResult(e) != "1" {
		t.Errorf("then x is %+v, error %+v", e, e.Error)
	}
	if k, err := w.RestartKernel(w.ctx, "a", "mine"); err != nil || k.Restarts != 1 || k.Count != 0 {
		t.Errorf("RestartKernel = %+v, %v", k, err)
	}
	if e := w.code("a", core.CodeRequest{Kernel: "mine", Code: "'x' in globals()"}); plainResult(e) != "False" || e.KernelRestarted == "" {
		t.Errorf("then x is there: %+v, error %+v", e, e.Error)
	}

	// A deleted kernel takes its cells with it, and is not made again for those
	// that wait.
	x = w.startCode("a", core.CodeRequest{Kernel: "mine", Code: hold})
	waiting := w.startCode("a", core.CodeRequest{Kernel: "mine", Code: "1"})
	w.says("a", x.Seq, "ready")
	if err := w.DeleteKernel(w.ctx, "a", "mine"); err != nil {
		t.Errorf("DeleteKernel: %v", err)
	}
	if x = w.wait("a", x.Seq); x.Exit.Reason != sandbox.EndKilled {
		t.Errorf("its cell ended %+v", x.Exit)
	}
	if _, err := w.StartCode(w.ctx, "a", core.CodeRequest{Kernel: "mine", Code: "1"}); !errors.Is(err, errs.NotFound) {
		t.Errorf("code for it = %v, want not found", err)
	}
	if x = w.wait("a", waiting.Seq); x.Exit.Reason != sandbox.EndNotRun || !strings.Contains(x.Exit.Message, "deleted") {
		t.Errorf("the cell that waited ended %+v", x.Exit)
	}
	kernels, _, err = w.Kernels(w.ctx, "a")
	if err != nil || len(kernels) != 0 {
		t.Errorf("there are still %v, %v", kernels, err)
	}
	events, err := w.store.Events(w.ctx, b.UID, 0, 0)
	for _, kind := range []string{event.KernelCreated, event.KernelRestarted, event.KernelDeleted} {
		if err != nil || count(events, kind) != 1 {
			t.Errorf("the history has %d %s, %v", count(events, kind), kind, err)
		}
	}
}

func TestCodeRefused(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	w.create("stopped")
	if _, err := w.Stop(w.ctx, "stopped", 0); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		id   string
		r    core.CodeRequest
		want errs.Kind
	}{
		{"nobody", core.CodeRequest{Code: "1"}, errs.NotFound},
		{"stopped", core.CodeRequest{Code: "1"}, errs.WrongState},
		{"a", core.CodeRequest{Code: "1", Kernel: "no/name"}, errs.Invalid},
		{"a", core.CodeRequest{Code: "1", Kernel: "unknown"}, errs.NotFound},
		{"a", core.CodeRequest{Code: "\xff"}, errs.Invalid},
		{"a", core.CodeRequest{Code: strings.Repeat("#", sandbox.MaxCode+1)}, errs.TooLarge},
	}
	for _, tt := range tests {
		if _, err := w.StartCode(w.ctx, tt.id, tt.r); !errors.Is(err, tt.want) {
			t.Errorf("StartCode of %.20q in %s of %s = %v, want %v", tt.r.Code, tt.r.Kernel, tt.id, err, tt.want)
		}
	}
	for name, call := range map[string]func(id string) error{
		"Kernels":         func(id string) error { _, _, err := w.Kernels(w.ctx, id); return err },
		"Kernel":          func(id string) error { _, err := w.Kernel(w.ctx, id, "python"); return err },
		"InterruptKernel": func(id string) error { _, err := w.InterruptKernel(w.ctx, id, "python"); return err },
		"RestartKernel":   func(id string) error { _, err := w.RestartKernel(w.ctx, id, "python"); return err },
		"DeleteKernel":    func(id string) error { return w.DeleteKernel(w.ctx, id, "python") },
		"CreateKernel": func(id string) error {
			_, err := w.CreateKernel(w.ctx, id, sandbox.KernelSpec{Language: "cobol"})
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
	e := w.code("a", core.CodeRequest{Language: "cobol", Code: "1"})
	if e.Exec.Exit.Reason != sandbox.EndNotRun || e.Error == nil || !strings.Contains(e.Error.Message, "cobol") {
		t.Errorf("a cell in cobol ended %+v, error %+v", e.Exec.Exit, e.Error)
	}
	x := w.sh("a", "true").Exec
	if _, err := w.Execution(w.ctx, "a", x.Seq); !errors.Is(err, errs.Invalid) || errs.Public(err).Hint == "" {
		t.Errorf("Execution of a command = %v, want invalid with a hint", err)
	}
	if _, err := w.Execution(w.ctx, "a", 99); !errors.Is(err, errs.NotFound) {
		t.Errorf("Execution of nothing = %v, want not found", err)
	}
}

func TestCodeGoesOnOverARestartOfTheDaemon(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	w.python("a", "n = 0")
	hold, open := held(t)
	running := w.startCode("a", core.CodeRequest{Code: hold + "\nn += 1\nprint('went on')\n{'n': n}"})
	var waiting []sandbox.Exec
	for range 5 {
		waiting = append(waiting, w.startCode("a", core.CodeRequest{Code: "n += 1; n"}))
	}
	w.says("a", running.Seq, "ready")
	w.restart()
	if k, err := w.Kernel(w.ctx, "a", "python"); err != nil || k.Status != sandbox.KernelBusy || k.Waiting != 5 {
		t.Errorf("the kernel is %+v, %v", k, err)
	}
	if e, err := w.Execution(w.ctx, "a", running.Seq); err != nil || e.Exec.Status != sandbox.ExecRunning || e.Stdout != "ready\n" {
		t.Errorf("the running one is %+v, %v", e, err)
	}
	open()
	w.wait("a", running.Seq)
	if e, err := w.Execution(w.ctx, "a", running.Seq); err != nil || !e.Success || e.Stdout != "ready\nwent on\n" || plainResult(e) != "{'n': 1}" || e.Count != 2 {
		t.Errorf("the one that ran became %+v, error %+v, %v", e, e.Error, err)
	}
	for i, x := range waiting {
		w.wait("a", x.Seq)
		if e, err := w.Execution(w.ctx, "a", x.Seq); err != nil || plainResult(e) != fmt.Sprint(i+2) || e.Count != i+3 || e.KernelRestarted != "" {
			t.Errorf("cell %d became %+v, error %+v, %v", x.Seq, e, e.Error, err)
		}
	}
}

// What ends while no daemon watches is there for the next one.
func TestCodeThatEndsWhileTheDaemonIsAway(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	done := filepath.Join(t.TempDir(), "done")
	hold, open := held(t)
	x := w.startCode("a", core.CodeRequest{Code: hold + fmt.Sprintf("\nprint('unseen')\nopen(%q, 'w').close()\n1/0", done)})
	w.says("a", x.Seq, "ready")
	w.stop()
	open()
	w.until("the cell is at its end", func() bool { _, err := os.Stat(done); return err == nil })
	w.fake = w.fake.Restart(t)
	w.open()
	w.start()
	w.until("the sandbox is taken over", func() bool { _, _, err := w.Kernels(w.ctx, "a"); return err == nil })
	w.wait("a", x.Seq)
	if e, err := w.Execution(w.ctx, "a", x.Seq); err != nil || e.Stdout != "ready\nunseen\n" || e.Error == nil || e.Error.Type != "ZeroDivisionError" {
		t.Errorf("it became %+v, error %+v, %v", e, e.Error, err)
	}
}

func TestCodeEndsWithItsSandbox(t *testing.T) {
	tests := []struct {
		name string
		end  func(w *world, b sandbox.Sandbox)
		want sandbox.EndReason
		kind string
	}{
		{"stop", func(w *world, b sandbox.Sandbox) {
			if _, err := w.Stop(w.ctx, "a", 0); err != nil {
				w.t.Error(err)
			}
		}, sandbox.EndStopped, "SandboxStoppedError"},
		{"destroy", func(w *world, b sandbox.Sandbox) {
			if err := w.Destroy(w.ctx, "a", false); err != nil {
				w.t.Error(err)
			}
		}, sandbox.EndDestroyed, "SandboxDestroyedError"},
		{"oom", func(w *world, b sandbox.Sandbox) {
			w.fake.Kill(b.UID, driver.Death{Cause: driver.DeathOOM})
		}, sandbox.EndOOM, "OutOfMemoryError"},
		{"death", func(w *world, b sandbox.Sandbox) {
			w.fake.Kill(b.UID, driver.Death{Cause: driver.DeathSignal, Signal: "SIGKILL"})
		}, sandbox.EndDied, "ContainerDiedError"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			b := w.create("a")
			hold, _ := held(t)
			running := w.startCode("a", core.CodeRequest{Code: hold})
			waiting := w.startCode("a", core.CodeRequest{Code: "1"})
			w.says("a", running.Seq, "ready")
			tt.end(w, b)
			for _, seq := range []int64{running.Seq, waiting.Seq} {
				var stored sandbox.Exec
				w.until("the store knows the end", func() bool {
					var err error
					stored, err = w.store.Exec(w.ctx, b.UID, seq)
					return err != nil || stored.Status.Finished()
				})
				if stored.Exit == nil || stored.Exit.Reason != tt.want || stored.Exit.Message == "" {
					t.Errorf("cell %d ended %+v, want %s with a message", seq, stored.Exit, tt.want)
				}
				e, err := w.Execution(w.ctx, "a", seq)
				if err != nil || e.Success || e.Error == nil || e.Error.Type != tt.kind || !strings.Contains(e.Error.Message, stored.Exit.Message) {
					t.Errorf("cell %d is %+v, error %+v, %v", seq, e, e.Error, err)
				}
				if seq == running.Seq && (err != nil || e.Stdout != "ready\n") {
					t.Errorf("its output is %q, %v", e.Stdout, err)
				}
			}
			if strings.HasPrefix(tt.name, "oom") {
				if e, err := w.Execution(w.ctx, "a", running.Seq); err != nil || !strings.HasPrefix(e.Error.Message, "CONTAINER_DIED: OOM-killed") {
					t.Errorf("it says %q, %v", e.Error.Message, err)
				}
			}
		})
	}
}

// A kernel that nobody uses does not keep its sandbox; code does.
func TestIdleKernelDoesNotKeepASandbox(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	limit := time.Millisecond
	hold, open := held(t)
	x := w.startCode("a", core.CodeRequest{Code: hold})
	w.says("a", x.Seq, "ready")
	if _, err := w.Update(w.ctx, "a", core.Patch{IdleTimeout: &limit}); err != nil {
		t.Fatal(err)
	}
	if got, err := w.Sandbox(w.ctx, "a"); err != nil || !got.IdleAt.IsZero() {
		t.Errorf("a sandbox with code is idle at %v, %v", got.IdleAt, err)
	}
	if ends := w.Reap(); len(ends) != 0 {
		t.Errorf("the reaper took it: %v", ends)
	}
	open()
	w.wait("a", x.Seq)
	w.until("the sandbox is stopped", func() bool {
		w.Reap()
		got, err := w.Sandbox(w.ctx, "a")
		return err == nil && got.State == sandbox.Stopped
	})
}

func TestManyCellsAtOnce(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	w.python("a", "n = 0")
	var wg sync.WaitGroup
	for range 60 {
		wg.Go(func() {
			if e, err := w.RunCode(w.ctx, "a", core.CodeRequest{Code: "n += 1"}, -1); err != nil || !e.Success {
				t.Errorf("it ended %+v, %v", e.Exec.Exit, err)
			}
		})
	}
	wg.Wait()
	if e := w.python("a", "n"); plainResult(e) != "60" {
		t.Errorf("n is %+v, error %+v", e, e.Error)
	}
}

// What is known of code without its output is still told.
func TestCodeWhoseOutputWasRemoved(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	w.python("a", "print('x' * 1_000_000); raise ValueError('bad')")
	r, err := w.Result(w.ctx, "a", 1, core.OutputCaps{Rich: -1})
	if err != nil || !strings.Contains(string(r.Rich), `{"error":{"ename":"ValueError"`) || r.StdoutCut != 1_000_001 {
		t.Errorf("the rich output is %.200q, with %d bytes less text, %v", r.Rich, r.StdoutCut, err)
	}
	for range 10 { // of 1 MB each, of which 8 MiB are kept
		w.python("a", "print('x' * 1_000_000)")
	}
	e, err := w.Execution(w.ctx, "a", 1)
	if err != nil || !e.Pruned || e.Stdout != "" || e.Success || e.Count != 1 || e.Error == nil || *e.Error != (core.CodeError{Type: "ValueError", Message: "bad"}) {
		t.Errorf("Execution = %+v, error %+v, %v", e, e.Error, err)
	}
}

// Nothing that code prints is too much: it is cut and the code goes on.
func TestCodeThatPrintsTooMuch(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	// The journal keeps 1 MiB of it.
	e := w.python("a", "for _ in range(300): print('x' * 99_999, flush=True)\nraise ValueError('kept')")
	if e.Success || e.Error == nil || e.Error.Type != "ValueError" || e.Error.Message != "kept" {
		t.Errorf("the error is %+v", e.Error)
	}
	want := "\n\n... [truncated — 30000000 chars total, showing first 50000]"
	if !strings.HasSuffix(e.Stdout, want) || len(e.Stdout) != 50_000+len(want) || e.Truncated["stdout"] != 30_000_000 {
		t.Errorf("stdout has %d bytes and ends %q, truncated %v", len(e.Stdout), e.Stdout[max(0, len(e.Stdout)-80):], e.Truncated)
	}
	if e := w.python("a", "print('x' * 60_000)"); !strings.HasSuffix(e.Stdout, "\n\n... [truncated — 60001 chars total, showing first 50000]") || !e.Success {
		t.Errorf("60,000 characters end %q", e.Stdout[max(0, len(e.Stdout)-80):])
	}
}
