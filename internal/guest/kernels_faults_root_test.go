//go:build root

package guest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/guest"
	"github.com/cubbyhq/cubby/internal/kernel"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// running starts a cell and returns when it has printed "go".
func (h host) running(t testing.TB, ctx context.Context, spec sandbox.ExecSpec) sandbox.UID {
	t.Helper()
	uid := sandbox.NewUID()
	s, err := h.Exec(ctx, uid, &guest.Start{ExecSpec: spec}, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var r result
	for !bytes.Contains(r.stdout, []byte("go")) {
		m, err := s.Next()
		if err != nil || m.Exit != nil {
			t.Fatalf("before it printed: %+v, %v", m.Exit, err)
		}
		r.take(m)
	}
	return uid
}

// rest reads a cell from its beginning.
func (h host) rest(t testing.TB, ctx context.Context, uid sandbox.UID) shown {
	t.Helper()
	return records(t, h.follow(t, ctx, uid, nil, 0))
}

const forever = `
import time
print('go', flush=True)
while True: time.sleep(0.01)
`

// deaf does not listen to SIGINT.
const deaf = `
import signal, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
print('go', flush=True)
while True: time.sleep(1)
`

func TestCellInterrupted(t *testing.T) {
	h := withKernels(t, nil)
	ctx := kernelContext(t)
	h.cell(t, python("kept = 7"))
	ends := map[string]func(uid sandbox.UID) error{
		"SIGINT": func(uid sandbox.UID) error { return h.Signal(ctx, uid, syscall.SIGINT, false, sandbox.EndKilled) },
		"cancel": func(uid sandbox.UID) error { return h.Signal(ctx, uid, syscall.SIGKILL, true, sandbox.EndKilled) },
		"InterruptKernel": func(sandbox.UID) error {
			_, err := h.InterruptKernel(ctx, "python")
			return err
		},
	}
	for name, end := range ends {
		uid := h.running(t, ctx, python(forever))
		if k := h.kernel(t, "python"); k.Status != sandbox.KernelBusy {
			t.Errorf("%s: a kernel that runs a cell is %s", name, k.Status)
		}
		if err := end(uid); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		s := h.rest(t, ctx, uid)
		s.wants(t, 1, sandbox.EndKilled)
		if s.failure() != "KeyboardInterrupt" || !strings.Contains(s.exit.Message, "keeps its state") {
			t.Errorf("%s: error %q, message %q", name, s.failure(), s.exit.Message)
		}
	}
	uid := h.running(t, ctx, python("import os; print('go', flush=True); os.system('sleep 1000')"))
	if err := h.Signal(ctx, uid, syscall.SIGTERM, true, sandbox.EndKilled); err != nil {
		t.Error(err)
	}
	if s := h.rest(t, ctx, uid); s.exit == nil || strings.Contains(s.exit.Message, "lost") {
		t.Errorf("a cell that waits for a program: %+v", s.exit)
	}
	if s := h.cell(t, python("kept")); s.value() != "7" || s.restarted() != "" {
		t.Errorf("the state is %q (%s)", s.value(), s.restarted())
	}
	if err := h.Signal(ctx, uid, syscall.SIGINT, false, sandbox.EndKilled); !errors.Is(err, errs.WrongState) {
		t.Errorf("a signal to a cell that has ended: %v", err)
	}
	if err := h.Signal(ctx, uid, syscall.SIGUSR1, false, ""); !errors.Is(err, errs.Invalid) {
		t.Errorf("SIGUSR1: %v", err)
	}
}

func TestCellTimeout(t *testing.T) {
	h := withKernels(t, nil)
	h.cell(t, python("kept = 7"))
	limit := 300 * time.Millisecond
	for _, tt := range []struct{ language, code, name string }{
		{"python", forever, "KeyboardInterrupt"},
		{"node", "for (;;) {}", "Interrupted"},
		{"node", "await new Promise(() => setInterval(() => {}, 1000))", "Interrupted"},
		{"r", "repeat Sys.sleep(0.01)", "interrupt"},
	} {
		h.cell(t, cellSpec(tt.language, tt.language, "kept = 7"))
		spec := cellSpec(tt.language, "", tt.code)
		spec.Timeout = &limit
		s := h.cell(t, spec)
		s.wants(t, 1, sandbox.EndTimeout)
		if s.failure() != tt.name || !strings.Contains(s.exit.Message, "time limit") || !strings.Contains(s.exit.Message, "keeps its state") {
			t.Errorf("%s: error %q, message %q", tt.code, s.failure(), s.exit.Message)
		}
		if s := h.cell(t, cellSpec(tt.language, "", "kept")); !strings.HasSuffix(s.value(), "7") || s.restarted() != "" {
			t.Errorf("%s: the state afterwards is %q (%s)", tt.language, s.value(), s.restarted())
		}
	}
}

// A cell that no interrupt ends takes its kernel with it.
func TestCellThatHangs(t *testing.T) {
	everyKernelLauncher(t, func(t *testing.T, h host) {
		h.cell(t, python("kept = 7"))
		limit := time.Second
		spec := python("import itertools; sum(itertools.repeat(1))") // a loop in C
		spec.Timeout = &limit
		s := h.cell(t, spec)
		s.wants(t, 137, sandbox.EndTimeout)
		if !strings.Contains(s.exit.Message, "state is lost") || s.records[len(s.records)-1].Kernel == nil {
			t.Errorf("message %q, records %s", s.exit.Message, s.rich)
		}
		if k := h.kernel(t, "python"); k.Status != sandbox.KernelDead || k.Reason == "" || k.PID != 0 {
			t.Errorf("kernel = %+v", k)
		}
		s = h.cell(t, python("'kept' in globals()"))
		if s.value() != "False" || !strings.Contains(s.restarted(), "time limit") {
			t.Errorf("the next cell: %q, %q", s.value(), s.restarted())
		}
	})
}

func TestKernelThatDies(t *testing.T) {
	everyKernelLauncher(t, func(t *testing.T, h host) {
		for _, tt := range []struct {
			code string
			exit int
			says string
		}{
			{"import os; os._exit(1)", 1, "exit code 1"},
			{"import os; os._exit(0)", 1, "exit code 0"},
			{"import os; os.kill(os.getpid(), 9)", 137, "SIGKILL"},
			{"import ctypes; ctypes.string_at(0)", 139, "SIGSEGV"},
		} {
			s := h.cell(t, python(tt.code))
			s.wants(t, tt.exit, sandbox.EndKernel)
			if !strings.Contains(s.exit.Message, tt.says) || !strings.Contains(s.exit.Message, "state is lost") {
				t.Errorf("%s: message %q", tt.code, s.exit.Message)
			}
			s = h.cell(t, python("1"))
			if s.value() != "1" || !strings.Contains(s.restarted(), tt.says) {
				t.Errorf("after %s: %q, %q", tt.code, s.value(), s.restarted())
			}
		}
		// Killed while nothing runs, by a command.
		k := h.kernel(t, "python")
		if r := h.run(t, shell(fmt.Sprintf("kill -9 %d", k.PID))); *r.exit.Code != 0 {
			t.Fatalf("%s", r.stderr)
		}
		eventuallyKernel(t, func() bool { return h.kernel(t, "python").Status == sandbox.KernelDead })
		s := h.cell(t, python("1"))
		if s.value() != "1" || !strings.Contains(s.restarted(), "SIGKILL") {
			t.Errorf("after a kill between cells: %q, %q", s.value(), s.restarted())
		}
		// What a cell left behind lives as long as the kernel.
		s = h.cell(t, python("import subprocess; subprocess.Popen(['sleep', '1000']).pid"))
		child := "/proc/" + s.value()
		h.cell(t, python("2"))
		if _, err := os.Stat(child); err != nil {
			t.Errorf("the child of a cell: %v", err)
		}
		h.cell(t, python("import os; os._exit(3)"))
		if alive(child) {
			t.Error("the child of a dead kernel lives")
		}
	})
}

// alive is false for zombies too.
func alive(proc string) bool {
	stat, err := os.ReadFile(proc + "/stat")
	return err == nil && !bytes.Contains(stat, []byte(") Z "))
}

func TestCellsOfAKernelTakeTurns(t *testing.T) {
	h := withKernels(t, nil)
	ctx := kernelContext(t)
	first := h.running(t, ctx, python(forever))
	var queued []sandbox.UID
	var streams []*guest.ExecStream
	for i := range 20 {
		uid := sandbox.NewUID()
		s, err := h.Exec(ctx, uid, &guest.Start{ExecSpec: python(fmt.Sprintf("print(%d)", i))}, 0)
		if err != nil {
			t.Fatal(err)
		}
		// The agent has it when its list does.
		eventuallyKernel(t, func() bool { return h.kernel(t, "python").Waiting == int64(i)+1 })
		queued, streams = append(queued, uid), append(streams, s)
	}
	if err := h.Signal(ctx, queued[3], syscall.SIGTERM, true, sandbox.EndKilled); err != nil {
		t.Error(err)
	}
	if k := h.kernel(t, "python"); k.Waiting != 19 {
		t.Errorf("%d cells wait after one was canceled", k.Waiting)
	}
	if _, err := h.InterruptKernel(ctx, "python"); err != nil {
		t.Error(err)
	}
	h.rest(t, ctx, first).wants(t, 1, sandbox.EndKilled)
	var before time.Time
	for i, uid := range queued {
		streams[i].Close()
		s := h.rest(t, ctx, uid)
		if i == 3 {
			if s.exit.Reason != sandbox.EndKilled || s.started != nil || len(s.stdout) > 0 {
				t.Errorf("the canceled cell: %+v, started %+v", s.exit, s.started)
			}
			continue
		}
		s.wants(t, 0, sandbox.EndExited)
		if string(s.stdout) != fmt.Sprintln(i) || s.started.At.Before(before) {
			t.Errorf("cell %d printed %q at %v, the one before ended at %v", i, s.stdout, s.started.At, before)
		}
		before = s.exit.At
	}
}

func TestCellInput(t *testing.T) {
	h := withKernels(t, nil)
	ctx := kernelContext(t)
	spec := python("import getpass\na = input('name? ')\nb = getpass.getpass('word? ')\nprint(a, b)\ntry:\n  input()\nexcept EOFError:\n  print('end')")
	spec.Stdin = true
	uid := sandbox.NewUID()
	s, err := h.Exec(ctx, uid, &guest.Start{ExecSpec: spec}, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var r result
	for answered := false; r.exit == nil; {
		m, err := s.Next()
		if err != nil {
			t.Fatal(err)
		}
		r.take(m)
		if bytes.Contains(r.rich, []byte("name? ")) && !answered {
			answered = true
			at, err := h.WriteStdin(ctx, uid, 0, []byte("it\r\nsecr"), false)
			if err != nil || at != 8 {
				t.Fatalf("WriteStdin = %d, %v", at, err)
			}
			if at, err = h.WriteStdin(ctx, uid, 4, []byte("secret\n"), true); err != nil || at != 11 {
				t.Fatalf("WriteStdin = %d, %v", at, err)
			}
		}
	}
	got := records(t, r)
	got.wants(t, 0, sandbox.EndExited)
	if string(got.stdout) != "it secret\nend\n" {
		t.Errorf("stdout = %q", got.stdout)
	}
	var asked []kernel.Input
	for _, o := range got.records {
		if o.Input != nil {
			asked = append(asked, *o.Input)
		}
	}
	if len(asked) != 3 || asked[0] != (kernel.Input{Prompt: "name? "}) || asked[1] != (kernel.Input{Prompt: "word? ", Password: true}) {
		t.Errorf("questions: %+v", asked)
	}
	if _, err := h.WriteStdin(ctx, uid, 11, []byte("late"), false); !errors.Is(err, errs.WrongState) {
		t.Errorf("WriteStdin after the end = %v", err)
	}
	silent := h.cell(t, python("input('name? ')"))
	silent.wants(t, 1, sandbox.EndExited)
	if silent.failure() != "StdinNotImplementedError" {
		t.Errorf("input() without standard input: %s", silent.rich)
	}
}

func TestMuchOutputOfCells(t *testing.T) {
	h := withKernels(t, nil)
	t.Run("a gigabyte of text", func(t *testing.T) {
		s := h.cell(t, python("for _ in range(1000): print('x' * (1 << 20))\n7"))
		s.wants(t, 0, sandbox.EndExited)
		if got := int64(len(s.stdout)) + s.exit.StdoutCut; got < 1000<<20 || s.value() != "7" {
			t.Errorf("%d bytes kept, %d cut, value %q", len(s.stdout), s.exit.StdoutCut, s.value())
		}
	})
	t.Run("nobody reads", func(t *testing.T) {
		ctx := kernelContext(t)
		uid := sandbox.NewUID()
		stream, err := h.Exec(ctx, uid, &guest.Start{ExecSpec: python("for _ in range(100): print('x' * (1 << 20))\n7")}, 0)
		if err != nil {
			t.Fatal(err)
		}
		eventuallyKernel(t, func() bool { k := h.kernel(t, "python"); return k.Count == 2 && k.Status == sandbox.KernelIdle })
		stream.Close()
		s := h.rest(t, ctx, uid)
		s.wants(t, 0, sandbox.EndExited)
		if got := int64(len(s.stdout)) + s.exit.StdoutCut; got < 100<<20 || s.exit.StdoutCut == 0 || len(s.stdout) > 40<<20 || s.value() != "7" {
			t.Errorf("%d bytes kept, %d cut, value %q", len(s.stdout), s.exit.StdoutCut, s.value())
		}
	})
	t.Run("a display of 50 MB", func(t *testing.T) {
		s := h.cell(t, python("from IPython.display import display\ndisplay({'text/html': 'x' * 50_000_000}, raw=True)\n7"))
		s.wants(t, 0, sandbox.EndExited)
		if s.exit.RichCut < 50_000_000 || len(s.rich) > 10_000 || s.value() != "7" || !strings.Contains(plainText(s.records[0].Display.Data), "left out: text/html, 50") {
			t.Errorf("%d bytes cut, value %q, %.1000s", s.exit.RichCut, s.value(), s.rich)
		}
	})
	t.Run("JavaScript", func(t *testing.T) {
		s := h.cell(t, cellSpec("node", "node", "console.log('x'.repeat(1e8)); display({html: 'x'.repeat(5e7)}); 7"))
		s.wants(t, 0, sandbox.EndExited)
		if got := int64(len(s.stdout)) + s.exit.StdoutCut; got < 1e8 || !bytes.HasPrefix(s.stdout, []byte("xxx")) || s.exit.RichCut < 5e7 || s.value() != "7" {
			t.Errorf("%d bytes kept, %d and %d cut, value %q", len(s.stdout), s.exit.StdoutCut, s.exit.RichCut, s.value())
		}
	})
	t.Run("a long error", func(t *testing.T) {
		s := h.cell(t, python("raise ValueError('x' * 30_000_000)"))
		s.wants(t, 1, sandbox.EndExited)
		if s.failure() == "" || len(s.rich) > 17<<20 || s.exit.RichCut == 0 {
			t.Errorf("error %q in %d bytes, %d cut", s.failure(), len(s.rich), s.exit.RichCut)
		}
	})
}

func TestStrangeOutputOfCells(t *testing.T) {
	h := withKernels(t, nil)
	for _, tt := range []struct{ name, code, value string }{
		{"bytes that are no text", `import os, sys; os.write(1, b'a\xff\xfeb\n'); sys.stdout.flush(); print('\udcff'.encode('utf-8', 'surrogateescape')); 7`, "7"},
		{"a lone surrogate", `'\ud800'`, `'\ud800'`},
		{"a value that is made of itself", "a = []; a.append(a); a", "[[...]]"},
		{"JSON that is very deep", `
from IPython.display import display
import json
deep = 1
for _ in range(900): deep = [deep]
display({'application/json': deep}, raw=True)
7`, "7"},
		{"nonsense as types", "display({'': '', 'a\\nb': 'x', 'text/plain': ['no', 'text']}, raw=True); 7", "7"},
	} {
		s := h.cell(t, python(tt.code))
		s.wants(t, 0, sandbox.EndExited)
		if s.value() != tt.value {
			t.Errorf("%s: value %q, want %q; %s", tt.name, s.value(), tt.value, s.rich)
		}
	}
	// Deeper than any parser goes; the kernel for Node sends what it is given.
	s := h.cell(t, cellSpec("node", "node", `
const fs = require('fs');
const deep = '['.repeat(200000) + ']'.repeat(200000);
fs.writeSync(4, '{"id":1,"output":{"display":{"data":{"application/json":' + deep + '}}}}\n');
fs.writeSync(4, '{"id":1,"output":{"kernel":{"restarted":true,"reason":"forged"}}}\n');
7`))
	if s.wants(t, 0, sandbox.EndExited); s.value() != "7" || s.restarted() != "" {
		t.Errorf("deep JSON: %.500s", s.rich)
	}
}

func TestManyKernels(t *testing.T) {
	h := withKernels(t, nil)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			name := fmt.Sprintf("k%d", i)
			language := []string{"python", "node"}[i%2]
			if s := h.cell(t, cellSpec(name, language, fmt.Sprintf("x = %d", i))); s.exit == nil || s.exit.Reason != sandbox.EndExited {
				t.Errorf("%s: %+v", name, s.exit)
			}
			if s := h.cell(t, cellSpec(name, "", "x")); s.value() != fmt.Sprint(i) {
				t.Errorf("%s has %q", name, s.value())
			}
		})
	}
	all.Wait()
	if k, _, err := h.Kernels(kernelContext(t)); err != nil || len(k) != 8 {
		t.Errorf("Kernels = %+v, %v", k, err)
	}
	if _, err := h.CreateKernel(kernelContext(t), sandbox.KernelSpec{Name: "k1", Language: "python"}); !errors.Is(err, errs.Conflict) {
		t.Errorf("a second k1: %v", err)
	}
}

func TestDeleteWhileACellRuns(t *testing.T) {
	h := withKernels(t, nil)
	ctx := kernelContext(t)
	uid := h.running(t, ctx, python(deaf))
	waiting := sandbox.NewUID()
	s, err := h.Exec(ctx, waiting, &guest.Start{ExecSpec: python("1")}, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	eventuallyKernel(t, func() bool { return h.kernel(t, "python").Waiting == 1 })
	if err := h.DeleteKernel(ctx, "python"); err != nil {
		t.Fatal(err)
	}
	for name, uid := range map[string]sandbox.UID{"running": uid, "waiting": waiting} {
		if s := h.rest(t, ctx, uid); s.exit.Reason != sandbox.EndKilled || !strings.Contains(s.exit.Message, "deleted") {
			t.Errorf("the %s cell: %+v", name, s.exit)
		}
	}
	if err := h.DeleteKernel(ctx, "python"); !errors.Is(err, errs.NotFound) {
		t.Errorf("a second delete: %v", err)
	}
	if s := h.cell(t, python("1")); s.restarted() != "" || s.value() != "1" {
		t.Errorf("a new kernel of the name: %q, %q", s.value(), s.restarted())
	}
}

func TestRestartWhileACellRuns(t *testing.T) {
	h := withKernels(t, nil)
	ctx := kernelContext(t)
	uid := h.running(t, ctx, python(deaf))
	waiting := sandbox.NewUID()
	s, err := h.Exec(ctx, waiting, &guest.Start{ExecSpec: python("1")}, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	eventuallyKernel(t, func() bool { return h.kernel(t, "python").Waiting == 1 })
	k, err := h.RestartKernel(ctx, "python")
	if err != nil || k.Restarts != 1 {
		t.Fatalf("RestartKernel = %+v, %v", k, err)
	}
	if s := h.rest(t, ctx, uid); s.exit.Reason != sandbox.EndKilled || !strings.Contains(s.exit.Message, "restarted") {
		t.Errorf("the running cell: %+v", s.exit)
	}
	if s := h.rest(t, ctx, waiting); s.value() != "1" || !strings.Contains(s.restarted(), "restarted") {
		t.Errorf("the waiting cell: %q, %q, %+v", s.value(), s.restarted(), s.exit)
	}
}

func TestShutdownEndsCells(t *testing.T) {
	h := withKernels(t, nil)
	ctx := kernelContext(t)
	spec := &guest.Start{ExecSpec: python(forever)}
	var ends sync.WaitGroup
	for range 3 { // one runs, two wait
		ends.Go(func() {
			s := records(t, h.follow(t, ctx, sandbox.NewUID(), spec, 0))
			if s.exit == nil || s.exit.Reason != sandbox.EndStopped {
				t.Errorf("exit = %+v", s.exit)
			}
		})
	}
	eventuallyKernel(t, func() bool {
		all, _, err := h.Kernels(ctx)
		return err == nil && len(all) == 1 && all[0].Status == sandbox.KernelBusy && all[0].Waiting == 2
	})
	if err := h.Shutdown(ctx, 0); err != nil {
		t.Error(err)
	}
	ends.Wait()
}

func TestKernelsThatCannotBe(t *testing.T) {
	h := withKernels(t, nil)
	ctx := kernelContext(t)
	home := strings.TrimSpace(string(h.run(t, shell("echo $HOME")).stdout))
	spec := func(name, text string) {
		dir := filepath.Join(home, ".local/share/jupyter/kernels", name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "kernel.json"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	spec("damaged", `{"argv": [`)
	spec("absent", `{"argv": ["no-such-program", "{connection_file}"], "language": "absent"}`)
	spec("broken", `{"argv": ["sh", "-c", "echo first; echo it is broken >&2; exit 3"], "language": "broken", "display_name": "b\u0007"}`)
	spec("taken", `{"argv": ["sh", "-c", "echo x >> `+home+`/tries; echo Address already in use; exit 1"], "language": "taken"}`)
	if err := syscall.Mkfifo(filepath.Join(home, ".local/share/jupyter/kernels/fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		language, says string
		kind           errs.Kind
	}{
		{"cobol", `no kernel for "cobol"`, errs.NotFound},
		{"damaged", `no kernel for "damaged"`, errs.NotFound},
		{"absent", "no-such-program: command not found", errs.Unavailable},
		{"broken", "it is broken", errs.Unavailable},
		{"taken", "already in use", errs.Unavailable},
	} {
		_, err := h.CreateKernel(ctx, sandbox.KernelSpec{Language: tt.language})
		if !errors.Is(err, tt.kind) || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("CreateKernel(%s) = %v, want %s", tt.language, err, tt.says)
		}
		s := h.cell(t, cellSpec("", tt.language, "1"))
		if s.exit.Reason != sandbox.EndNotRun || *s.exit.Code < 126 || !strings.Contains(s.exit.Message, tt.says) || s.started != nil {
			t.Errorf("a cell of %s: %+v", tt.language, s.exit)
		}
	}
	if tries, _ := os.ReadFile(filepath.Join(home, "tries")); string(tries) != strings.Repeat("x\n", 10) {
		t.Errorf("with ports that are taken there were tries %q", tries)
	}
	all, _, err := h.Kernels(ctx)
	if err != nil || len(all) != 0 {
		t.Errorf("Kernels = %+v, %v", all, err)
	}
	s := h.cell(t, sandbox.ExecSpec{Cell: &sandbox.Cell{Kernel: "python", Language: "python", Code: "1"}, User: "nobody-knows"})
	s.wants(t, 126, sandbox.EndNotRun)
	s = h.cell(t, sandbox.ExecSpec{Cell: &sandbox.Cell{Kernel: "python", Language: "python", Code: "1"}, Cwd: "/no/such"})
	s.wants(t, 126, sandbox.EndNotRun)
}

// A stream that is cut and attached again has everything once.
func TestCellAttachedAgain(t *testing.T) {
	h := withKernels(t, nil)
	ctx := kernelContext(t)
	uid := sandbox.NewUID()
	begin := &guest.Start{ExecSpec: python(`
from IPython.display import display
for i in range(2000):
    print(i)
    if i % 100 == 0: display({'text/html': 'x' * 100_000}, raw=True)
`)}
	var r result
	for cut := 0; r.exit == nil; cut++ {
		s, err := h.Exec(ctx, uid, begin, r.next)
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			m, err := s.Next()
			if err != nil {
				t.Fatal(err)
			}
			if r.take(m); m.Exit != nil {
				break
			}
		}
		s.Close()
		if err := h.Ack(ctx, uid, r.next); err != nil {
			t.Fatal(err)
		}
	}
	var want strings.Builder
	for i := range 2000 {
		fmt.Fprintln(&want, i)
	}
	if s := records(t, r); string(s.stdout) != want.String() || len(s.records) != 21 {
		t.Errorf("%d bytes of text, %d records", len(s.stdout), len(s.records))
	}
}
