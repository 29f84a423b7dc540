//go:build root

package core_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/core/cell"
	"github.com/cubbyhq/cubby/internal/core/lifecycle"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

func TestKernelThatDies(t *testing.T) {
	w := newWorld(t)
	b := w.create("a")
	w.python("a", "x = 7")
	e := w.python("a", "import os; print('last words', flush=True); os._exit(3)")
	if e.Success || e.Exec.Exit.Reason != sandbox.EndKernel || e.Error == nil || e.Error.Type != "KernelDiedError" || !strings.Contains(e.Error.Message, "3") {
		t.Errorf("it ended %+v, error %+v", e.Exec.Exit, e.Error)
	}
	k, err := w.Kernels().Get(w.ctx, "a", "python")
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

// A sandbox that got its identity while it ran gives it to its kernels, those that
// run too, and to the sessions that begin later.
func TestIdentityOfKernelsAndSessions(t *testing.T) {
	w := newWorld(t)
	b := w.create("a")
	const whose = "import os; print(os.environ.get('WHOSE', 'nobody'))"
	if e := w.python("a", whose); e.Stdout != "nobody\n" {
		t.Fatalf("before: %+v, error %+v", e, e.Error)
	}
	if _, err := w.fake.Identify(w.ctx, b.Handle, driver.Identity{ID: "mine", Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin", "WHOSE=mine"}}); err != nil {
		t.Fatal(err)
	}
	if e := w.code("a", cell.Request{Kernel: "later", Language: "python", Code: whose}); e.Stdout != "mine\n" {
		t.Errorf("a new kernel: %+v, error %+v", e, e.Error)
	}
	if e := w.python("a", whose); e.Stdout != "mine\n" {
		t.Errorf("the kernel of before: %+v, error %+v; want the new environment", e, e.Error)
	}
	if r := w.in("a", "echo $WHOSE"); string(r.Stdout) != "mine\n" {
		t.Errorf("a new session: %+v", r)
	}
	if r := w.sh("a", "echo $WHOSE"); string(r.Stdout) != "mine\n" {
		t.Errorf("a command: %+v", r)
	}
}

func TestKernels(t *testing.T) {
	w := newWorld(t)
	b := w.create("a")
	kernels, kinds, err := w.Kernels().List(w.ctx, "a")
	if err != nil || len(kernels) != 0 || !slices.ContainsFunc(kinds, func(k sandbox.KernelKind) bool { return k.Language == "python" && k.Spec == "python3" }) {
		t.Fatalf("Kernels = %v, %v, %v", kernels, kinds, err)
	}
	k, err := w.Kernels().Create(w.ctx, "a", sandbox.KernelSpec{Name: "mine", Cwd: "dir/..", Env: map[string]string{"MINE": "yes"}})
	if err != nil || k.Name != "mine" || k.Language != "python" || k.Status != sandbox.KernelIdle {
		t.Fatalf("CreateKernel = %+v, %v", k, err)
	}
	if _, err := w.Kernels().Create(w.ctx, "a", sandbox.KernelSpec{Name: "mine", Language: "python"}); !errors.Is(err, errs.Conflict) {
		t.Errorf("a second one = %v, want conflict", err)
	}
	if e := w.code("a", cell.Request{Kernel: "mine", Code: "import os; x = 1; print(os.environ['MINE'], os.path.basename(os.getcwd()))"}); e.Stdout != "yes workspace\n" {
		t.Errorf("in it: %+v, error %+v", e, e.Error)
	}
	hold, _ := held(t)
	x := w.startCode("a", cell.Request{Kernel: "mine", Code: hold})
	w.says("a", x.Seq, "ready")
	if _, err := w.Kernels().Interrupt(w.ctx, "a", "mine"); err != nil {
		t.Errorf("InterruptKernel: %v", err)
	}
	if x = w.wait("a", x.Seq); x.Exit.Reason != sandbox.EndKilled {
		t.Errorf("the interrupted cell ended %+v", x.Exit)
	}
	if e := w.code("a", cell.Request{Kernel: "mine", Code: "x"}); plainResult(e) != "1" {
		t.Errorf("then x is %+v, error %+v", e, e.Error)
	}
	if k, err := w.Kernels().Restart(w.ctx, "a", "mine"); err != nil || k.Restarts != 1 || k.Count != 0 {
		t.Errorf("RestartKernel = %+v, %v", k, err)
	}
	if e := w.code("a", cell.Request{Kernel: "mine", Code: "'x' in globals()"}); plainResult(e) != "False" || e.KernelRestarted == "" {
		t.Errorf("then x is there: %+v, error %+v", e, e.Error)
	}

	// A deleted kernel takes its cells with it, and is not made again for those
	// that wait.
	x = w.startCode("a", cell.Request{Kernel: "mine", Code: hold})
	waiting := w.startCode("a", cell.Request{Kernel: "mine", Code: "1"})
	w.says("a", x.Seq, "ready")
	if err := w.Kernels().Delete(w.ctx, "a", "mine"); err != nil {
		t.Errorf("DeleteKernel: %v", err)
	}
	if x = w.wait("a", x.Seq); x.Exit.Reason != sandbox.EndKilled {
		t.Errorf("its cell ended %+v", x.Exit)
	}
	if _, err := w.Code().Start(w.ctx, "a", cell.Request{Kernel: "mine", Code: "1"}); !errors.Is(err, errs.NotFound) {
		t.Errorf("code for it = %v, want not found", err)
	}
	if x = w.wait("a", waiting.Seq); x.Exit.Reason != sandbox.EndNotRun || !strings.Contains(x.Exit.Message, "deleted") {
		t.Errorf("the cell that waited ended %+v", x.Exit)
	}
	kernels, _, err = w.Kernels().List(w.ctx, "a")
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

// TestKernelIsDeletedWhileACellIsOnItsWay: it is not made again for that cell.
func TestKernelIsDeletedWhileACellIsOnItsWay(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	for i := range 6 {
		x := w.startCode("a", cell.Request{Language: "python", Kernel: "mine", Code: "while True: pass"})
		time.Sleep(time.Duration(i) * 2 * time.Millisecond)
		if err := w.Kernels().Delete(w.ctx, "a", "mine"); err != nil && !errors.Is(err, errs.NotFound) {
			t.Fatalf("Delete = %v", err)
		}
		if x = w.wait("a", x.Seq); x.Exit.Reason != sandbox.EndKilled && x.Exit.Reason != sandbox.EndNotRun {
			t.Errorf("number %d ended %+v", i, x.Exit)
		}
		if kernels, _, err := w.Kernels().List(w.ctx, "a"); err != nil || len(kernels) != 0 {
			t.Errorf("after number %d there are %v, %v", i, kernels, err)
		}
	}
}

// A kernel that nobody uses does not keep its sandbox; code does.
func TestIdleKernelDoesNotKeepASandbox(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	limit := time.Millisecond
	hold, open := held(t)
	x := w.startCode("a", cell.Request{Code: hold})
	w.says("a", x.Seq, "ready")
	if _, err := w.Sandboxes().Update(w.ctx, "a", lifecycle.Patch{IdleTimeout: &limit}); err != nil {
		t.Fatal(err)
	}
	if got, err := w.Sandboxes().Get(w.ctx, "a"); err != nil || !got.IdleAt.IsZero() {
		t.Errorf("a sandbox with code is idle at %v, %v", got.IdleAt, err)
	}
	if ends := w.Reap(); len(ends) != 0 {
		t.Errorf("the reaper took it: %v", ends)
	}
	open()
	w.wait("a", x.Seq)
	w.until("the sandbox sleeps", func() bool {
		w.Reap()
		got, err := w.Sandboxes().Get(w.ctx, "a")
		return err == nil && got.State == sandbox.Sleeping
	})
}
