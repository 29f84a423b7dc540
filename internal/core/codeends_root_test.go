//go:build root

package core_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/core/cell"
	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

func TestCodeGoesOnOverARestartOfTheDaemon(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	w.python("a", "n = 0")
	hold, open := held(t)
	running := w.startCode("a", cell.Request{Code: hold + "\nn += 1\nprint('went on')\n{'n': n}"})
	var waiting []sandbox.Exec
	for range 5 {
		waiting = append(waiting, w.startCode("a", cell.Request{Code: "n += 1; n # " + strings.Repeat("long", 10_000)}))
	}
	w.says("a", running.Seq, "ready")
	w.restart()
	// That a cell began may not be written down before the agent says it again.
	w.until("the running one is known to run", func() bool {
		x, err := w.Execs().Get(w.ctx, "a", running.Seq)
		return err != nil || x.Status != sandbox.ExecPending
	})
	if k, err := w.Kernels().Get(w.ctx, "a", "python"); err != nil || k.Status != sandbox.KernelBusy || k.Waiting != 5 {
		t.Errorf("the kernel is %+v, %v", k, err)
	}
	if e, err := w.Code().Execution(w.ctx, "a", running.Seq); err != nil || e.Exec.Status != sandbox.ExecRunning || e.Stdout != "ready\n" {
		t.Errorf("the running one is %+v, %v", e, err)
	}
	open()
	w.wait("a", running.Seq)
	if e, err := w.Code().Execution(w.ctx, "a", running.Seq); err != nil || !e.Success || e.Stdout != "ready\nwent on\n" || plainResult(e) != "{'n': 1}" || e.Count != 2 {
		t.Errorf("the one that ran became %+v, error %+v, %v", e, e.Error, err)
	}
	for i, x := range waiting {
		w.wait("a", x.Seq)
		if e, err := w.Code().Execution(w.ctx, "a", x.Seq); err != nil || plainResult(e) != fmt.Sprint(i+2) || e.Count != i+3 || e.KernelRestarted != "" {
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
	x := w.startCode("a", cell.Request{Code: hold + fmt.Sprintf("\nprint('unseen')\nopen(%q, 'w').close()\n1/0", done)})
	w.says("a", x.Seq, "ready")
	w.stop()
	open()
	w.until("the cell is at its end", func() bool { _, err := os.Stat(done); return err == nil })
	w.driverOfNext()
	w.open()
	w.start()
	w.until("the sandbox is taken over", func() bool { _, _, err := w.Kernels().List(w.ctx, "a"); return err == nil })
	w.wait("a", x.Seq)
	if e, err := w.Code().Execution(w.ctx, "a", x.Seq); err != nil || e.Stdout != "ready\nunseen\n" || e.Error == nil || e.Error.Type != "ZeroDivisionError" {
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
			if _, err := w.Sandboxes().Stop(w.ctx, "a", 0); err != nil {
				w.t.Error(err)
			}
		}, sandbox.EndStopped, "SandboxStoppedError"},
		{"destroy", func(w *world, b sandbox.Sandbox) {
			if err := w.Sandboxes().Destroy(w.ctx, "a", false); err != nil {
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
			running := w.startCode("a", cell.Request{Code: hold})
			waiting := w.startCode("a", cell.Request{Code: "1"})
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
				e, err := w.Code().Execution(w.ctx, "a", seq)
				if err != nil || e.Success || e.Error == nil || e.Error.Type != tt.kind || !strings.Contains(e.Error.Message, stored.Exit.Message) {
					t.Errorf("cell %d is %+v, error %+v, %v", seq, e, e.Error, err)
				}
				if seq == running.Seq && (err != nil || e.Stdout != "ready\n") {
					t.Errorf("its output is %q, %v", e.Stdout, err)
				}
			}
			if strings.HasPrefix(tt.name, "oom") {
				if e, err := w.Code().Execution(w.ctx, "a", running.Seq); err != nil || !strings.HasPrefix(e.Error.Message, "CONTAINER_DIED: OOM-killed") {
					t.Errorf("it says %q, %v", e.Error.Message, err)
				}
			}
		})
	}
}

// What is known of code without its output is still told.
func TestCodeWhoseOutputWasRemoved(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	w.python("a", "print('x' * 1_000_000); raise ValueError('bad')")
	r, err := w.Execs().Result(w.ctx, "a", 1, live.OutputCaps{Rich: -1})
	if err != nil || !strings.Contains(string(r.Rich), `{"error":{"ename":"ValueError"`) || r.StdoutCut != 1_000_001 {
		t.Errorf("the rich output is %.200q, with %d bytes less text, %v", r.Rich, r.StdoutCut, err)
	}
	for range 10 { // of 1 MB each, of which 8 MiB are kept
		w.python("a", "print('x' * 1_000_000)")
	}
	e, err := w.Code().Execution(w.ctx, "a", 1)
	if err != nil || !e.Pruned || e.Stdout != "" || e.Success || e.Count != 1 || e.Error == nil || *e.Error != (cell.Error{Type: "ValueError", Message: "bad"}) {
		t.Errorf("Execution = %+v, error %+v, %v", e, e.Error, err)
	}
}
