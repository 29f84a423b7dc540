//go:build root

package startup

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/internal/kernel"
	"github.com/cubbyhq/cubby/internal/kernel/jupyter"
	"github.com/cubbyhq/cubby/internal/uptime"
)

// start runs a kernel of this machine as the agent would, in a home of its own, in
// which there are some programs.
func start(t *testing.T, name, language string, programs ...string) (*jupyter.Client, *exec.Cmd, string) {
	t.Helper()
	return startChanged(t, name, language, func(*exec.Cmd) {}, programs...)
}

// startChanged is start with a change to the command.
func startChanged(t *testing.T, name, language string, change func(*exec.Cmd), programs ...string) (*jupyter.Client, *exec.Cmd, string) {
	t.Helper()
	var argv []string
	home := t.TempDir()
	for _, program := range programs {
		if err := os.WriteFile(filepath.Join(home, program), []byte("raise Exception('imported')"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	to, err := jupyter.NewConnection(name)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(home, "connection.json")
	if err := os.WriteFile(file, to.File(), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, k := range jupyter.Find(os.DirFS("/"), "/root") {
		if k.Name == name {
			argv = Command(k.Command(file))
		}
	}
	if argv == nil {
		t.Fatalf("no kernelspec %q: scripts/setup.sh test installs it", name)
	}
	if argv[0] == "python3" {
		argv[0] = "/usr/bin/python3" // the one that Debian's packages are for
	}
	if language == "python" && !slices.Contains(argv, "-Xfrozen_modules=off") {
		argv = slices.Insert(argv, 1, "-Xfrozen_modules=off") // as ipykernel's own kernelspec has it
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "HOME="+home, "TMPDIR="+home, "IPYTHONDIR="+home, "R_LIBS_USER="+home+"/R/library", "CUBBY_CRAN_MIRROR=http://127.0.0.1:9/cran")
	cmd.Dir = home
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	change(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c, err := jupyter.Dial(ctx, to, uptime.New())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	if got := execute(t, c, Code(language)); got.Error != "" {
		t.Fatalf("the startup code: %+v", got)
	}
	return c, cmd, home
}

// shown is what a cell showed, with neighbouring pieces of a stream joined.
type shown struct {
	Stdout, Stderr, Error string
	Result                kernel.Bundle
	Displays              []kernel.Bundle
	traceback             string
	counts                []int
}

func (s *shown) take(o kernel.Output) {
	switch {
	case o.Stream != nil && o.Stream.Name == "stdout":
		s.Stdout += o.Stream.Text
	case o.Stream != nil:
		s.Stderr += o.Stream.Text
	case o.Result != nil:
		s.Result = o.Result.Data
		s.counts = append(s.counts, o.Result.Count)
	case o.Display != nil:
		s.Displays = append(s.Displays, o.Display.Data)
	case o.Error != nil:
		s.Error = o.Error.Name + ": " + o.Error.Value
		s.traceback = strings.Join(o.Error.Traceback, "\n")
	}
}

func execute(t *testing.T, c *jupyter.Client, code string) (s shown) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var over atomic.Bool
	r, err := c.Execute(ctx, kernel.Cell{Code: code}, func(o kernel.Output) {
		if over.Load() {
			t.Errorf("%s: %+v is shown after the end", code, o)
		}
		s.take(o)
	})
	over.Store(true)
	if err != nil {
		t.Fatalf("%s: %v", code, err)
	}
	if (r.Status == "error") != (s.Error != "") {
		t.Errorf("%s: reply %+v, error %q", code, r, s.Error)
	}
	for _, n := range s.counts {
		if n != r.Count {
			t.Errorf("%s: result number %d, reply number %d", code, n, r.Count)
		}
	}
	return s
}

func plain(s string) kernel.Bundle { return bundle("text/plain", s) }

func bundle(mime, s string) kernel.Bundle {
	b, _ := json.Marshal(s)
	return kernel.Bundle{mime: b}
}

// sameJSON compares values, not how they are written; some versions of IPython
// end base64 with a new line.
var sameJSON = cmp.Transformer("JSON", func(b json.RawMessage) (v any) {
	_ = json.Unmarshal(b, &v)
	if text, ok := v.(string); ok {
		return strings.TrimSuffix(text, "\n")
	}
	return v
})

type check struct {
	code string
	want shown
}

func run(t *testing.T, c *jupyter.Client, checks []check) {
	t.Helper()
	for _, tt := range checks {
		got := execute(t, c, tt.code)
		if diff := cmp.Diff(tt.want, got, cmp.FilterPath(func(p cmp.Path) bool {
			return p.String() == "traceback" || p.String() == "counts"
		}, cmp.Ignore()), cmp.AllowUnexported(shown{}), sameJSON); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.code, diff)
		}
	}
}

func TestPython(t *testing.T) {
	c, cmd, home := start(t, "python3", "python")
	run(t, c, []check{
		{"x = 20", shown{}},
		{"x + 22", shown{Result: plain("42")}},
		// A coroutine that nobody awaited.
		{"async def f(v):\n    print('in')\n    import asyncio\n    await asyncio.sleep(0.001)\n    return v", shown{}},
		{"f(5)", shown{Stdout: "in\n", Result: plain("5")}},
		{"_ + 1", shown{Result: plain("6")}},
		{"f(None)", shown{Stdout: "in\n"}},
		{"await f(7)", shown{Stdout: "in\n", Result: plain("7")}},
		{"async def bad():\n    raise KeyError('k')\nbad()", shown{Error: "KeyError: 'k'"}},
		{"async def outer(): return f(8)\nouter()", shown{Stdout: "in\n", Result: plain("8")}},
		{"x", shown{Result: plain("20")}},
		// What is not a module of the user's stays out of sight.
		{"sorted({n for n in dir() if not n.startswith('_')} - {'open'})", shown{Result: plain("['In', 'Out', 'bad', 'exit', 'f', 'get_ipython', 'outer', 'quit', 'x']")}},
		{"'__coroutine__' in globals(), '_cubby' in globals()", shown{Result: plain("(False, False)")}},
		{"import sys, site, os\nsite.getusersitepackages() in sys.path, os.environ.get('FORCE_COLOR'), os.environ['MPLBACKEND']", shown{
			Result: plain("(True, None, 'module://matplotlib_inline.backend_inline')"),
		}},
		{"'matplotlib' in sys.modules or 'plotly' in sys.modules", shown{Result: plain("False")}},
		// What media are.
		{"from IPython.display import *\ndisplay(JSON({'a': 1}), include=['application/json'])\ndisplay(SVG('<svg></svg>'), include=['image/svg+xml'])", shown{
			Displays: []kernel.Bundle{{"application/json": json.RawMessage(`{"a": 1}`)}, bundle("image/svg+xml", "<svg/>")},
		}},
		{"display(Image(b'\\xff\\xd8\\xff', format='jpeg'), include=['image/jpeg'])", shown{Displays: []kernel.Bundle{bundle("image/jpeg", "/9j/\n")}}},
		{"display(Video(b'abc', embed=True, mimetype='video/mp4'), include=['video/mp4'])", shown{Displays: []kernel.Bundle{bundle("video/mp4", "YWJj")}}},
		{"display(Audio(b'RIFF'), include=['audio/wav'])", shown{Displays: []kernel.Bundle{bundle("audio/wav", "UklGRg==")}}},
	})

	// Readable, and the author's lines only.
	got := execute(t, c, "def g():\n    return 1 / 0\ng()")
	if !strings.Contains(got.traceback, "return 1 / 0") || strings.Contains(got.traceback, "\x1b") || got.Error != "ZeroDivisionError: division by zero" {
		t.Errorf("the traceback of %s:\n%q", got.Error, got.traceback)
	}

	// What pip installs beside a kernel that runs.
	packages := execute(t, c, "print(site.getusersitepackages(), end='')").Stdout
	if err := os.WriteFile(filepath.Join(packages, "late.py"), []byte("answer = 42\n"), 0o600); err != nil || !strings.HasPrefix(packages, home) {
		t.Fatal(packages, err)
	}
	run(t, c, []check{{"import late; late.answer", shown{Result: plain("42")}}})

	// An interrupt ends a coroutine that was awaited for its author, too.
	var s shown
	_, err := c.Execute(inTime(t), kernel.Cell{Code: "async def long():\n    print('on', flush=True)\n    import asyncio\n    await asyncio.sleep(3600)\nlong()"}, func(o kernel.Output) {
		if o.Stream != nil && strings.Contains(o.Stream.Text, "on") {
			if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
				t.Error(err)
			}
		}
		s.take(o)
	})
	if name, _, _ := strings.Cut(s.Error, ":"); err != nil || name != "KeyboardInterrupt" && name != "CancelledError" {
		t.Errorf("interrupted: %+v, %v", s, err)
	}
	run(t, c, []check{{"x", shown{Result: plain("20")}}})
}

// TestPythonInterruptedBeforeItsHandler: an interrupt that comes between the look whether
// one has come and the handler that raises it ends the cell too.
func TestPythonInterruptedBeforeItsHandler(t *testing.T) {
	c, _, _ := start(t, "python3", "python")
	execute(t, c, `import os, signal, sys
usual = signal.getsignal
def getsignal(number):
    if sys._getframe(2).f_code.co_name == "listening_code":
        signal.getsignal = usual
        os.kill(os.getpid(), signal.SIGINT)
    return usual(number)
signal.getsignal = getsignal`)
	var s shown
	r, err := c.Execute(inTime(t), kernel.Cell{Code: "while True: pass"}, s.take)
	if err != nil || r.Status != "error" || r.Name != "KeyboardInterrupt" {
		t.Fatalf("%+v, %v", r, err)
	}
	if got := execute(t, c, "signal.getsignal is usual"); string(got.Result["text/plain"]) != `"True"` {
		t.Errorf("no interrupt came: %+v", got)
	}
}

// TestPythonInterruptedAtAnyTime: once the kernel has begun with a cell, one interrupt is
// enough, and none ends the kernel or what it has said, whenever it comes.
func TestPythonInterruptedAtAnyTime(t *testing.T) {
	c, cmd, _ := start(t, "python3", "python")
	execute(t, c, "kept = 'yes'; import asyncio")
	interrupt := func() {
		if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Error(err)
		}
	}
	for i := range 60 {
		for _, code := range []string{"while True: pass", "await asyncio.sleep(1000)"} {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			var early sync.WaitGroup
			if i%2 == 1 {
				early.Go(func() {
					time.Sleep(time.Duration(i) * 50 * time.Microsecond)
					interrupt()
				})
			}
			var s shown
			r, err := c.Execute(ctx, kernel.Cell{Code: code, Began: func(int64) { interrupt() }}, s.take)
			early.Wait()
			cancel()
			if err != nil || r.Status != "error" || r.Name != "KeyboardInterrupt" && r.Name != "CancelledError" {
				t.Fatalf("%s, number %d: %+v, %v", code, i, r, err)
			}
			// IPython shows less where a second one came while it showed the first.
			if !strings.Contains(s.Error+s.Stderr, r.Name) {
				t.Errorf("%s, number %d shows %+v", code, i, s)
			}
		}
		if got := execute(t, c, "kept"); string(got.Result["text/plain"]) != `"'yes'"` {
			t.Fatalf("after number %d: %+v", i, got)
		}
	}
	// What the cell's own code does about interrupts is its affair.
	got := execute(t, c, "import signal\nsignal.getsignal(signal.SIGINT) is signal.default_int_handler")
	if string(got.Result["text/plain"]) != `"True"` {
		t.Errorf("a cell has another handler: %+v", got)
	}
	got = execute(t, c, "signal.signal(signal.SIGINT, lambda *_: print('mine'))\nsignal.raise_signal(signal.SIGINT)\nget_ipython().run_cell('1')\nsignal.raise_signal(signal.SIGINT)")
	if got.Stdout != "mine\nmine\n" || got.Error != "" {
		t.Errorf("a handler of its own: %+v", got)
	}
}

// What is written to the process's own streams is the running cell's, all of
// it and in its place, however late the kernel's own thread would come to it.
func TestPythonPrograms(t *testing.T) {
	c, _, _ := start(t, "python3", "python")
	run(t, c, []check{
		{"import ctypes, multiprocessing, os, subprocess, sys, threading, warnings\nwarnings.simplefilter('ignore', DeprecationWarning)  # of a fork beside threads\nwrite = ctypes.PyDLL(None).write", shown{}},
		{"print('a'); os.system('echo b'); print('c'); os.system('echo d');", shown{Stdout: "a\nb\nc\nd\n"}},
		{"done = subprocess.run('echo out; echo err >&2', shell=True, stdout=sys.stdout, stderr=sys.stderr)", shown{Stdout: "out\n", Stderr: "err\n"}},
		{"os.system('yes é 2>/dev/null | head -c 3000000');", shown{Stdout: strings.Repeat("é\n", 1_000_000)}},
		{`n = write(1, b"caf\xe9", 4)`, shown{Stdout: "caf\uFFFD"}},
		{"child = multiprocessing.get_context('fork').Process(target=print, args=('child',)); child.start(); child.join()", shown{Stdout: "child\n"}},
		{"if os.fork() == 0:\n    os.system('echo child')\n    os._exit(0)\nos.wait()[1]", shown{Stdout: "child\n", Result: plain("0")}},
	})
	for range 50 {
		// Nobody else runs between the write and the end of the code.
		run(t, c, []check{
			{"n = write(1, b'out\\n', 4) + write(2, b'err\\n', 4)", shown{Stdout: "out\n", Stderr: "err\n"}},
			{"", shown{}},
		})
	}
	// Who goes on to write does not hold up the end.
	execute(t, c, "more = subprocess.Popen(['yes'])")
	execute(t, c, "more.kill()")
}

// plotly has the two modules of it that matter.
var plotly = map[string]string{
	"plotly/__init__.py":           "",
	"plotly/io/__init__.py":        "from plotly.io._renderers import renderers, show\ndef to_html(fig, include_plotlyjs, full_html, validate): return f'<html>{fig} {include_plotlyjs} {full_html}</html>'\n",
	"plotly/io/_base_renderers.py": "class ExternalRenderer:\n    def render(self, fig_dict): raise NotImplementedError\n",
	"plotly/io/_renderers.py": "class Renderers(dict):\n    default = 'notebook'\nrenderers = Renderers()\n" +
		"def show(fig): renderers[renderers.default].render(fig)\n",
}

func TestPlotly(t *testing.T) {
	c, _, home := start(t, "python3", "python")
	for name, text := range plotly {
		file := filepath.Join(home, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run(t, c, []check{{"import sys; sys.path.insert(0, '.')\nimport plotly.io\nplotly.io.show('figure')", shown{
		Displays: []kernel.Bundle{bundle("text/html", "<html>figure True True</html>")},
	}}})
}

func TestR(t *testing.T) {
	c, cmd, _ := start(t, "ir", "R")
	run(t, c, []check{
		{"x <- 20", shown{}},
		{"x + 22", shown{Result: plain("[1] 42")}},
		{"cat('out\\n'); message('err'); invisible(7)", shown{Stdout: "out\n", Stderr: "err\n"}},
		{"print(1:3)", shown{Stdout: "[1] 1 2 3\n"}},
		{"1; 'two'", shown{Displays: []kernel.Bundle{plain("[1] 1")}, Result: plain(`[1] "two"`)}},
		{"ls()", shown{Result: plain(`[1] "x"`)}},
		{"3\nstop('bad')", shown{Displays: []kernel.Bundle{plain("[1] 3")}, Error: "simpleError: bad"}},
		{"f <- function(n) stop('deep'); f(1)", shown{Error: "simpleError: deep"}},
		{"stop(structure(class = c('mine', 'error', 'condition'), list(message = 'own', call = NULL)))", shown{Error: "mine: own"}},
		{"answer <- readline('name? ')", shown{Error: "StdinNotImplementedError: the code asked for input, and nothing was connected to answer"}},
		{"nope", shown{Error: "simpleError: object 'nope' not found"}},
		{"getOption('repos')[['CRAN']]", shown{Result: plain(`[1] "http://127.0.0.1:9/cran"`)}},
		{".libPaths()[1] == path.expand(Sys.getenv('R_LIBS_USER')) || file.access(.libPaths()[1], 2) == 0", shown{Result: plain("[1] TRUE")}},
		{"x", shown{Result: plain("[1] 20")}},
	})
	if got := execute(t, c, "f(1)"); !strings.Contains(got.traceback, "f(1)") || strings.Contains(got.traceback, "\x1b") {
		t.Errorf("the traceback: %q", got.traceback)
	}
	if got := execute(t, c, "x <- = 1"); !strings.Contains(got.Error, "unexpected '='") {
		t.Errorf("a syntax error: %+v", got)
	}
	got := execute(t, c, "data.frame(a = 1:2)")
	if html := string(got.Result["text/html"]); !strings.Contains(html, "<table") || !strings.Contains(string(got.Result["text/plain"]), "a") || len(got.Result) != 2 {
		t.Errorf("a table: %s", got.Result)
	}
	got = execute(t, c, "plot(1:10)")
	if len(got.Displays) != 1 {
		t.Fatalf("a plot: %+v", got)
	}
	if png := string(got.Displays[0]["image/png"]); !strings.HasPrefix(png, `"iVBOR`) || strings.Contains(png, `\n`) {
		t.Errorf("a plot: %.100q", png)
	}

	var s shown
	r, err := c.Execute(inTime(t), kernel.Cell{Code: "cat('on\\n'); flush.console()\nrepeat {}"}, func(o kernel.Output) {
		if o.Stream != nil {
			if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
				t.Error(err)
			}
		}
		s.take(o)
	})
	if err != nil || r.Status != "error" || s.Error != "interrupt: the cell was interrupted" {
		t.Errorf("interrupted: %+v, %+v, %v", s, r, err)
	}
	run(t, c, []check{{"x", shown{Result: plain("[1] 20")}}})

	// quit() ends the kernel, though it may have answered before.
	_, err = c.Execute(inTime(t), kernel.Cell{Code: "quit('no')"}, func(kernel.Output) {})
	if err != nil && !errors.Is(err, kernel.ErrGone) {
		t.Errorf("quit: %v", err)
	}
	select {
	case <-c.Gone():
	case <-time.After(time.Minute):
		t.Error("the kernel goes on after quit()")
	}
}

// readline() with somebody to answer.
func TestRInput(t *testing.T) {
	c, _, _ := start(t, "ir", "R")
	var s shown
	_, err := c.Execute(inTime(t), kernel.Cell{Code: "answer <- readline('name? ')\nanswer", Stdin: true}, func(o kernel.Output) {
		if o.Input != nil {
			if err := c.Answer("Ada"); err != nil {
				t.Error(err)
			}
		}
		s.take(o)
	})
	if err != nil || string(s.Result["text/plain"]) != `"[1] \"Ada\""` {
		t.Errorf("readline = %+v, %v", s, err)
	}
}

func TestUnknownLanguage(t *testing.T) {
	if got := Code("cobol"); got != "" {
		t.Errorf("Code(cobol) = %q", got)
	}
}

// inTime bounds what may never come: it shall fail its test and not hang it.
func inTime(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// shows fails unless each cell has its result.
func shows(t *testing.T, c *jupyter.Client, cells [][2]string) {
	t.Helper()
	for _, cell := range cells {
		got := execute(t, c, cell[0])
		if text := string(got.Result["text/plain"]); got.Error != "" || text != string(plain(cell[1])["text/plain"]) {
			t.Errorf("%s: %s %s, want %s", cell[0], text, got.Error, cell[1])
		}
	}
}
