//go:build root

package startup

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/internal/kernel"
)

// The thread that sends output may be about to as a cell ends: the cell has it all the same.
func TestPythonOutputBeforeTheEnd(t *testing.T) {
	c, _, _ := start(t, "python3", "python")
	// It takes its time between taking what was printed and sending it.
	if s := execute(t, c, `import sys, time
def slow(usual):
    def take():
        taken = usual()
        if not isinstance(taken, str):
            taken = list(taken)
        if taken:
            time.sleep(0.1)
        return taken
    return take
for name in "_flush_buffer", "_flush_buffers":
    if hasattr(sys.stdout, name):
        setattr(sys.stdout, name, slow(getattr(sys.stdout, name)))
sys.stdout.flush_interval = 0`); s.Error != "" {
		t.Fatal(s.Error)
	}
	for n := range 5 {
		want := fmt.Sprint(n, "\n")
		if s := execute(t, c, fmt.Sprintf("print(%d); time.sleep(0.05)", n)); s.Stdout != want {
			t.Errorf("cell %d shows %q, want %q", n, s.Stdout, want)
		}
	}
	if s := execute(t, c, "print('a', end=''); sys.stdout.flush(); print('b', end='', flush=True); display(1); print('c', file=sys.stderr)"); s.Stdout != "ab" || s.Stderr != "c\n" || len(s.Displays) != 1 {
		t.Errorf("a cell that flushes shows %+v", s)
	}
}

// What C code and programs print comes before what the cell displays after it, and what
// children print comes before the cell's end, as from Jupyter.
func TestPythonOutputOfOthers(t *testing.T) {
	c, _, _ := start(t, "python3", "python")
	ctx := inTime(t)
	var shown []string
	_, err := c.Execute(ctx, kernel.Cell{Code: `import os, subprocess
for n in range(60):
    if n % 10:
        os.write(1, b"%d\n" % n)
    else:
        subprocess.run(["echo", str(n)])
    display(n)`}, func(o kernel.Output) {
		switch {
		case o.Stream != nil:
			shown = append(shown, strings.Fields(o.Stream.Text)...)
		case o.Display != nil:
			shown = append(shown, "shown "+string(o.Display.Data["text/plain"]))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for n := range 60 {
		want = append(want, fmt.Sprint(n), fmt.Sprintf("shown \"%d\"", n))
	}
	if d := cmp.Diff(want, shown); d != "" {
		t.Errorf("what is shown (-want +got):\n%s", d)
	}
	for range 10 {
		s := execute(t, c, `import os
if not (child := os.fork()):
    print("child", flush=True)
    os._exit(0)
_ = os.waitpid(child, 0)`)
		if s.Stdout != "child\n" || s.Error != "" {
			t.Errorf("a cell with a child shows %+v", s)
		}
	}
}
