//go:build root

package guest_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
)

func TestQuestionsToKernels(t *testing.T) {
	h := withKernels(t, nil)
	ctx := kernelContext(t)
	if _, err := h.CompleteCode(ctx, "python", "x", 1); !errors.Is(err, errs.NotFound) {
		t.Errorf("without a kernel: %v", err)
	}
	for name, defines := range map[string]string{"python": "thing = 'x'", "node": "const thing = 'x'", "r": "thing <- 'x'"} {
		h.cell(t, cellSpec(name, name, defines))
		if got, err := h.CompleteCode(ctx, name, "1; thin", 7); err != nil || !slices.Contains(got.Matches.Texts, "thing") || got.Start != 3 || got.End != 7 {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if got, err := h.InspectCode(ctx, name, "thing", 5, 0); err != nil || !got.Found || !strings.Contains(got.Data["text/plain"], "x") {
			t.Errorf("%s: thing is %+v, %v", name, got, err)
		}
		for code, want := range map[string]string{"1 + 1": "complete", "(": "incomplete", ")": "invalid"} {
			if got, err := h.CheckCode(ctx, name, code); err != nil || got.Status != want {
				t.Errorf("%s: %s is %+v, %v", name, code, got, err)
			}
		}
	}
	if _, err := h.CompleteCode(ctx, "python", "x", 2); !errors.Is(err, errs.Invalid) {
		t.Errorf("beyond the code: %v", err)
	}

	// Cells go first.
	uid := h.running(t, ctx, python(forever))
	if _, err := h.CheckCode(ctx, "python", "1"); !errors.Is(err, errs.WrongState) || !strings.Contains(err.Error(), "runs a cell") {
		t.Errorf("of a kernel that is busy: %v", err)
	}
	if _, err := h.InterruptKernel(ctx, "python"); err != nil {
		t.Fatal(err)
	}
	h.rest(t, ctx, uid)
	h.cell(t, python("import os; os._exit(3)"))
	if _, err := h.CheckCode(ctx, "python", "1"); !errors.Is(err, errs.WrongState) || !strings.Contains(err.Error(), "has ended") {
		t.Errorf("of a kernel that has ended: %v", err)
	}
	if s := h.cell(t, python("6 * 7")); s.value() != "42" {
		t.Errorf("the next cell is %+v", s)
	}
}

// A kernel that does not answer costs a question its time and nobody else
// anything: the next cell runs in the state that the kernel had.
func TestKernelThatDoesNotAnswer(t *testing.T) {
	h := withKernels(t, nil)
	ctx := kernelContext(t)
	h.cell(t, python(`
kept = 7
import time
class Late:
    def __dir__(self):
        time.sleep(6)
        return ['name']
class Slow:
    def __dir__(self):
        while True: time.sleep(0.01)
late, slow = Late(), Slow()`))
	// The first may take longer: it imports what answers it.
	if got, err := h.CompleteCode(ctx, "python", "late.", 5); err != nil || !slices.ContainsFunc(got.Matches.Texts, func(s string) bool { return strings.HasSuffix(s, "name") }) {
		t.Errorf("the first completion: %+v, %v", got, err)
	}
	if _, err := h.CompleteCode(ctx, "python", "slow.", 5); !errors.Is(err, errs.Timeout) {
		t.Errorf("an endless answer: %v", err)
	}
	if s := h.cell(t, python("kept")); s.value() != "7" {
		t.Errorf("the next cell is %+v", s)
	}

	// Whoever waits hears of the kernel's end. The kernel that watches runs before
	// anything is asked: its start would take from the question's time.
	h.cell(t, cellSpec("other", "python", "1"))
	for name, end := range map[string]func() error{
		"deleted":   func() error { return h.DeleteKernel(ctx, "python") },
		"restarted": func() error { _, err := h.RestartKernel(ctx, "python"); return err },
	} {
		h.cell(t, python("import os, time\nclass Slow:\n    def __dir__(self):\n        open(os.environ['HOME'] + '/asked', 'w').close()\n        time.sleep(3600)\nslow = Slow()"))
		asked := make(chan error, 1)
		go func() {
			_, err := h.CompleteCode(ctx, "python", "slow.", 5)
			asked <- err
		}()
		h.rest(t, ctx, h.running(t, ctx, cellSpec("other", "python", "import os, time\nwhile not os.path.exists(os.environ['HOME'] + '/asked'): time.sleep(0.01)\nos.remove(os.environ['HOME'] + '/asked')\nprint('go', flush=True)")))
		if err := end(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := <-asked; !errors.Is(err, errs.NotFound) && !errors.Is(err, errs.WrongState) {
			t.Errorf("%s: the question ends with %v", name, err)
		}
	}

	// One that does not even read.
	h.cell(t, python("1"))
	if _, err := h.CheckCode(ctx, "python", "1"); err != nil { // the first may take longer
		t.Errorf("CheckCode: %v", err)
	}
	h.cell(t, python("import os, signal, threading, time\nthreading.Thread(target=lambda: (time.sleep(0.5), os.kill(os.getpid(), signal.SIGSTOP))).start()\nkept = 8"))
	stopped := func() bool {
		_, err := h.CheckCode(ctx, "python", strings.Repeat("x", 4<<20))
		return errors.Is(err, errs.Timeout)
	}
	eventuallyKernel(t, stopped)
	if err := h.DeleteKernel(ctx, "python"); err != nil {
		t.Errorf("DeleteKernel: %v", err)
	}
	short, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := h.CheckCode(short, "python", "1"); !errors.Is(err, context.Canceled) && !errors.Is(err, errs.NotFound) {
		t.Errorf("after its end: %v", err)
	}
}

// A question that waits behind one whose answer ends the kernel hears of that, and
// so does one that comes as the kernel ends by itself; the agent lives on.
func TestQuestionsToAKernelThatDies(t *testing.T) {
	h := withKernels(t, nil)
	ctx := kernelContext(t)
	h.cell(t, python("import os, time\nclass Last:\n    def __dir__(self):\n        time.sleep(1)\n        os._exit(3)\nlast = Last()"))
	ended := make(chan error, 4)
	for range cap(ended) {
		go func() {
			_, err := h.CompleteCode(ctx, "python", "last.", 5)
			ended <- err
		}()
	}
	for range cap(ended) {
		if err := <-ended; err == nil {
			t.Error("a question to a kernel that has died is answered")
		}
	}
	h.cell(t, python("import os, threading, time\nthreading.Thread(target=lambda: (time.sleep(0.3), os._exit(3))).start()"))
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
		if _, err := h.CheckCode(ctx, "python", "1"); err != nil && strings.Contains(err.Error(), "has ended") {
			break
		}
	}
	if s := h.cell(t, python("6 * 7")); s.value() != "42" {
		t.Errorf("the next cell is %+v", s)
	}
}
