//go:build root

package guest_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

func (h host) prepare(t testing.TB, language string, modules ...string) {
	t.Helper()
	if err := h.PrepareKernel(kernelContext(t), sandbox.KernelSpec{Language: language}, modules); err != nil {
		t.Fatal(err)
	}
}

// kernelNames are those that are listed.
func (h host) kernelNames(t testing.TB) string {
	t.Helper()
	all, _, err := h.Kernels(kernelContext(t))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, k := range all {
		names = append(names, k.Name)
	}
	return strings.Join(names, " ")
}

// kernelProcesses are those of Python's kernels that this process started.
func kernelProcesses(t testing.TB) (pids []int) {
	t.Helper()
	threads, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		text, err := os.ReadFile(thread)
		if err != nil {
			continue // the thread ended
		}
		for _, field := range strings.Fields(string(text)) {
			pid, err := strconv.Atoi(field)
			if err != nil {
				t.Fatal(err)
			}
			argv, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			if err == nil && bytes.Contains(argv, []byte("ipykernel")) {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

const pidOf = "__import__('os').getpid()"

// TestASpareKernelIsTheFirstThatIsAskedFor: nobody sees it before, and then it is a
// kernel like any, whatever its name.
func TestASpareKernelIsTheFirstThatIsAskedFor(t *testing.T) {
	h := withKernels(t, nil)
	h.prepare(t, "python", "mailbox", "xml.dom.minidom")
	if names := h.kernelNames(t); names != "" {
		t.Errorf("the spare kernel is listed: %q", names)
	}
	s := h.cell(t, cellSpec("mine", "python3", `[m in __import__("sys").modules for m in ("mailbox", "xml.dom.minidom")], "mailbox" in dir(), "xml" in dir()`))
	s.wants(t, 0, sandbox.EndExited)
	if s.value() != "([True, True], False, False)" {
		t.Errorf("the modules: %s", s.value())
	}
	k := h.kernel(t, "mine")
	if h.kernelNames(t) != "mine" || k.Count != 1 || k.Restarts != 0 || k.CreatedAt.IsZero() || k.CreatedAt.Before(k.StartedAt) {
		t.Errorf("the kernel is %+v, want one that was started before it was created", k)
	}
	// A restart makes one as it would be without.
	if _, err := h.RestartKernel(kernelContext(t), "mine"); err != nil {
		t.Fatal(err)
	}
	if s := h.cell(t, cellSpec("mine", "python", `"mailbox" in __import__("sys").modules`)); s.value() != "False" {
		t.Errorf("after a restart the module is there: %s", s.value())
	}
	// There is none any more.
	if a, b := h.cell(t, python(pidOf)), h.cell(t, cellSpec("mine", "", pidOf)); a.value() == b.value() || a.value() == "" {
		t.Errorf("two kernels have the process %s", a.value())
	}
}

// TestCreateTakesTheSpareKernel without a start.
func TestCreateTakesTheSpareKernel(t *testing.T) {
	h := withKernels(t, nil)
	h.prepare(t, "python")
	k, err := h.CreateKernel(kernelContext(t), sandbox.KernelSpec{Language: "python", Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	if !k.StartedAt.Before(k.CreatedAt) || k.Restarts != 0 || k.Status != sandbox.KernelIdle {
		t.Errorf("the kernel is %+v, want the one that was started before", k)
	}
}

// TestWhoWantsAnotherKernelDoesNotGetTheSpareOne.
func TestWhoWantsAnotherKernelDoesNotGetTheSpareOne(t *testing.T) {
	h := withKernels(t, nil)
	h.prepare(t, "python")
	for name, spec := range map[string]sandbox.KernelSpec{
		"language":  {Language: "node"},
		"variables": {Language: "python", Env: map[string]string{"A": "1"}},
		"directory": {Language: "python", Cwd: "/tmp"},
	} {
		spec.Name = name
		k, err := h.CreateKernel(kernelContext(t), spec)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if k.StartedAt.Before(k.CreatedAt) {
			t.Errorf("%s: it got the spare kernel: %+v", name, k)
		}
	}
	if k, err := h.CreateKernel(kernelContext(t), sandbox.KernelSpec{Language: "python"}); err != nil || !k.StartedAt.Before(k.CreatedAt) {
		t.Errorf("then one that fits = %+v, %v", k, err)
	}
}

// TestASpareKernelThatEndedIsNobodys.
func TestASpareKernelThatEndedIsNobodys(t *testing.T) {
	h := withKernels(t, nil)
	h.prepare(t, "python", "atexit")
	h.prepare(t, "python") // takes the place of the first
	eventuallyKernel(t, func() bool { return len(kernelProcesses(t)) == 1 })
	pid := kernelProcesses(t)[0]
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		t.Fatal(err)
	}
	dir := regexp.MustCompile(`/[^\x00]*/\.cubby-kernel-[^/]+`).FindString(string(line))
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	// Its files go when the agent has seen it; the process does so before.
	eventuallyKernel(t, func() bool { _, err := os.Stat(dir); return errors.Is(err, os.ErrNotExist) })
	s := h.cell(t, python("1+1"))
	s.wants(t, 0, sandbox.EndExited)
	if s.value() != "2" || s.restarted() != "" {
		t.Errorf("the cell: %q, restarted %q", s.value(), s.restarted())
	}
}

// TestPrepareRefuses what it cannot do, and leaves no kernel then.
func TestPrepareRefuses(t *testing.T) {
	h := withKernels(t, nil)
	for name, tt := range map[string]struct {
		language string
		modules  []string
		kind     errs.Kind
	}{
		"no language":   {"", nil, errs.Invalid},
		"no such kind":  {"cobol", nil, errs.NotFound},
		"no such name":  {"python", []string{"no_such_module_of_ours"}, errs.Invalid},
		"code":          {"python", []string{`os"); print("`}, errs.Invalid},
		"no name":       {"python", []string{""}, errs.Invalid},
		"two languages": {"node", []string{"fs", "no_such_module_of_ours"}, errs.Invalid},
	} {
		err := h.PrepareKernel(kernelContext(t), sandbox.KernelSpec{Language: tt.language}, tt.modules)
		if !errors.Is(err, tt.kind) {
			t.Errorf("%s: %v, want %v", name, err, tt.kind)
		}
	}
	k, err := h.CreateKernel(kernelContext(t), sandbox.KernelSpec{Language: "python"})
	if err != nil || k.StartedAt.Before(k.CreatedAt) {
		t.Errorf("a kernel after those = %+v, %v, want a new one", k, err)
	}
}
