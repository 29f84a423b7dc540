package kernels

import (
	"errors"
	"fmt"
	"runtime/debug"
	"syscall"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/guestd/proc"
	"github.com/cubbyhq/cubby/internal/kernel"
)

// conclude says how a cell ended whose kernel lives on. One that was
// interrupted ended of that, also when the kernel calls it a success: code may
// catch the interrupt, and programs that it waits for may take it.
func (c *Cell) conclude(reply kernel.Reply, b *proc.Cause, oom string) *guestv1.ExecExit {
	exit := &guestv1.ExecExit{Reason: guestv1.ExitReason_EXIT_REASON_EXITED, Message: oom}
	if reply.Status == "ok" && b == nil {
		return exit
	}
	exit.Code = 1
	switch {
	case b != nil:
		exit.Reason, exit.Message = b.Reason, b.Text+"; the kernel keeps its state"
	case oom != "":
		exit.Reason = guestv1.ExitReason_EXIT_REASON_OOM
	case reply.Name != "":
		// For who cannot read the record of it: much output may have left no
		// room for that.
		exit.Exception = shorten(reply.Name, maxErrorName)
		exit.Message = shorten(reply.Name+": "+reply.Value, maxErrorName)
	}
	return exit
}

// concludeDeath says how a cell ended under which the kernel did.
func (c *Cell) concludeDeath(process *kernelProcess, b *proc.Cause, forced, kernelOOM bool) (exit *guestv1.ExecExit, died string) {
	exit = &guestv1.ExecExit{Code: 128 + int32(syscall.SIGKILL), Signal: "SIGKILL"}
	if ws := process.status; process.known && !ws.Signaled() {
		// It did not succeed, whatever code the kernel gave.
		exit.Code, exit.Signal = max(int32(ws.ExitStatus()), 1), ""
	} else if process.known {
		exit.Code, exit.Signal = 128+int32(ws.Signal()), proc.SignalName(ws.Signal())
	}
	oom := process.tree.OOM()
	if oom == "" && kernelOOM && exit.Signal == "SIGKILL" {
		oom = "killed by the kernel: the sandbox ran out of memory"
	}
	switch {
	case b != nil && b.Signal != 0: // its kernel was ended on purpose
		exit.Reason, exit.Message = b.Reason, b.Text
		return exit, b.Text
	case b != nil && forced:
		died = fmt.Sprintf("%s; it did not end within %s, so the kernel was killed: its state is lost", b.Text, interruptGrace)
		exit.Reason = b.Reason
	case oom != "":
		died = oom
		exit.Reason = guestv1.ExitReason_EXIT_REASON_OOM
	case b != nil:
		died = b.Text + "; the kernel ended of it: its state is lost"
		exit.Reason = b.Reason
	default:
		died = "the kernel ended under the cell: " + process.howEnded() + "; its state is lost"
		exit.Reason = guestv1.ExitReason_EXIT_REASON_KERNEL_DIED
	}
	exit.Message = died
	return exit, died
}

// finish hands over what is left of the output and records the exit.
func (c *Cell) finish(exit *guestv1.ExecExit) {
	if c.in != nil {
		c.in.close()
	}
	c.out.finish()
	exit.StdoutCut, exit.StderrCut, exit.RichCut = c.out.cuts()
	c.exec.Finish(exit)
	close(c.drained)
	if c.out.wasLarge() {
		// The memory is the sandbox's, who needs it.
		debug.FreeOSMemory()
	}
}

func (c *Cell) isDrained() bool {
	select {
	case <-c.drained:
		return true
	default:
		return false
	}
}

// notStarted ends a cell that cannot run. Like refuse it is for cells that are
// in no queue any more.
func (c *Cell) notStarted(err error) {
	exit := proc.NotStarted(err, c.s.cfg.Now())
	var classified *errs.Error
	if errors.As(err, &classified) {
		info := errs.Public(err)
		exit.Message = info.Message
		if info.Hint != "" {
			exit.Message += "; " + info.Hint
		}
		if info.Kind == errs.NotFound {
			exit.Code = proc.CodeNotFound
		}
	}
	c.skip(exit)
}

// refuse ends a cell that was waiting.
func (c *Cell) refuse(b *proc.Cause) {
	exit := &guestv1.ExecExit{
		Code: proc.CodeNotExecutable, Reason: b.Reason, Message: b.Text, At: timestamppb.New(c.s.cfg.Now()),
	}
	if b.Reason == guestv1.ExitReason_EXIT_REASON_UNSPECIFIED {
		exit.Reason = guestv1.ExitReason_EXIT_REASON_NOT_STARTED
	}
	c.skip(exit)
}

// skip ends a cell that never ran.
func (c *Cell) skip(exit *guestv1.ExecExit) {
	c.mu.Lock()
	c.over = true
	close(c.ended)
	c.mu.Unlock()
	if c.in != nil {
		c.in.close()
	}
	c.exec.Finish(exit)
	c.exec.Begin(time.Time{})
	close(c.drained)
}
