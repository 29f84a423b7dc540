package kernels

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/guestd/proc"
	"github.com/cubbyhq/cubby/internal/kernel"
	"github.com/cubbyhq/cubby/internal/uptime"
)

const (
	// interruptGrace is how long a cell that is interrupted may take to end;
	// then its kernel is killed.
	interruptGrace = 5 * time.Second
	// interruptAgain is when whatever the cell waits for is interrupted too.
	interruptAgain = 2500 * time.Millisecond
)

// Cell is code for a kernel: what makes an exec of the host a cell.
type Cell struct {
	s       *Set
	exec    *proc.Exec
	start   *guestv1.ExecStart
	kernel  *liveKernel // nil: there was none
	out     *cellOutput
	in      *cellInput    // nil: it may not ask
	began   chan struct{} // closed when an interrupt of the kernel means it
	ended   chan struct{} // closed when it runs no more, or never will
	drained chan struct{} // closed when its exit is recorded behind all of its output

	mu      sync.Mutex
	number  int64          // that the kernel's client gave it, once it has begun
	process *kernelProcess // nil: it does not run
	pid     int            // it ran in
	over    bool           // it ended, whatever comes now
	cause   *proc.Cause    // why the agent ends it: the first counts
	forced  bool           // the kernel was killed for the cause
	timers  []*uptime.Timer
}

func newCell(s *Set, e *proc.Exec, start *guestv1.ExecStart) *Cell {
	c := &Cell{s: s, exec: e, start: start, began: make(chan struct{}), ended: make(chan struct{}), drained: make(chan struct{})}
	c.out = newCellOutput(&s.cellBytes, s.cfg.Now)
	if start.GetStdin() {
		c.in = newCellInput()
	}
	return c
}

// Enqueue makes a cell of an exec and gives it to its kernel, which is made when
// there is none. It does not wait; cells run in the order of the calls.
func (s *Set) Enqueue(e *proc.Exec, start *guestv1.ExecStart) *Cell {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := newCell(s, e, start)
	name, language := start.GetCell().GetKernel(), start.GetCell().GetLanguage()
	if name == "" {
		name = canonicalLanguage(language)
	}
	k := s.kernels[name]
	if k == nil {
		var err error
		if k, err = s.addKernel(name, &guestv1.KernelSpec{
			Language: language, Cwd: start.GetCwd(), Env: start.GetEnv(), User: start.GetUser(),
		}); err != nil {
			c.notStarted(err)
			return c
		}
	}
	c.kernel = k
	if !k.submit(c) {
		c.notStarted(errNoMore)
	}
	return c
}

// PID is the process that it runs in, or ran; 0: it never did.
func (c *Cell) PID() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pid
}

// run executes the cell, and says how it ended and, when the kernel did too,
// why that was. With leaves the kernel was asked to end by the cell itself.
func (c *Cell) run(process *kernelProcess) (exit *guestv1.ExecExit, died string, leaves bool) {
	ooms := c.s.procs.OOMKills()
	process.tree.TakeOOM() // of the time between the cells
	c.s.running.Go(func() { c.out.pass(c.s.life, c.exec.Output()) })
	if b := c.begin(process); b != nil {
		// It was ended in the moment in which its turn came.
		return &guestv1.ExecExit{
			Code: proc.CodeNotExecutable, Reason: b.Reason, Message: b.Text, At: timestamppb.New(c.s.cfg.Now()),
		}, "", false
	}
	if c.in != nil {
		stop := c.in.answer(process.engine)
		defer stop()
	}
	process.print.attach(c.show)
	reply, err := process.engine.Execute(c.s.life, kernel.Cell{
		Code: c.start.GetCell().GetCode(), Stdin: c.in != nil, Began: c.isBegun,
	}, c.show)
	if err != nil {
		// Whatever it is: a kernel whose answer is lost is not one any more.
		if !isGone(err) {
			process.kill()
		}
		<-process.done
		<-process.print.done
	}
	process.print.detach()
	b, forced := c.end()
	if err == nil && b != nil && process.storms() {
		// It went on after the cell, which it must not outlive.
		process.kill()
		<-process.done
		<-process.print.done
		err = errStorm
	}
	if err == nil {
		exit = c.conclude(reply, b, process.tree.TakeOOM())
		c.out.record(kernel.Output{Done: &kernel.Done{Count: reply.Count}})
	} else {
		exit, died = c.concludeDeath(process, b, forced, c.s.procs.OOMKills() > ooms)
		if errors.Is(err, errStorm) {
			died = b.Text + "; what it had started forked on and on, so the kernel was killed with them: its state is lost"
			exit.Reason, exit.Message = b.Reason, died
		}
		if b == nil && !isGone(err) {
			died = "the kernel was ended: " + err.Error()
			exit.Message = died
		}
		c.out.record(kernel.Output{Kernel: &kernel.Notice{Reason: died}})
	}
	exit.At = timestamppb.New(c.s.cfg.Now())
	return exit, died, reply.Leaves
}

// begin makes it the cell that runs, unless something ended it already.
func (c *Cell) begin(process *kernelProcess) *proc.Cause {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause != nil {
		c.over = true
		close(c.ended)
		c.exec.Begin(time.Time{})
		return c.cause
	}
	c.process, c.pid = process, process.tree.PID()
	c.exec.Begin(c.s.cfg.Now())
	if limit := c.start.GetTimeout().AsDuration(); limit > 0 {
		c.timers = append(c.timers, c.s.cfg.Uptime.AfterFunc(limit, func() {
			c.interrupt(proc.Cause{
				Reason: guestv1.ExitReason_EXIT_REASON_TIMEOUT,
				Text:   fmt.Sprintf("interrupted after its time limit of %s", limit),
			})
		}))
	}
	return nil
}

// isBegun notes that the kernel has begun with it.
func (c *Cell) isBegun(number int64) {
	c.mu.Lock()
	c.number = number
	c.mu.Unlock()
	close(c.began)
}

// end makes it a cell that ran, and returns why the agent ended it, if it did.
func (c *Cell) end() (b *proc.Cause, forced bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over, c.process = true, nil
	close(c.ended)
	for _, t := range c.timers {
		t.Stop()
	}
	return c.cause, c.forced
}

// interrupt ends the cell that runs, and its kernel when that does not help.
// The first one counts.
func (c *Cell) interrupt(b proc.Cause) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over || c.cause != nil {
		return
	}
	c.cause = &b
	process := c.process
	if process == nil {
		return // its turn comes now: see begin
	}
	go c.interruptBegun(process)
	c.timers = append(c.timers,
		c.s.cfg.Uptime.AfterFunc(interruptAgain, func() { c.interruptAll(process) }),
		c.s.cfg.Uptime.AfterFunc(interruptGrace, func() { c.force(process) }))
}

// interruptBegun interrupts the kernel once it has begun with the cell: before that it
// does not listen. One that does not say that it has is interrupted without that.
func (c *Cell) interruptBegun(process *kernelProcess) {
	enough, t := c.s.cfg.Uptime.After(interruptAgain)
	defer t.Stop()
	for waiting := true; waiting; {
		select {
		case <-c.ended:
			return
		case <-c.began:
			waiting = false
		case <-enough:
			process.interrupt(0)
			enough = nil
		}
	}
	c.mu.Lock()
	over, number := c.over, c.number
	c.mu.Unlock()
	if !over {
		process.interrupt(number)
	}
}

// interruptAll interrupts a cell that goes on, with the programs it waits for.
func (c *Cell) interruptAll(process *kernelProcess) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.over {
		process.interruptAll()
	}
}

// force kills the kernel of a cell that did not end.
func (c *Cell) force(process *kernelProcess) {
	c.mu.Lock()
	if c.over {
		c.mu.Unlock()
		return
	}
	c.forced = true
	c.mu.Unlock()
	process.kill()
}

// endWithKernel ends the cell that runs by ending its kernel.
func (c *Cell) endWithKernel(b proc.Cause) {
	c.mu.Lock()
	process := c.process
	if c.over {
		c.mu.Unlock()
		return
	}
	b.Signal = syscall.SIGKILL
	c.cause, c.forced = &b, true
	c.mu.Unlock()
	if process != nil && b.Reason != guestv1.ExitReason_EXIT_REASON_SHUTDOWN {
		process.kill()
	}
}

// Signal is what a signal to the exec means for a cell: those that end
// commands interrupt it, or take it out of the queue. With wait it returns when
// it has ended.
func (c *Cell) Signal(ctx context.Context, sig syscall.Signal, reason guestv1.ExitReason, wait bool) error {
	switch sig {
	case syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL, syscall.SIGHUP, syscall.SIGQUIT:
	default:
		return errs.E(errs.Invalid, "a cell cannot get %s", proc.SignalName(sig)).
			Hint("SIGINT, SIGTERM and SIGKILL interrupt it")
	}
	if c.exec.Exit() != nil {
		if wait {
			return errs.E(errs.NotFound, "nothing of the cell is left")
		}
		return errs.E(errs.WrongState, "the cell has ended")
	}
	b := proc.Cause{Reason: reason, Text: "interrupted"}
	if b.Reason == guestv1.ExitReason_EXIT_REASON_UNSPECIFIED {
		b.Reason = guestv1.ExitReason_EXIT_REASON_KILLED
	}
	if c.kernel != nil && c.kernel.withdraw(c) {
		b.Text = "canceled before its turn came"
		c.refuse(&b)
		return nil
	}
	c.interrupt(b)
	if !wait {
		return nil
	}
	select {
	case <-c.ended:
		return nil
	case <-ctx.Done():
		return errs.E(errs.Timeout, "the cell has not ended yet").Because(context.Cause(ctx))
	}
}
