package tasks

import (
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// children are the processes that this one started, beside those that became its
// own when their parents ended: it is their subreaper, so that all that descends
// from an agent can be found. Its methods are safe for concurrent use.
type children struct {
	// reaps: this process is the subreaper. Otherwise it has other children that
	// are waited for elsewhere.
	reaps bool

	mu  sync.Mutex
	own map[int]bool // started here and not waited for yet
}

// newChildren makes this process the subreaper of its descendants and reaps those
// that nobody waits for.
func newChildren() (*children, error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, os.NewSyscallError("prctl PR_SET_CHILD_SUBREAPER", err)
	}
	c := &children{reaps: true, own: make(map[int]bool)}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	go func() {
		for range ended {
			c.reap()
		}
	}()
	return c, nil
}

func (c *children) start(cmd *exec.Cmd) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return err
	}
	c.own[cmd.Process.Pid] = true
	return nil
}

// wait waits for a command that start started.
func (c *children) wait(cmd *exec.Cmd) error {
	err := cmd.Wait()
	c.mu.Lock()
	delete(c.own, cmd.Process.Pid)
	c.mu.Unlock()
	c.reap()
	return err
}

func (c *children) run(cmd *exec.Cmd) error {
	if err := c.start(cmd); err != nil {
		return err
	}
	return c.wait(cmd)
}

// reap takes every ended child that is not one of those started here. Behind one
// of these it stops: whoever waits for that one calls it again.
func (c *children) reap() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.reaps {
		pid, err := endedChild()
		if err != nil || pid == 0 || c.own[pid] {
			return
		}
		var ws syscall.WaitStatus
		if _, err := syscall.Wait4(pid, &ws, syscall.WNOHANG, nil); err != nil {
			return
		}
	}
}
