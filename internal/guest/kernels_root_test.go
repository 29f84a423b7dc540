//go:build root

package guest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
	"github.com/cubbyhq/cubby/internal/guest"
	"github.com/cubbyhq/cubby/internal/guestd"
	"github.com/cubbyhq/cubby/internal/kernel"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// These tests run the kernels that scripts/setup.sh test installs.

// kernelPatience is how long a test waits for a cell: kernels are slow to
// start on a busy machine.
const kernelPatience = 6 * time.Minute

// withKernels makes an agent's commands find this machine's kernels, with a
// home directory of their own.
func withKernels(t testing.TB, change func(*guestd.Config)) host {
	t.Helper()
	home := t.TempDir()
	return start(t, func(c *guestd.Config) {
		c.Boot.Env = []string{"PYTHONDONTWRITEBYTECODE=1", "PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + home, "IPYTHONDIR=" + filepath.Join(home, "ipython")}
		if change != nil {
			change(c)
		}
	})
}

func eventuallyKernel(t *testing.T, done func() bool) {
	t.Helper()
	within(t, kernelPatience, done)
}

func kernelContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), kernelPatience)
	t.Cleanup(cancel)
	return ctx
}

func cellSpec(name, language, code string) sandbox.ExecSpec {
	return sandbox.ExecSpec{Cell: &sandbox.Cell{Kernel: name, Language: language, Code: code}}
}

func python(code string) sandbox.ExecSpec { return cellSpec("python", "python", code) }

// shown is a cell as it was streamed.
type shown struct {
	result
	records []kernel.Output
}

func (h host) cell(t testing.TB, spec sandbox.ExecSpec) shown {
	t.Helper()
	return h.cellAs(t, kernelContext(t), sandbox.NewUID(), spec)
}

func (h host) cellAs(t testing.TB, ctx context.Context, uid sandbox.UID, spec sandbox.ExecSpec) shown {
	t.Helper()
	return records(t, h.follow(t, ctx, uid, &guest.Start{ExecSpec: spec}, 0))
}

func records(t testing.TB, r result) shown {
	t.Helper()
	s := shown{result: r}
	for line := range bytes.Lines(r.rich) {
		var o kernel.Output
		if err := json.Unmarshal(line, &o); err != nil || line[len(line)-1] != '\n' {
			t.Fatalf("record %q: %v", line, err)
		}
		s.records = append(s.records, o)
	}
	return s
}

// value is the cell's result as text.
func (s shown) value() string {
	for _, o := range s.records {
		if o.Result != nil {
			return plainText(o.Result.Data)
		}
	}
	return ""
}

func plainText(b kernel.Bundle) (text string) {
	_ = json.Unmarshal(b["text/plain"], &text)
	return text
}

func (s shown) failure() string {
	for _, o := range s.records {
		if o.Error != nil {
			return o.Error.Name
		}
	}
	return ""
}

// restarted is why the state is not that of the cell before.
func (s shown) restarted() string {
	if len(s.records) > 0 && s.records[0].Kernel != nil && s.records[0].Kernel.Restarted {
		return s.records[0].Kernel.Reason
	}
	return ""
}

func (s shown) wants(t testing.TB, code int, reason sandbox.EndReason) {
	t.Helper()
	if s.exit == nil || *s.exit.Code != code || s.exit.Reason != reason {
		t.Fatalf("exit = %+v, want %d %s; stdout %.200q, stderr %.200q, records %.500q", s.exit, code, reason, s.stdout, s.stderr, s.rich)
	}
}

func (h host) kernel(t testing.TB, name string) sandbox.Kernel {
	t.Helper()
	all, _, err := h.Kernels(kernelContext(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range all {
		if k.Name == name {
			return k
		}
	}
	t.Fatalf("no kernel %q in %+v", name, all)
	return sandbox.Kernel{}
}

// everyKernelLauncher is everyLauncher with kernels.
func everyKernelLauncher(t *testing.T, test func(t *testing.T, h host)) {
	t.Run("plain", func(t *testing.T) { test(t, withKernels(t, nil)) })
	t.Run("supervised", func(t *testing.T) { test(t, withKernels(t, supervised(t))) })
}

func TestCells(t *testing.T) {
	everyKernelLauncher(t, func(t *testing.T, h host) {
		for _, tt := range []struct {
			spec          sandbox.ExecSpec
			stdout, value string
			failure       string
			code          int
		}{
			{python("x = 20"), "", "", "", 0},
			{python("print('hi'); x + 22"), "hi\n", "42", "", 0},
			{python("1/0"), "", "", "ZeroDivisionError", 1},
			{python("x"), "", "20", "", 0},
			{cellSpec("node", "javascript", "let y = 20; console.log('hi'); y + 22"), "hi\n", "42", "", 0},
			{cellSpec("node", "", "y"), "", "20", "", 0},
			{cellSpec("node", "", "throw new TypeError('no')"), "", "", "TypeError", 1},
			{cellSpec("", "R", "z <- 20; cat('hi\\n'); z + 22"), "hi\n", "[1] 42", "", 0},
			{cellSpec("r", "", "z"), "", "[1] 20", "", 0},
		} {
			s := h.cell(t, tt.spec)
			s.wants(t, tt.code, sandbox.EndExited)
			if string(s.stdout) != tt.stdout || s.value() != tt.value || s.failure() != tt.failure {
				t.Errorf("%s: stdout %q, value %q, error %q; want %q, %q, %q", tt.spec.Cell.Code, s.stdout, s.value(), s.failure(), tt.stdout, tt.value, tt.failure)
			}
			if s.started == nil || s.started.PID == 0 {
				t.Errorf("%s: started = %+v", tt.spec.Cell.Code, s.started)
			}
		}
		k := h.kernel(t, "python")
		if k.Language != "python" || k.Spec != "python3" || k.Status != sandbox.KernelIdle || k.Count != 4 || k.PID == 0 || k.StartedAt.IsZero() {
			t.Errorf("kernel = %+v", k)
		}
	})
}

func TestKernelLifecycle(t *testing.T) {
	h := withKernels(t, func(c *guestd.Config) {
		c.Boot = &guestv1.Boot{Secret: c.Boot.Secret, Socket: c.Boot.Socket, Env: c.Boot.Env}
	})
	ctx := kernelContext(t)
	k, err := h.CreateKernel(ctx, sandbox.KernelSpec{Name: "work", Language: "python", Cwd: "/", Env: map[string]string{"A": "b"}})
	if err != nil || k.Name != "work" || k.Status != sandbox.KernelIdle || k.Language != "python" {
		t.Fatalf("CreateKernel = %+v, %v", k, err)
	}
	if s := h.cell(t, cellSpec("work", "", "import os; x = 1; os.getcwd() + os.environ['A']")); s.value() != "'/b'" {
		t.Errorf("value = %q", s.value())
	}
	k, err = h.RestartKernel(ctx, "work")
	if err != nil || k.Restarts != 1 || k.Count != 0 {
		t.Fatalf("RestartKernel = %+v, %v", k, err)
	}
	s := h.cell(t, cellSpec("work", "", "x"))
	if s.wants(t, 1, sandbox.EndExited); s.failure() != "NameError" || !strings.Contains(s.restarted(), "restarted") {
		t.Errorf("after a restart: %q, %q", s.failure(), s.restarted())
	}
	if s.exit.Exception != "NameError" || s.exit.Message != "NameError: name 'x' is not defined" {
		t.Errorf("the exit says %q, %q", s.exit.Exception, s.exit.Message)
	}
	if s := h.cell(t, cellSpec("work", "", "2")); s.restarted() != "" {
		t.Errorf("the second cell after a restart says %q", s.restarted())
	}
	if err := h.DeleteKernel(ctx, "work"); err != nil {
		t.Fatal(err)
	}
	all, kinds, err := h.Kernels(ctx)
	if err != nil || len(all) != 0 || len(kinds) < 3 {
		t.Errorf("Kernels = %+v, %+v, %v", all, kinds, err)
	}
	h.cell(t, cellSpec("work", "", "1")).wants(t, 127, sandbox.EndNotRun)
	if left, _ := filepath.Glob(filepath.Join(os.TempDir(), ".cubby-kernel-*")); len(left) > 0 {
		t.Logf("files of kernels: %v", left)
	}
}
