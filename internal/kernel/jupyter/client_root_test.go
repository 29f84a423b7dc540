//go:build root

package jupyter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/internal/kernel"
	"github.com/cubbyhq/cubby/internal/kernel/startup"
	"github.com/cubbyhq/cubby/internal/uptime"
)

// start runs a kernel of this machine and connects to it.
func start(t *testing.T, name string) (*Client, *exec.Cmd) {
	t.Helper()
	var spec Kernelspec
	for _, k := range Find(os.DirFS("/"), "/root") {
		if k.Name == name {
			spec = k
		}
	}
	if spec.Name == "" {
		t.Fatalf("no kernelspec %q: scripts/setup.sh test installs it", name)
	}
	to, err := NewConnection(name)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "connection.json")
	if err := os.WriteFile(file, to.File(), 0o600); err != nil {
		t.Fatal(err)
	}
	argv := startup.Command(spec.Command(file))
	if argv[0] == "python3" {
		argv[0] = "/usr/bin/python3" // the one that Debian's packages are for
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "HOME="+dir, "IPYTHONDIR="+dir)
	cmd.Dir = dir
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c, err := Dial(ctx, to, uptime.New())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, cmd
}

// shown is what a cell showed, with neighbouring pieces of a stream joined.
type shown struct {
	Stdout, Stderr, Result string
	Displays               []kernel.Bundle
	Error                  *kernel.Error
	Clears                 int
}

func execute(t *testing.T, c *Client, code string) (shown, kernel.Reply) {
	t.Helper()
	var s shown
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	r, err := c.Execute(ctx, kernel.Cell{Code: code}, s.take)
	if err != nil {
		t.Fatalf("%s: %v", code, err)
	}
	return s, r
}

func (s *shown) take(o kernel.Output) {
	switch {
	case o.Stream != nil && o.Stream.Name == "stdout":
		s.Stdout += o.Stream.Text
	case o.Stream != nil:
		s.Stderr += o.Stream.Text
	case o.Result != nil:
		s.Result = text(o.Result.Data)
	case o.Display != nil:
		s.Displays = append(s.Displays, o.Display.Data)
	case o.Error != nil:
		s.Error = o.Error
	case o.Clear != nil:
		s.Clears++
	}
}

func text(b kernel.Bundle) (s string) {
	_ = json.Unmarshal(b["text/plain"], &s)
	return s
}

func TestPython(t *testing.T) {
	c, _ := start(t, "python3")
	if c.Info().Language.Name != "python" {
		t.Errorf("Info = %+v", c.Info())
	}
	for i, tt := range []struct {
		code string
		want shown
	}{
		{"x = 20", shown{}},
		{"x + 22", shown{Result: "42"}},
		{"print('out')\nimport sys\nprint('err', file=sys.stderr)", shown{Stdout: "out\n", Stderr: "err\n"}},
		{"import asyncio\nawait asyncio.sleep(0, 'awaited')", shown{Result: "'awaited'"}},
		{"from IPython.display import clear_output\nclear_output()", shown{Clears: 1}},
	} {
		got, r := execute(t, c, tt.code)
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.code, diff)
		}
		if r.Status != "ok" || r.Count != i+1 {
			t.Errorf("%s: reply %+v", tt.code, r)
		}
	}

	got, r := execute(t, c, "def f(): 1/0\nf()")
	if r.Status != "error" || got.Error == nil || got.Error.Name != "ZeroDivisionError" || got.Error.Value != "division by zero" ||
		!strings.Contains(strings.Join(got.Error.Traceback, "\n"), "line") {
		t.Errorf("an error: %+v, %+v", got, r)
	}

	got, _ = execute(t, c, "from IPython.display import display, HTML\ndisplay(HTML('<b>hi</b>'))\ndisplay({'application/json': {'a': [1]}}, raw=True)")
	if len(got.Displays) != 2 || string(got.Displays[0]["text/html"]) != `"<b>hi</b>"` || string(got.Displays[1]["application/json"]) != `{"a": [1]}` {
		t.Errorf("displays: %s", got.Displays)
	}
}

// TestAllOutputBeforeReply has a cell print more than a connection's buffers
// hold.
func TestAllOutputBeforeReply(t *testing.T) {
	c, _ := start(t, "python3")
	got, _ := execute(t, c, "for i in range(200_000): print(i)")
	if n := strings.Count(got.Stdout, "\n"); n != 200_000 || !strings.HasSuffix(got.Stdout, "199999\n") {
		t.Errorf("%d lines", n)
	}
}

func TestInput(t *testing.T) {
	c, _ := start(t, "python3")
	got, _ := execute(t, c, "input('name? ')")
	if got.Error == nil || got.Error.Name != "StdinNotImplementedError" {
		t.Errorf("input without stdin: %+v", got.Error)
	}
	var s shown
	_, err := c.Execute(inTime(t), kernel.Cell{Code: "input('name? ')", Stdin: true}, func(o kernel.Output) {
		if o.Input != nil {
			if o.Input.Prompt != "name? " {
				t.Errorf("prompt = %+v", o.Input)
			}
			if err := c.Answer("Ada"); err != nil {
				t.Error(err)
			}
		}
		s.take(o)
	})
	if err != nil || s.Result != "'Ada'" {
		t.Errorf("input = %+v, %v", s, err)
	}
}

func TestInterruptKeepsState(t *testing.T) {
	c, cmd := start(t, "python3")
	execute(t, c, "kept = 'yes'")
	var s shown
	// It prints in its last statement: a kernel of an older version that is
	// interrupted between two says in the reply alone what happened.
	endless := "def spin():\n  print('on', flush=True)\n  while True:\n    pass\nspin()"
	interrupt := sync.OnceFunc(func() {
		if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Error(err)
		}
	})
	_, err := c.Execute(inTime(t), kernel.Cell{Code: endless}, func(o kernel.Output) {
		if o.Stream != nil {
			interrupt()
		}
		s.take(o)
	})
	if err != nil || s.Error == nil || s.Error.Name != "KeyboardInterrupt" {
		t.Errorf("interrupted: %+v, %v", s, err)
	}
	if got, _ := execute(t, c, "kept"); got.Result != "'yes'" {
		t.Errorf("state after an interrupt: %+v", got)
	}
}

func TestKernelThatDies(t *testing.T) {
	for _, code := range []string{"import os; os._exit(1)", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"} {
		c, _ := start(t, "python3")
		if _, err := c.Execute(inTime(t), kernel.Cell{Code: code}, func(kernel.Output) {}); !errors.Is(err, kernel.ErrGone) {
			t.Errorf("%s: %v, want ErrGone", code, err)
		}
		if _, err := c.Execute(inTime(t), kernel.Cell{Code: "1"}, func(kernel.Output) {}); !errors.Is(err, kernel.ErrGone) {
			t.Errorf("after %s: %v, want ErrGone", code, err)
		}
	}
}

func TestLargeDisplay(t *testing.T) {
	c, _ := start(t, "python3")
	for size, whole := range map[int]bool{20 << 20: true, 70 << 20: false} {
		var shown []kernel.Output
		code := fmt.Sprintf("from IPython.display import display\ndisplay({'text/plain': 'x' * %d}, raw=True)", size)
		r, err := c.Execute(inTime(t), kernel.Cell{Code: code}, func(o kernel.Output) {
			if o.Display != nil {
				shown = append(shown, o)
			}
		})
		if err != nil || r.Status != "ok" || len(shown) != 1 {
			t.Fatalf("%d bytes: %d displays, %+v, %v", size, len(shown), r, err)
		}
		if whole && (shown[0].Cut != 0 || len(text(shown[0].Display.Data)) != size) || !whole && shown[0].Cut < int64(size) {
			t.Errorf("%d bytes: %d of them, %d cut", size, len(text(shown[0].Display.Data)), shown[0].Cut)
		}
	}
	if got, _ := execute(t, c, "1 + 1"); got.Result != "2" {
		t.Errorf("after what was too large: %+v", got)
	}
}

func TestR(t *testing.T) {
	c, _ := start(t, "ir")
	execute(t, c, "x <- 20")
	if got, r := execute(t, c, "x + 22"); len(got.Displays)+len(got.Result) == 0 || r.Status != "ok" {
		t.Errorf("R: %+v, %+v", got, r)
	}
	got, r := execute(t, c, `cat("out\n"); stop("bad")`)
	if got.Stdout != "out\n" || r.Status != "error" {
		t.Errorf("R error: %+v, %+v", got, r)
	}
}

// inTime bounds what may never come: it shall fail its test and not hang it.
func inTime(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}
