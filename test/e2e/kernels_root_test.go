//go:build root

package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/cubbyhq/cubby/client"
)

// cell is code, and what has to come of it.
type cell struct {
	code    string
	timeout time.Duration
	stdout  string // a part of it; "" is none at all
	stderr  string // a part of it
	result  string // its text; "" is none
	shows   string // MIME type of its one display besides text
	failure string // type of the error; "" is success
	message string // a part of the error's message
	reason  string // default "exited"
	shell   bool   // what a shell prints as it is interrupted depends on how far it has come
	anew    string // a part of why the kernel began anew
}

// runCells runs cells of one language one after another in sandbox id.
func runCells(t *testing.T, c *sdk.Client, id, language string, cells []cell) {
	t.Helper()
	for _, w := range cells {
		e, err := c.RunCode(t.Context(), id, sdk.CodeRequest{Code: w.code, Language: language, Timeout: w.timeout})
		if err != nil {
			t.Fatalf("%s: %s: %v", language, w.code, err)
		}
		var failure, message string
		if e.Error != nil {
			failure, message = e.Error.Type, e.Error.Message
		}
		if w.reason == "" {
			w.reason = "exited"
		}
		shown := ""
		for _, d := range e.Outputs {
			for mime, data := range d.Data {
				if mime != "text/plain" && len(data) > 2 {
					shown += mime
				}
			}
		}
		ok := (w.shell || strings.Contains(e.Stdout, w.stdout) && (w.stdout != "" || e.Stdout == "")) && strings.Contains(e.Stderr, w.stderr) &&
			e.Text() == w.result && shown == w.shows && failure == w.failure && strings.Contains(message, w.message) &&
			e.Success == (w.failure == "") && e.Reason == w.reason &&
			strings.Contains(e.KernelRestarted, w.anew) && (w.anew != "" || e.KernelRestarted == "")
		if !ok {
			t.Errorf("%s: %s\nwant %+v\ngot  success %v, stdout %.300q, stderr %.300q, result %q, shows %q, error %+v, reason %s (%s), anew %q", language, w.code, w,
				e.Success, e.Stdout, e.Stderr, e.Text(), shown, e.Error, e.Reason, e.Message, e.KernelRestarted)
		}
	}
}

var pythonCells = []cell{
	{code: "import pandas as pd; df = pd.DataFrame({'x':[1,2,3],'y':[4,5,6]}); print(df.describe())", stdout: "mean   2.0  5.0"},
	{code: "df.shape", result: "(3, 2)"},
	{code: "import matplotlib.pyplot as plt\nplt.plot([1, 2, 3])\nplt.title('no show()');", shows: "image/png"},
	{code: "plt.plot([1]); plt.show()", shows: "image/png"},
	{code: "import asyncio\nawait asyncio.sleep(0.01, 'awaited')", result: "'awaited'"},
	{code: `
async def main():
    async def serve(reader, writer):
        writer.write(await reader.readline())
        writer.close()
    server = await asyncio.start_server(serve, '127.0.0.1', 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(b'from a coroutine\n')
    print((await reader.read()).decode(), end='')
    return 7
main()`, stdout: "from a coroutine\n", result: "7"},
	{code: "print('x' * 60_000)", stdout: "\n\n... [truncated — 60001 chars total, showing first 50000]"},
	{code: "import os; os.getuid(), os.access('/etc/passwd', os.W_OK)", result: "(1000, False)"},
	{code: "1 / 0", failure: "ZeroDivisionError", message: "division by zero"},
	{code: "input('name? ')", failure: "StdinNotImplementedError", message: "does not support input"},
	{code: "while True: pass", timeout: time.Second, failure: "TimeoutError", message: "after 1s", reason: "timeout"},
	{code: "await asyncio.sleep(3600)", timeout: time.Second, failure: "TimeoutError", reason: "timeout"},
	{code: "import subprocess; subprocess.run(['sleep', '3600'])", timeout: time.Second, failure: "TimeoutError", reason: "timeout"},
	{code: "!sleep 3600", timeout: time.Second, shell: true, failure: "TimeoutError", reason: "timeout"},
	{code: "import time\ntry:\n    while True: time.sleep(0.01)\nexcept KeyboardInterrupt: print('caught')", timeout: 3 * time.Second, stdout: "caught\n", failure: "TimeoutError", reason: "timeout"},
	{code: "df.shape", result: "(3, 2)"},
	// What ends the kernel: the next cell has a new one, and says why.
	{code: "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: time.sleep(1)", timeout: time.Second,
		failure: "TimeoutError", message: "after 1s", reason: "timeout"},
	{code: "df", failure: "NameError", message: "'df'", anew: "did not end within"},
	{code: "import os; os._exit(3)", failure: "KernelDiedError", message: "exit code 3", reason: "kernel_died"},
	{code: "import os; os.kill(os.getpid(), 9)", failure: "KernelDiedError", message: "SIGKILL", reason: "kernel_died", anew: "exit code 3"},
	{code: "b = []\nwhile True: b.append(bytearray(b'x') * (8 << 20))", timeout: 2 * time.Minute, failure: "OutOfMemoryError", message: "memory", reason: "oom", anew: "SIGKILL"},
	{code: "6 * 7", result: "42", anew: "memory"},
}

var nodeCells = []cell{
	{code: "const x = 20; let y = 1"},
	{code: "const x = 21; x + y", result: "22"},
	{code: `
async function fetchAll() {
  const { setTimeout } = require('node:timers/promises');
  console.log('out'); console.error('err');
  return setTimeout(5, { got: [1, 2] });
}
fetchAll()`, stdout: "out\n", stderr: "err\n", result: "{\n  \"got\": [\n    1,\n    2\n  ]\n}"},
	{code: "(await import('node:path')).basename('/a/b')", result: "b"},
	{code: "display('<b>bold</b>')", shows: "text/html"},
	{code: "display({image: Buffer.from('png')})", shows: "image/png"},
	{code: "setTimeout(() => { throw new TypeError('late') }, 5); 1", result: "1", stderr: "[async TypeError] late", failure: "AsyncError", message: "late"},
	{code: "while (true) {}", timeout: time.Second / 2, failure: "TimeoutError", reason: "timeout"},
	{code: "await new Promise(() => {})", timeout: time.Second, failure: "TimeoutError", reason: "timeout"},
	{code: "await 1; for (;;) { try { for (;;); } catch {} }", timeout: time.Second / 2, failure: "TimeoutError", reason: "timeout"},
	{code: "setTimeout(() => { for (;;); }, 1); await new Promise(() => {})", timeout: time.Second, failure: "TimeoutError", reason: "timeout"},
	{code: "x", result: "21"},
	{code: "process.exit(3)", failure: "KernelDiedError", message: "exit code 3", reason: "kernel_died"},
	{code: "typeof x", result: "undefined", anew: "exit code 3"},
	{code: "1", result: "1"},
}

var rCells = []cell{
	{code: "x <- 20; x + 22", result: "[1] 42"},
	{code: "cat('out\\n'); message('err'); invisible(1)", stdout: "out\n", stderr: "err\n"},
	{code: "summary(c(1, 2, 6))[['Mean']]", result: "[1] 3"},
	{code: "stop('bad')", failure: "simpleError", message: "bad"},
	{code: "plot(1:10)", shows: "image/png"},
	{code: "library(ggplot2); ggplot(mtcars, aes(wt, mpg)) + geom_point()", shows: "image/png"},
	{code: "nrow(readr::read_csv(I('a,b\\n1,2\\n'), show_col_types = FALSE))", result: "[1] 1"},
	{code: "file.access(.libPaths()[1], 2)[[1]]", result: "[1] 0"},
	{code: "widget <- htmlwidgets::createWidget('nothing', list(text = 'hello'), package = 'htmlwidgets')\n" +
		"IRdisplay::display_html(repr::repr_html(widget))", shows: "text/html"},
	{code: "readline('name? ')", failure: "StdinNotImplementedError", message: "input"},
	{code: "repeat {}", timeout: time.Second / 2, failure: "TimeoutError", reason: "timeout"},
	{code: "Sys.sleep(3600)", timeout: time.Second, failure: "TimeoutError", reason: "timeout"},
	{code: "tryCatch(repeat {}, interrupt = function(e) cat('caught\\n'))", timeout: 3 * time.Second, stdout: "caught\n", failure: "TimeoutError", reason: "timeout"},
	{code: "x", result: "[1] 20"},
}

var bashCells = []cell{
	{code: "x=kept; echo $x", stdout: "kept\n"},
	{code: "echo still $x; cd /tmp; pwd", stdout: "still kept\n/tmp\n"},
	{code: "sleep 3600", timeout: time.Second, shell: true, failure: "TimeoutError", reason: "timeout"},
	{code: "trap 'echo caught' INT; sleep 3600; echo went on", timeout: time.Second, shell: true, failure: "TimeoutError", reason: "timeout"},
	{code: "trap - INT; pwd", stdout: "/tmp\n"},
}

// TestCode runs cells of all languages that the images have, and of one that
// is installed in the sandbox.
func TestCode(t *testing.T) {
	t.Parallel()
	wheels := bashKernel(t)
	limits := sdk.CreateOptions{Limits: &sdk.Limits{MemoryBytes: 1 << 30}}
	eachIsolation(t, limits, func(t *testing.T, h realHost, c *sdk.Client) {
		runCells(t, c, "a", "python", pythonCells)
		runCells(t, c, "a", "node", nodeCells)
		runCells(t, c, "a", "r", []cell{{code: "1", failure: "NotStartedError", message: "the image r has", reason: "not_started"}})

		for name, wheel := range wheels {
			if _, err := c.Files("a").Write(t.Context(), "/workspace/wheels/"+name, strings.NewReader(wheel), sdk.WriteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if e := sh(t, c, "pip install -q --no-index --find-links wheels bash_kernel && python3 -m bash_kernel.install"); e.Err() != nil {
			t.Fatalf("%v\n%s%s", e.Err(), e.Stdout, e.Stderr)
		}
		runCells(t, c, "a", "bash", bashCells)
		kernels, kinds, err := c.Kernels(t.Context(), "a")
		var names []string
		for _, k := range kernels {
			names = append(names, k.Name)
		}
		if slices.Sort(names); err != nil || !slices.Equal(names, []string{"bash", "node", "python"}) || len(kinds) != 3 {
			t.Errorf("Kernels = %q, %+v, %v", names, kinds, err)
		}

		limits.ID, limits.Image, limits.Isolation = "r", "r", strings.TrimPrefix(filepath.Base(t.Name()), "TestCode/")
		if everything && limits.Isolation == "container" { // gVisor takes twice as long for the same
			// However busy the reader is, what it has not taken waits in the
			// code that shows it and not in memory.
			runCells(t, c, "a", "python", []cell{
				{code: "kept = 7\nfor _ in range(150): print('x' * (1 << 20))", stdout: "xxx"},
				// Six of these are what the outputs of a cell may take.
				{code: "for _ in range(30): display({'text/html': 'x' * 5_000_000}, raw=True)", shows: strings.Repeat("text/html", 6)},
				// The kernel itself takes 70 MB.
				{code: "[l for l in open('/proc/self/status') if l.startswith('VmHWM') and int(l.split()[1]) > 200_000]", result: "[]"},
				{code: "kept", result: "7"},
			})
		}
		if !slices.Contains(anyIsolation, limits.Isolation) {
			return // R takes gVisor half a minute
		}
		if _, err := c.Create(t.Context(), limits); err != nil {
			t.Fatal(err)
		}
		cells := rCells
		if limits.Isolation == "gvisor" {
			// To load libraries takes gVisor most of the time.
			cells = slices.DeleteFunc(slices.Clone(cells), func(w cell) bool { return strings.Contains(w.code, "library(") || strings.Contains(w.code, "::") })
		}
		runCells(t, c, "r", "r", cells)
		runCells(t, c, "r", "python", []cell{{code: "1", failure: "NotStartedError", message: "the image base has", reason: "not_started"}})
	})
}

// bashKernel fetches a kernel that cubby knows nothing of.
func bashKernel(t *testing.T) map[string]string {
	t.Helper()
	dir := t.TempDir()
	out, err := exec.Command("pip3", "download", "--quiet", "--disable-pip-version-check", "--retries", "10", "--no-deps", "--dest", dir,
		"bash_kernel==0.10.0", "filetype==1.2.0").CombinedOutput()
	if err != nil {
		t.Fatalf("pip3 download: %v\n%s", err, out)
	}
	wheels := map[string]string{}
	files, err := filepath.Glob(filepath.Join(dir, "*.whl"))
	if err != nil || len(files) != 2 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		wheels[filepath.Base(file)] = string(data)
	}
	return wheels
}
