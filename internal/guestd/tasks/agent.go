package tasks

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cubbyhq/cubby/internal/guestd/proc"
	"github.com/cubbyhq/cubby/internal/task"
)

const (
	// leaveAfter is how long an agent has to end by itself, when its standard input
	// is closed.
	leaveAfter = 3 * time.Second
	// drainFor is how long the rest of an ended agent's output is waited for.
	drainFor = time.Second
	// maxStderr bounds what is passed on of an agent's standard error.
	maxStderr = 1 << 20
	// keptStderr is how much of its end is kept for the error message.
	keptStderr = 2 << 10
)

// agent is the agent's process. It has a session of its own.
type agent struct {
	cmd    *exec.Cmd
	grace  time.Duration
	in     *os.File // nil: none
	out    *os.File
	ended  chan struct{} // closed when the process has ended and was waited for
	err    error         // how it ended; valid when ended is closed
	said   chan struct{} // closed when its standard error was read
	stderr tailWriter
	pipe   string // how /proc names its standard input
}

// startAgent starts the command of an agent in a directory. With input it gets a
// pipe, and /dev/null else.
func startAgent(kids *children, command, env []string, dir string, input bool, redact *redactor, stderr io.Writer, grace time.Duration) (*agent, error) {
	a := &agent{grace: grace, ended: make(chan struct{}), said: make(chan struct{})}
	a.stderr.limit = keptStderr
	path, err := find(command[0], env, dir)
	if err != nil {
		return nil, err
	}
	a.cmd = &exec.Cmd{Path: path, Args: command, Env: env, Dir: dir, SysProcAttr: &syscall.SysProcAttr{Setsid: true}}
	var theirs []*os.File
	defer func() {
		for _, f := range theirs {
			f.Close()
		}
	}()
	pipe := func() (r, w *os.File) {
		if err == nil {
			r, w, err = os.Pipe()
		}
		return r, w
	}
	if input {
		r, w := pipe()
		a.cmd.Stdin, a.in, theirs = r, w, append(theirs, r)
	}
	out, outTheirs := pipe()
	errors, errTheirs := pipe()
	theirs = append(theirs, outTheirs, errTheirs)
	a.out, a.cmd.Stdout, a.cmd.Stderr = out, outTheirs, errTheirs
	if err == nil {
		err = kids.start(a.cmd)
	}
	if err != nil {
		for _, f := range []*os.File{a.in, out, errors} {
			if f != nil {
				f.Close()
			}
		}
		return nil, fmt.Errorf("%s: %w", command[0], err)
	}
	if input {
		if raw, err := a.in.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) { a.pipe, _ = os.Readlink("/proc/self/fd/" + strconv.Itoa(int(fd))) })
		}
	}
	go func() {
		defer close(a.said)
		a.forward(errors, redact, stderr)
	}()
	go func() {
		defer close(a.ended)
		a.err = kids.wait(a.cmd)
	}()
	return a, nil
}

// find resolves a program by the PATH of env.
func find(name string, env []string, dir string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	path, _ := proc.LookupEnv(env, "PATH")
	for _, d := range strings.Split(path, ":") {
		if !strings.HasPrefix(d, "/") {
			continue // relative to a directory that the agent writes
		}
		at := d + "/" + name
		if st, err := os.Stat(at); err == nil && st.Mode().IsRegular() && st.Mode().Perm()&0o111 != 0 {
			return at, nil
		}
	}
	return "", fmt.Errorf("%s: command not found", name)
}

// forward passes the standard error of the agent on, as far as it may, and reads
// it to its end.
func (a *agent) forward(from *os.File, redact *redactor, to io.Writer) {
	defer from.Close()
	buf := make([]byte, 16<<10)
	held, room := "", maxStderr
	for {
		n, err := from.Read(buf)
		clean, rest := redact.split(held+string(buf[:n]), err != nil)
		held = rest
		_, _ = a.stderr.Write([]byte(clean))
		if room > 0 {
			clean = head(clean, room)
			room -= len(clean)
			_, _ = io.WriteString(to, clean)
		}
		if err != nil {
			return
		}
	}
}

// finish ends the agent's own process, and what reads its standard input beside
// it, as the program that a wrapper starts. What the agent left running goes on.
func (a *agent) finish() {
	if a.in != nil {
		a.in.Close()
	}
	if !a.gone(min(leaveAfter, a.grace)) {
		_ = a.cmd.Process.Signal(syscall.SIGTERM)
		if !a.gone(a.grace) {
			_ = a.cmd.Process.Kill()
			<-a.ended
		}
	}
	if a.pipe != "" {
		for _, pid := range readers(a.pipe) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	a.drain()
}

// kill ends the agent and all that descends from it and from this process.
func (a *agent) kill() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_ = proc.KillDescendants(ctx, os.Getpid())
	<-a.ended
	if a.in != nil {
		a.in.Close()
	}
	a.drain()
}

// drain waits until the output of the agent was read, but not for what it left
// running with it.
func (a *agent) drain() {
	_ = a.out.SetReadDeadline(time.Now().Add(drainFor))
	select {
	case <-a.said:
	case <-time.After(drainFor):
	}
}

func (a *agent) gone(within time.Duration) bool {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-a.ended:
		return true
	case <-timer.C:
		return false
	}
}

// readers are the processes whose standard input is a pipe.
func readers(pipe string) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		if at, err := os.Readlink("/proc/" + e.Name() + "/fd/0"); err == nil && at == pipe {
			pids = append(pids, pid)
		}
	}
	return pids
}

// environment is what an agent inherits, and what its definition sets.
func environment(inherited []string, order task.Order) []string {
	set := maps.Clone(order.Agent.Env)
	if order.Permissions == task.Ask {
		if set == nil {
			set = make(map[string]string)
		}
		maps.Copy(set, order.Agent.AskEnv)
	}
	env := make([]string, 0, len(inherited)+len(set))
	for _, kv := range inherited {
		name, _, _ := strings.Cut(kv, "=")
		if _, other := set[name]; !other && !strings.HasPrefix(name, "CUBBY_TASK_") {
			env = append(env, kv)
		}
	}
	for name, value := range set {
		env = append(env, name+"="+value)
	}
	return env
}
