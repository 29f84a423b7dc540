package cell

import (
	"context"
	"time"

	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Code runs code in the kernels of running sandboxes.
type Code struct {
	gate    *gate.Gate
	live    *live.Sandboxes
	kernels *Kernels
	reader  *Reader
}

// NewCode returns what runs code, and reads what it showed with reader.
func NewCode(g *gate.Gate, running *live.Sandboxes, kernels *Kernels, reader *Reader) *Code {
	return &Code{gate: g, live: running, kernels: kernels, reader: reader}
}

// Start starts a cell and returns at once. It is an exec: numbered, kept,
// followed, canceled and waited for as a command is. The cells of one kernel
// run in the order of their numbers, and one that waits is pending. WrongState
// when the sandbox does not run, NotFound when there is no kernel of this name
// and nothing says of which language to make one.
func (c *Code) Start(ctx context.Context, id string, req Request) (sandbox.Exec, error) {
	leave, err := c.gate.Enter(ctx)
	if err != nil {
		return sandbox.Exec{}, err
	}
	defer leave()
	b, r, done, err := c.live.Use(ctx, id)
	if err != nil {
		return sandbox.Exec{}, err
	}
	defer done()
	spec, err := req.Spec(b.Spec, func(kernel string) (string, error) { return c.kernels.languageOf(ctx, r, kernel) })
	if err != nil {
		return sandbox.Exec{}, err
	}
	return r.Enqueue(ctx, b, spec)
}

// Run is [Code.Start], a wait for the end and [Code.Execution] in one. The
// execution is unfinished when wait is over first, and names the exec beside the
// error when ctx ends first; a negative wait is for ever.
func (c *Code) Run(ctx context.Context, id string, req Request, wait time.Duration) (Execution, error) {
	x, err := c.Start(ctx, id, req)
	if err != nil {
		return Execution{}, err
	}
	ended, err := c.live.Execs().WaitQueued(ctx, x.Box, x.Seq, wait)
	if err != nil {
		return Execution{Exec: x}, err
	}
	return c.read(ctx, ended, c.reader.Caps)
}

// Execution returns a cell with what it has shown so far, also that of a
// destroyed sandbox. Invalid when the exec is not a cell.
func (c *Code) Execution(ctx context.Context, id string, seq int64) (Execution, error) {
	return c.execution(ctx, id, seq, c.reader.Caps)
}

// Ends is [Code.Execution] for a reader that shortens texts by itself: stdout and
// stderr have their beginning and their end, and all other texts are whole.
func (c *Code) Ends(ctx context.Context, id string, seq int64) (Execution, error) {
	return c.execution(ctx, id, seq, c.reader.Caps.ends())
}

func (c *Code) execution(ctx context.Context, id string, seq int64, caps Caps) (Execution, error) {
	x, err := c.live.Execs().Get(ctx, id, seq)
	if err != nil {
		return Execution{}, err
	}
	if x.Spec.Cell == nil {
		return Execution{}, errs.E(errs.Invalid, "%d is a command and not code", seq).Hint("read it as a command: its output is text")
	}
	return c.read(ctx, x, caps)
}

// read reads what a cell has shown.
func (c *Code) read(ctx context.Context, x sandbox.Exec, caps Caps) (Execution, error) {
	return c.reader.Execution(ctx, x, c.live.Execs().Cuts(x), caps)
}
