package guestd

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/kernel"
)

const (
	// interruptGrace is how long a cell that is interrupted may take to end;
	// then its kernel is killed.
	interruptGrace = 5 * time.Second
	// interruptAgain is when whatever the cell waits for is interrupted too.
	interruptAgain = 2500 * time.Millisecond
)

// cell is what makes an exec one of a kernel.
type cell struct {
	s       *Server
	exec    *exec
	start   *guestv1.ExecStart
	kernel  *liveKernel // nil: there was none
	out     *cellOutput
	in      *cellInput    // nil: it may not ask
	ended   chan struct{} // closed when it runs no more, or never will
	drained chan struct{} // closed when its exit is recorded behind all of its output

	mu      sync.Mutex
	process *kernelProcess // nil: it does not run
	pid     int            // it ran in
	over    bool           // no blame any more
	blame   *blame         // the first
	forced  bool           // the kernel was killed because of the blame
	timers  []*time.Timer
}

func newCell(s *Server, e *exec, start *guestv1.ExecStart) *cell {
	c := &cell{s: s, exec: e, start: start, ended: make(chan struct{}), drained: make(chan struct{})}
	c.out = newCellOutput(&s.cellBytes, s.cfg.Now)
	if start.GetStdin() {
		c.in = newCellInput()
	}
	return c
}

// enqueue gives a cell to its kernel, and makes that when there is none. s.mu is
// held: cells run in the order in which they came.
func (s *Server) enqueue(e *exec, start *guestv1.ExecStart) {
	c := newCell(s, e, start)
	e.cell = c
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
			return
		}
	}
	c.kernel = k
	if !k.submit(c) {
		c.notStarted(errNoMore)
	}
}

// run executes the cell, and says how it ended and, when the kernel did too,
// why that was. With leaves the kernel was asked to end by the cell itself.
func (c *cell) run(process *kernelProcess) (exit *guestv1.ExecExit, died string, leaves bool) {
	ooms := c.s.ooms.count()
	process.takeOOM() // of the time between the cells
	c.s.running.Go(func() { c.out.pass(c.s.life, c.exec.out) })
	if b := c.begin(process); b != nil {
		// It was ended in the moment in which its turn came.
		return &guestv1.ExecExit{
			Code: codeNotExecutable, Reason: b.reason, Message: b.text, At: timestamppb.New(c.s.cfg.Now()),
		}, "", false
	}
	if c.in != nil {
		stop := c.in.answer(process.engine)
		defer stop()
	}
	process.print.attach(c.show)
	reply, err := process.engine.Execute(c.s.life, kernel.Cell{
		Code: c.start.GetCell().GetCode(), Stdin: c.in != nil,
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
		exit = c.conclude(reply, b, process.takeOOM())
		c.out.record(kernel.Output{Done: &kernel.Done{Count: reply.Count}})
	} else {
		exit, died = c.concludeDeath(process, b, forced, c.s.ooms.count() > ooms)
		if errors.Is(err, errStorm) {
			died = b.text + "; what it had started forked on and on, so the kernel was killed with them: its state is lost"
			exit.Reason, exit.Message = b.reason, died
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

// begin makes it the cell that runs, unless it has a blame already.
func (c *cell) begin(process *kernelProcess) *blame {
	e := c.exec
	defer close(e.begun)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.blame != nil {
		c.over = true
		close(c.ended)
		return c.blame
	}
	e.mu.Lock()
	e.startedAt = c.s.cfg.Now()
	e.mu.Unlock()
	c.process, c.pid = process, process.tree.pid()
	if limit := c.start.GetTimeout().AsDuration(); limit > 0 {
		c.timers = append(c.timers, time.AfterFunc(limit, func() {
			c.interrupt(blame{
				reason: guestv1.ExitReason_EXIT_REASON_TIMEOUT,
				text:   fmt.Sprintf("interrupted after its time limit of %s", limit),
			})
		}))
	}
	return nil
}

// end makes it a cell that ran, and returns who is to blame for its end.
func (c *cell) end() (b *blame, forced bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over, c.process = true, nil
	close(c.ended)
	for _, t := range c.timers {
		t.Stop()
	}
	return c.blame, c.forced
}

// interrupt ends the cell that runs, and its kernel when that does not help.
// The first one counts.
func (c *cell) interrupt(b blame) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over || c.blame != nil {
		return
	}
	c.blame = &b
	process := c.process
	if process == nil {
		return // its turn comes now: see begin
	}
	id := process.running()
	go func() {
		if !c.isOver() {
			process.interrupt(id)
		}
	}()
	c.timers = append(c.timers,
		time.AfterFunc(interruptAgain, func() { c.interruptAll(process) }),
		time.AfterFunc(interruptGrace, func() { c.force(process) }))
}

func (c *cell) isOver() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.over
}

// interruptAll interrupts a cell that goes on, with the programs it waits for.
func (c *cell) interruptAll(process *kernelProcess) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.over {
		process.interruptAll()
	}
}

// force kills the kernel of a cell that did not end.
func (c *cell) force(process *kernelProcess) {
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
func (c *cell) endWithKernel(b blame) {
	c.mu.Lock()
	process := c.process
	if c.over {
		c.mu.Unlock()
		return
	}
	b.signal = syscall.SIGKILL
	c.blame, c.forced = &b, true
	c.mu.Unlock()
	if process != nil && b.reason != guestv1.ExitReason_EXIT_REASON_SHUTDOWN {
		process.kill()
	}
}

// conclude says how a cell ended whose kernel lives on. One that was
// interrupted ended of that, also when the kernel calls it a success: code may
// catch the interrupt, and programs that it waits for may take it.
func (c *cell) conclude(reply kernel.Reply, b *blame, oom string) *guestv1.ExecExit {
	exit := &guestv1.ExecExit{Reason: guestv1.ExitReason_EXIT_REASON_EXITED, Message: oom}
	if reply.Status == "ok" && b == nil {
		return exit
	}
	exit.Code = 1
	switch {
	case b != nil:
		exit.Reason, exit.Message = b.reason, b.text+"; the kernel keeps its state"
	case oom != "":
		exit.Reason = guestv1.ExitReason_EXIT_REASON_OOM
	case reply.Name != "":
		// For who cannot read the record of it: much output may have left no
		// room for that.
		exit.Message = shorten(reply.Name+": "+reply.Value, maxErrorName)
	}
	return exit
}

// concludeDeath says how a cell ended under which the kernel did.
func (c *cell) concludeDeath(process *kernelProcess, b *blame, forced, kernelOOM bool) (exit *guestv1.ExecExit, died string) {
	exit = &guestv1.ExecExit{Code: 128 + int32(syscall.SIGKILL), Signal: "SIGKILL"}
	if ws := process.status; process.known && !ws.Signaled() {
		// It did not succeed, whatever code the kernel gave.
		exit.Code, exit.Signal = max(int32(ws.ExitStatus()), 1), ""
	} else if process.known {
		exit.Code, exit.Signal = 128+int32(ws.Signal()), signalName(ws.Signal())
	}
	oom := process.oom()
	if oom == "" && kernelOOM && exit.Signal == "SIGKILL" {
		oom = "killed by the kernel: the sandbox ran out of memory"
	}
	switch {
	case b != nil && b.signal != 0: // its kernel was ended on purpose
		exit.Reason, exit.Message = b.reason, b.text
		return exit, b.text
	case b != nil && forced:
		died = fmt.Sprintf("%s; it did not end within %s, so the kernel was killed: its state is lost", b.text, interruptGrace)
		exit.Reason = b.reason
	case oom != "":
		died = oom
		exit.Reason = guestv1.ExitReason_EXIT_REASON_OOM
	case b != nil:
		died = b.text + "; the kernel ended of it: its state is lost"
		exit.Reason = b.reason
	default:
		died = "the kernel ended under the cell: " + process.howEnded() + "; its state is lost"
		exit.Reason = guestv1.ExitReason_EXIT_REASON_KERNEL_DIED
	}
	exit.Message = died
	return exit, died
}

// finish hands over what is left of the output and records the exit.
func (c *cell) finish(exit *guestv1.ExecExit) {
	if c.in != nil {
		c.in.close()
	}
	c.out.finish()
	exit.StdoutCut, exit.StderrCut, exit.RichCut = c.out.cuts()
	c.exec.finish(exit)
	close(c.drained)
	if c.out.wasLarge() {
		// The memory is the sandbox's, who needs it.
		debug.FreeOSMemory()
	}
}

func (c *cell) isDrained() bool {
	select {
	case <-c.drained:
		return true
	default:
		return false
	}
}

// notStarted ends a cell that cannot run. Like refuse it is for cells that are
// in no queue any more.
func (c *cell) notStarted(err error) {
	exit := c.s.notStarted(err)
	var classified *errs.Error
	if errors.As(err, &classified) {
		info := errs.Public(err)
		exit.Message = info.Message
		if info.Hint != "" {
			exit.Message += "; " + info.Hint
		}
		if info.Kind == errs.NotFound {
			exit.Code = codeNotFound
		}
	}
	c.skip(exit)
}

// refuse ends a cell that was waiting.
func (c *cell) refuse(b *blame) {
	exit := &guestv1.ExecExit{
		Code: codeNotExecutable, Reason: b.reason, Message: b.text, At: timestamppb.New(c.s.cfg.Now()),
	}
	if b.reason == guestv1.ExitReason_EXIT_REASON_UNSPECIFIED {
		exit.Reason = guestv1.ExitReason_EXIT_REASON_NOT_STARTED
	}
	c.skip(exit)
}

// skip ends a cell that never ran.
func (c *cell) skip(exit *guestv1.ExecExit) {
	c.mu.Lock()
	c.over = true
	close(c.ended)
	c.mu.Unlock()
	if c.in != nil {
		c.in.close()
	}
	c.exec.finish(exit)
	close(c.exec.begun)
	close(c.drained)
}

// signal is what a signal to the exec means for a cell: those that end
// commands interrupt it, or take it out of the queue. With wait it returns when
// it has ended.
func (c *cell) signal(ctx context.Context, sig syscall.Signal, reason guestv1.ExitReason, wait bool) error {
	switch sig {
	case syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL, syscall.SIGHUP, syscall.SIGQUIT:
	default:
		return errs.E(errs.Invalid, "a cell cannot get %s", signalName(sig)).
			Hint("SIGINT, SIGTERM and SIGKILL interrupt it")
	}
	if c.exec.finished() != nil {
		if wait {
			return errs.E(errs.NotFound, "nothing of the cell is left")
		}
		return errs.E(errs.WrongState, "the cell has ended")
	}
	b := blame{reason: reason, text: "interrupted"}
	if b.reason == guestv1.ExitReason_EXIT_REASON_UNSPECIFIED {
		b.reason = guestv1.ExitReason_EXIT_REASON_KILLED
	}
	if c.kernel != nil && c.kernel.withdraw(c) {
		b.text = "canceled before its turn came"
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
