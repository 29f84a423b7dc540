package tasks

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cubbyhq/cubby/internal/task"
)

// The test binary is the supervisor, and the agents of the tests, too.
const roleEnv = "TASKS_TEST_ROLE"

// shortGrace is the grace of agents that the tests know not to heed it.
const shortGrace = 500 * time.Millisecond

func TestMain(m *testing.M) {
	role, args, _ := strings.Cut(os.Getenv(roleEnv), " ")
	switch role {
	case "supervisor":
		// An agent inherits the environment.
		os.Unsetenv(roleEnv)
		os.Exit(supervise(shortGrace))
	case "restore":
		os.Exit(Restore(os.Args[1:]))
	case "agent":
		os.Exit(actAgent(args))
	}
	goleak.VerifyTestMain(m)
}

// running is a supervisor that runs, as the host sees it.
type running struct {
	t      *testing.T
	cmd    *exec.Cmd
	in     io.WriteCloser
	stderr bytes.Buffer
	home   string
	next   chan task.Record
	all    []task.Record
}

// begin starts a supervisor of an order in a home of its own. env is beside
// PATH and HOME.
func begin(t *testing.T, order task.Order, env map[string]string) *running {
	t.Helper()
	if order.ID == "" {
		order.ID = "task-1"
	}
	if order.Permissions == "" {
		order.Permissions = task.Allow
	}
	if order.Cwd == "" {
		order.Cwd = filepath.Join(t.TempDir(), "project")
	}
	carried, err := order.Env()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{"PATH": os.Getenv("PATH"), "HOME": t.TempDir(), roleEnv: "supervisor",
		// With the race detector a program waits a second at its end by default.
		"GORACE": "atexit_sleep_ms=10"}
	maps.Copy(all, env)
	maps.Copy(all, carried)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r := &running{t: t, cmd: exec.Command(self), next: make(chan task.Record, 16)}
	r.home = all["HOME"]
	for name, value := range all {
		r.cmd.Env = append(r.cmd.Env, name+"="+value)
	}
	r.cmd.Stderr = &r.stderr
	if r.in, err = r.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(r.next)
		lines := bufio.NewReader(out)
		for {
			line, err := lines.ReadBytes('\n')
			if len(line) > 0 {
				rec, ok := task.Read(line)
				if !ok {
					t.Errorf("not a record: %.200q", line)
				}
				r.next <- rec
			}
			if err != nil {
				return
			}
		}
	})
	t.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		go func() {
			for range r.next {
			}
		}()
		reading.Wait()
		_ = r.cmd.Wait()
		if t.Failed() {
			t.Logf("stderr: %s", tail(r.stderr.String(), 4<<10))
			for _, rec := range r.all[max(0, len(r.all)-50):] {
				t.Logf("%s %.500s", rec.Type, rec.Data)
			}
		}
	})
	return r
}

// until reads records until one is accepted, which it returns.
func (r *running) until(what string, accept func(task.Record) bool) task.Record {
	r.t.Helper()
	for rec := range r.next {
		r.all = append(r.all, rec)
		if accept(rec) {
			return rec
		}
	}
	r.t.Fatalf("the supervisor ended before %s", what)
	return task.Record{}
}

// reply sends a line to the supervisor.
func (r *running) reply(v any) {
	r.t.Helper()
	text, ok := v.(string)
	if !ok {
		b, err := json.Marshal(v)
		if err != nil {
			r.t.Fatal(err)
		}
		text = string(b)
	}
	if _, err := fmt.Fprintln(r.in, text); err != nil {
		r.t.Fatal(err)
	}
}

// result waits for the end of the task.
func (r *running) result() task.Result {
	r.t.Helper()
	done := r.until("its result", func(rec task.Record) bool { return rec.Type == task.DoneType })
	var result task.Result
	if err := json.Unmarshal(done.Data, &result); err != nil {
		r.t.Fatal(err)
	}
	for rec := range r.next {
		r.t.Errorf("a record after the result: %s %s", rec.Type, rec.Data)
	}
	if err := r.cmd.Wait(); err != nil {
		r.t.Errorf("exit: %v", err)
	}
	return result
}

// of returns what the records of a type have.
func of[T any](r *running, kind string) []T {
	r.t.Helper()
	var all []T
	for _, rec := range r.all {
		if rec.Type == kind {
			var v T
			if err := json.Unmarshal(rec.Data, &v); err != nil {
				r.t.Fatal(err)
			}
			all = append(all, v)
		}
	}
	return all
}

// printed is everything that a supervisor printed.
func (r *running) printed() string {
	var b strings.Builder
	for _, rec := range r.all {
		fmt.Fprintf(&b, "%s %s\n", rec.Type, rec.Data)
	}
	return b.String() + r.stderr.String()
}

// left are the processes that still run of a task: they have its home.
func (r *running) left() []int {
	r.t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		r.t.Fatal(err)
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		env, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if err == nil && bytes.Contains(append([]byte{0}, env...), []byte("\x00HOME="+r.home+"\x00")) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// gone checks that nothing of a task runs.
func (r *running) gone() {
	r.t.Helper()
	for _, pid := range r.left() {
		cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		r.t.Errorf("process %d is left: %.300q", pid, cmdline)
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}
