package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/cubbyhq/cubby/internal/config"
	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
)

func TestRun(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	tests := []struct {
		name           string
		stdin          string
		args           []string
		code           int
		stdout, stderr string
	}{
		{"output", "", []string{"--", "sh", "-c", "echo out; echo err >&2"}, 0, "out\n", "err\n"},
		{"without dashes", "", []string{"echo", "-n", "a", "b"}, 0, "a b", ""},
		{"exit code", "", []string{"--", "sh", "-c", "exit 3"}, 3, "", ""},
		{"exit code 125", "", []string{"--", "sh", "-c", "exit 125"}, 125, "", ""},
		{"signal", "", []string{"--", "sh", "-c", "kill -TERM $$"}, 143, "", ""},
		{"input", "hello\n", []string{"--", "cat"}, 0, "hello\n", ""},
		{"input that nobody reads", strings.Repeat("x", 1<<20), []string{"--", "echo", "done"}, 0, "done\n", ""},
		{"no input", "hello\n", []string{"-i=false", "--", "cat"}, 0, "", ""},
		{"terminal for piped input", "exit 3\n", []string{"-t", "--", "sh", "-c", "read x; test -t 0 && $x"}, 3, "exit 3\r\n", ""},
		{"environment", "", []string{"-e", "A=1", "--", "sh", "-c", "echo $A"}, 0, "1\n", ""},
		{"binary", "", []string{"--", "printf", `\377\000\n`}, 0, "\xff\x00\n", ""},
		{"time limit", "", []string{"--timeout", "100ms", "--", "sleep", "60"}, 137, "",
			"cubby: the command's time was up; --timeout sets another limit, 0 none\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			res := cubby(t, d.URL, strings.NewReader(tt.stdin), append([]string{"run"}, tt.args...)...)
			if want := (result{tt.stdout, tt.stderr, tt.code}); res != want {
				t.Errorf("got %+v, want %+v", res, want)
			}
		})
	}
	t.Run("not found", func(t *testing.T) {
		res := cubby(t, d.URL, nil, "run", "--", "/no/such/program")
		if res.code != 127 || !strings.Contains(res.stderr, "/no/such/program") {
			t.Errorf("got %+v, want 127 and the name", res)
		}
	})
	t.Run("no image", func(t *testing.T) {
		res := cubby(t, d.URL, nil, "run", "--image", "nope", "--", "true")
		if res.code != 125 || !strings.Contains(res.stderr, "nope") {
			t.Errorf("got %+v, want 125 and the name", res)
		}
	})
	wantNoBoxes(t, d.URL)
}

// wantNoBoxes: run leaves nothing behind.
func wantNoBoxes(t *testing.T, url string) {
	t.Helper()
	if res := cubby(t, url, nil, "ls", "-q", "--status", "running"); res.stdout != "" || res.code != 0 {
		t.Errorf("left behind: %+v", res)
	}
}

func TestRunKeeps(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	res := cubby(t, d.URL, nil, "run", "--keep", "--id", "kept", "--label", "a=b", "--", "true")
	if want := (result{"", "cubby: kept sandbox kept\n", 0}); res != want {
		t.Errorf("got %+v, want %+v", res, want)
	}
	if res := cubby(t, d.URL, nil, "ls", "-q", "-l", "a=b"); res.stdout != "kept\n" {
		t.Errorf("ls: %+v", res)
	}
}

// watcher is an output that tells when something was written.
type watcher struct {
	mu    sync.Mutex
	buf   bytes.Buffer
	match string
	seen  chan struct{} // closed when match was written
	once  sync.Once
}

func watch(match string) *watcher { return &watcher{match: match, seen: make(chan struct{})} }

func (w *watcher) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.buf.Write(p)
	if strings.Contains(w.buf.String(), w.match) {
		w.once.Do(func() { close(w.seen) })
	}
	return len(p), nil
}

// await returns when what was waited for was written, and ends the test when the
// command that should write it has ended.
func (w *watcher) await(t *testing.T, done <-chan int) {
	t.Helper()
	select {
	case <-w.seen:
	case code := <-done:
		t.Fatalf("exit %d before %q; output: %q", code, w.match, w)
	}
}

func (w *watcher) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.String()
}

// forever is a shell's own loop. bash leaves an interrupt to the program that it waits
// for, even to one that has ended in that moment, and then nobody takes it: this one
// waits for none.
const forever = "while :; do :; done"

// TestRunSignals: what a user presses reaches the command, and the sandbox is
// gone afterwards whatever the command does.
func TestRunSignals(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	tests := []struct {
		name    string
		script  string
		signals []os.Signal
		code    int
		stdout  string
	}{
		{"Ctrl-C ends it", "echo ready; " + forever, []os.Signal{syscall.SIGINT}, 130, "ready\n"},
		{"SIGTERM ends it", "echo ready; " + forever, []os.Signal{syscall.SIGTERM}, 143, "ready\n"},
		{"it may clean up", "trap 'echo bye; exit 7' INT; echo ready; " + forever, []os.Signal{syscall.SIGINT}, 7, "ready\nbye\n"},
		{"the second one kills", "trap '' INT; echo ready; " + forever, []os.Signal{syscall.SIGINT, syscall.SIGINT}, 137, "ready\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			signals := make(chan os.Signal)
			stdout := watch("ready")
			done := make(chan int, 1)
			go func() {
				done <- Main(context.Background(), Env{
					Args: []string{"run", "--", "sh", "-c", tt.script}, Environ: []string{"CUBBY_URL=" + d.URL},
					Stdout: stdout, Stderr: io.Discard, Signals: signals,
				})
			}()
			stdout.await(t, done)
			for _, sig := range tt.signals {
				signals <- sig
			}
			if code := <-done; code != tt.code {
				t.Errorf("exit %d, want %d", code, tt.code)
			}
			if stdout.String() != tt.stdout {
				t.Errorf("stdout %q, want %q", stdout, tt.stdout)
			}
			wantNoBoxes(t, d.URL)
		})
	}
}

func TestExec(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	if res := cubby(t, d.URL, nil, "create", "--id", "box"); res != (result{"box\n", "", 0}) {
		t.Fatalf("create: %+v", res)
	}
	tests := []struct {
		name string
		args []string
		want result
	}{
		{"plain", []string{"box", "echo", "-n", "x"}, result{"x", "", 0}},
		{"dashes", []string{"box", "--", "echo", "-n", "x"}, result{"x", "", 0}},
		{"flags before", []string{"-e", "A=1", "box", "--", "sh", "-c", "echo $A"}, result{"1\n", "", 0}},
		{"flags after", []string{"box", "-e", "A=1", "-e", "B=2", "--", "sh", "-c", "echo $A$B"}, result{"12\n", "", 0}},
		{"exit code", []string{"box", "sh", "-c", "exit 9"}, result{"", "", 9}},
		{"directory", []string{"box", "-w", "/", "--", "pwd"}, result{"/\n", "", 0}},
	}
	for i, tt := range tests {
		if res := cubby(t, d.URL, nil, append([]string{"exec"}, tt.args...)...); res != tt.want {
			t.Errorf("%d %s: got %+v, want %+v", i, tt.name, res, tt.want)
		}
	}

	res := cubby(t, d.URL, nil, "exec", "--json", "box", "--", "sh", "-c", "echo out; exit 4")
	var e struct {
		Seq      int    `json:"seq"`
		Stdout   string `json:"stdout"`
		ExitCode int    `json:"exit_code"`
	}
	if err := json.Unmarshal([]byte(res.stdout), &e); err != nil || e.Seq != 7 || e.Stdout != "out\n" || e.ExitCode != 4 || res.code != 4 {
		t.Errorf("--json: %+v, %v", res, err)
	}
	if res := cubby(t, d.URL, nil, "exec", "-d", "box", "--", "sh", "-c", "echo late"); res != (result{"8\n", "", 0}) {
		t.Errorf("-d: %+v", res)
	}
	for _, args := range [][]string{{"logs", "-f", "box", "8"}, {"logs", "-f", "box"}, {"logs", "box"}} {
		if res := cubby(t, d.URL, nil, args...); res != (result{"late\n", "", 0}) {
			t.Errorf("%q: %+v", args, res)
		}
	}
	if res := cubby(t, d.URL, nil, "logs", "-f", "--after", "2", "box", "8"); res.stdout != "te\n" {
		t.Errorf("logs --after: %+v", res)
	}
	if res := cubby(t, d.URL, nil, "logs", "box", "99"); res.code != 1 {
		t.Errorf("logs of nothing: %+v", res)
	}
	if res := cubby(t, d.URL, nil, "exec", "nobox", "--", "true"); res.code != 125 || !strings.Contains(res.stderr, "no such sandbox") {
		t.Errorf("exec in nothing: %+v", res)
	}
	if res := cubby(t, d.URL, nil, "stop", "box"); res != (result{"box\n", "", 0}) {
		t.Fatalf("stop: %+v", res)
	}
	if res := cubby(t, d.URL, nil, "exec", "box", "--", "true"); res.code != 125 || res.stderr == "" {
		t.Errorf("exec while stopped: %+v", res)
	}
}

func TestLifeOfASandbox(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	do := func(args ...string) result {
		t.Helper()
		return cubby(t, d.URL, nil, args...)
	}
	if res := do("ls"); res != (result{"", "cubby: no sandboxes\n", 0}) {
		t.Errorf("empty ls: %+v", res)
	}
	if res := do("ls", "--json"); res != (result{"[]\n", "", 0}) {
		t.Errorf("empty ls --json: %+v", res)
	}
	id := strings.TrimSpace(do("create", "-l", "team=red", "-p", "3000", "--memory", "256m").stdout)
	if len(id) != 26 {
		t.Fatalf("create printed %q", id)
	}
	if res := do("create", "--id", "second", "--json"); !strings.Contains(res.stdout, "\n  \"id\": \"second\",\n") {
		t.Errorf("create --json: %+v", res)
	}
	res := do("ls")
	if lines := strings.Split(strings.TrimSpace(res.stdout), "\n"); len(lines) != 3 || !strings.Contains(lines[2], id) || !strings.Contains(lines[2], "team=red") {
		t.Errorf("ls: %s", res.stdout)
	}
	do("exec", id, "--", "echo", "a b")
	res = do("get", id)
	for _, want := range []string{id, "running", "256 MiB memory", "3000", "team=red", "SEQ", "echo 'a b'"} {
		if !strings.Contains(res.stdout, want) {
			t.Errorf("get does not show %q:\n%s", want, res.stdout)
		}
	}
	if res := do("get", id, "--json"); !strings.Contains(res.stdout, `"status": "running"`) {
		t.Errorf("get --json: %+v", res)
	}
	if res := do("stop", id, "second", "missing"); res.stdout != id+"\nsecond\n" || res.code != 1 || !strings.HasPrefix(res.stderr, "cubby: missing: ") {
		t.Errorf("stop: %+v", res)
	}
	if res := do("start", id); res != (result{id + "\n", "", 0}) {
		t.Errorf("start: %+v", res)
	}
	if res := do("ls", "-q", "--status", "stopped"); res.stdout != "second\n" {
		t.Errorf("ls --status: %+v", res)
	}
	if res := do("rm", "-l", "team=red"); res != (result{id + "\n", "", 0}) {
		t.Errorf("rm --label: %+v", res)
	}
	if res := do("rm", id); res.code != 1 {
		t.Errorf("second rm: %+v", res)
	}
	if res := do("rm", "-f", id); res.code != 0 {
		t.Errorf("second rm -f: %+v", res)
	}
	if res := do("rm", "--all"); res != (result{"second\n", "", 0}) {
		t.Errorf("rm --all: %+v", res)
	}
}

// TestExecOutlivesTheDaemon: a restart in the middle of a command loses no
// output and not its exit code.
func TestExecOutlivesTheDaemon(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	same := func(c *config.Config) { c.Listen = addr }
	first := daemontest.Start(t, daemontest.Options{Config: same})
	if res := cubby(t, first.URL, nil, "create", "--id", "box"); res.code != 0 {
		t.Fatalf("create: %+v", res)
	}
	stdout := watch("one")
	done := make(chan int, 1)
	go func() {
		done <- Main(context.Background(), Env{
			Args:    []string{"exec", "box", "--", "sh", "-c", "echo one; until test -e go; do sleep 0.05; done; echo two; exit 6"},
			Environ: []string{"CUBBY_URL=" + first.URL}, Stdout: stdout, Stderr: io.Discard,
		})
	}()
	stdout.await(t, done)
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	second := daemontest.Start(t, daemontest.Options{Dir: first.Dir, Driver: first.Driver.Restart(t), Config: same})
	if res := cubby(t, second.URL, strings.NewReader("x"), "cp", "-", "box:go"); res.code != 0 {
		t.Fatalf("cp: %+v", res)
	}
	if code := <-done; code != 6 || stdout.String() != "one\ntwo\n" {
		t.Errorf("exit %d with %q, want 6 with one and two", code, stdout)
	}
}
