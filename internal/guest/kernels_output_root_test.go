//go:build root

package guest_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/guest"
	"github.com/cubbyhq/cubby/internal/kernel"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

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

// TestOutputAfterItsCell: what a thread, a timer or a program shows when its
// cell has ended is shown by the next one.
func TestOutputAfterItsCell(t *testing.T) {
	h := withKernels(t, nil)
	for language, code := range map[string]string{
		"python": `
import os, sys, threading, time
def late():
    while not os.path.exists("GO"): time.sleep(0.01)
    print("late", flush=True)
    open("DONE", "w").close()
threading.Thread(target=late).start()`,
		"node": `
const timer = setInterval(() => {
  if (!require("fs").existsSync("GO")) return
  clearInterval(timer)
  console.log("late")
  require("fs").writeFileSync("DONE", "")
}, 10); 0`,
		"r": `system('(until [ -e "GO" ]; do sleep 0.01; done; echo late; : > "DONE") &')`,
	} {
		dir := t.TempDir()
		if err := os.Chmod(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		code = strings.NewReplacer("GO", dir+"/go", "DONE", dir+"/done").Replace(code)
		if s := h.cell(t, cellSpec(language, language, code)); len(s.stdout) > 0 {
			t.Errorf("%s: its own cell: %q", language, s.stdout)
		}
		if err := os.WriteFile(dir+"/go", nil, 0o600); err != nil {
			t.Fatal(err)
		}
		eventuallyKernel(t, func() bool {
			_, err := os.Stat(dir + "/done")
			return err == nil
		})
		if s := h.cell(t, cellSpec(language, language, "1")); string(s.stdout) != "late\n" {
			t.Errorf("%s: the next cell: stdout %q, want what came late", language, s.stdout)
		}
		if s := h.cell(t, cellSpec(language, language, "2")); len(s.stdout) > 0 {
			t.Errorf("%s: the cell after that: stdout %q", language, s.stdout)
		}
	}
}

// What programs that a cell starts write to the kernel's own streams is the
// cell's.
func TestOutputOfProgramsInCells(t *testing.T) {
	h := withKernels(t, nil)
	for _, tt := range []struct {
		language, code, stdout, stderr string
	}{
		{"node", "require('child_process').execSync('echo out; echo err >&2', {stdio: 'inherit'})", "out\n", "err\n"},
		{"node", "console.log('quiet')", "quiet\n", ""},
		{"r", "invisible(system('echo out; echo err >&2'))", "out\n", "err\n"},
		{"python", "import os; os.system('echo out; echo err >&2');", "out\n", "err\n"},
	} {
		s := h.cell(t, cellSpec(tt.language, tt.language, tt.code))
		s.wants(t, 0, sandbox.EndExited)
		if string(s.stdout) != tt.stdout || string(s.stderr) != tt.stderr {
			t.Errorf("%s: stdout %q, stderr %q, want %q, %q", tt.code, s.stdout, s.stderr, tt.stdout, tt.stderr)
		}
	}
	// More than the pipe holds, from somebody who goes on.
	s := h.cell(t, cellSpec("node", "", "require('child_process').spawn('sh', ['-c', 'yes | head -c 3000000'], {stdio: 'inherit'}); 7"))
	if s.wants(t, 0, sandbox.EndExited); s.value() != "7" {
		t.Errorf("value %q", s.value())
	}
	s = h.cell(t, cellSpec("node", "", "process.abort()"))
	if s.wants(t, 134, sandbox.EndKernel); len(s.stderr) == 0 {
		t.Error("a crash says nothing")
	}
}
