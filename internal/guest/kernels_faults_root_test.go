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
	h.rest(t, ctx, uid).wants(t, 1, sandbox.EndKilled) // os.system tells its caller nothing
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
		// A call in C that holds the interpreter and waits for itself.
		spec := python("import ctypes; c, m = ctypes.PyDLL(None), ctypes.create_string_buffer(64)\nfor _ in range(2): c.pthread_mutex_lock(m)")
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

// TestCellAfterQuit queues a cell behind one that ends its kernel in the way
// that the language knows: it has a new kernel, whenever the old one's end is
// noticed.
func TestCellAfterQuit(t *testing.T) {
	h := withKernels(t, nil)
	ctx := kernelContext(t)
	for _, tt := range []struct {
		language, code string
		rounds         int
	}{
		{"python", "exit()", 3}, {"python", "quit()", 1}, {"r", "quit()", 3}, {"r", "q('no')", 1},
		{"python", "import os, threading; threading.Timer(0, os._exit, [0]).start()", 2},
		{"node", "setTimeout(() => process.exit(0)); 1", 2},
	} {
		for range tt.rounds {
			uid, next := sandbox.NewUID(), sandbox.NewUID()
			for _, u := range []sandbox.UID{uid, next} {
				code := tt.code
				if u == next {
					code = "6 * 7"
				}
				s, err := h.Exec(ctx, u, &guest.Start{ExecSpec: cellSpec(tt.language, tt.language, code)}, 0)
				if err != nil {
					t.Fatal(err)
				}
				s.Close()
			}
			h.rest(t, ctx, uid)
			got := h.rest(t, ctx, next)
			if got.wants(t, 0, sandbox.EndExited); got.restarted() == "" || !strings.Contains(got.value(), "42") {
				t.Errorf("after %s: value %q, began anew because of %q, exit %+v", tt.code, got.value(), got.restarted(), got.exit)
			}
		}
	}
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

// Whoever heard that a kernel did not come up finds nothing of it in the way.
func TestCellsAfterAKernelThatDidNotComeUp(t *testing.T) {
	h := withKernels(t, nil)
	ctx := kernelContext(t)
	home := strings.TrimSpace(string(h.run(t, shell("echo $HOME")).stdout))
	dir := filepath.Join(home, ".local/share/jupyter/kernels/absent")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "kernel.json"), []byte(`{"argv": ["no-such-program"], "language": "absent"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if _, err := h.CreateKernel(ctx, sandbox.KernelSpec{Language: "absent"}); !errors.Is(err, errs.Unavailable) {
			t.Fatalf("CreateKernel = %v", err)
		}
		for range 2 {
			s := h.cell(t, cellSpec("", "absent", "1"))
			if s.exit.Reason != sandbox.EndNotRun || !strings.Contains(s.exit.Message, "command not found") {
				t.Fatalf("a cell: %+v", s.exit)
			}
		}
		if all, _, err := h.Kernels(ctx); err != nil || len(all) != 0 {
			t.Fatalf("Kernels = %+v, %v", all, err)
		}
	}
}
