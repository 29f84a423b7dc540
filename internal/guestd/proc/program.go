package proc

import (
	"context"
	"syscall"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
)

// Process is a program that the agent runs for itself, as a kernel is, with
// everything that descends from it. The memory watchdog and the end of the
// sandbox know it as they know commands.
type Process struct {
	r    *Runner
	exec *Exec
	tree tree
}

// Start starts a program with files as its descriptors; [Files.Close] is the
// caller's. What start says of streams, terminals, time limits and cells does
// not count. Its errors are [StartError] or the system's.
func (r *Runner) Start(name string, start *guestv1.ExecStart, files *Files) (*Process, error) {
	c, err := r.resolve(start)
	if err != nil {
		return nil, err
	}
	t, err := r.launch(c, files.fds, false)
	if err != nil {
		return nil, err
	}
	p := &Process{r: r, exec: r.NewExec(name), tree: t}
	p.exec.tree = t
	r.enter(p.exec, t)
	r.endLate(p.exec, t)
	return p, nil
}

// PID is the program's own, which is also its process group and session.
func (p *Process) PID() int { return p.tree.pid() }

// Ended gets the program's wait status, or is closed without one when nobody
// can know it any more.
func (p *Process) Ended() <-chan syscall.WaitStatus { return p.tree.ended() }

// Members are the processes that descend from it and live.
func (p *Process) Members() []int { return p.tree.members() }

// Kill ends all that descends from it and returns when nothing is left, or ctx
// ends.
func (p *Process) Kill(ctx context.Context) error { return p.tree.kill(ctx) }

// Forget is called when nothing of it is left.
func (p *Process) Forget() { p.r.forget(p.exec) }

// OOM says what the memory watchdog did to one of its processes since TakeOOM;
// "": nothing.
func (p *Process) OOM() string {
	p.exec.mu.Lock()
	defer p.exec.mu.Unlock()
	return p.exec.oom
}

// TakeOOM returns what OOM does, and forgets it.
func (p *Process) TakeOOM() string {
	p.exec.mu.Lock()
	defer p.exec.mu.Unlock()
	text := p.exec.oom
	p.exec.oom = ""
	return text
}
