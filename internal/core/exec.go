package core

import (
	"context"
	"iter"
	"time"

	"github.com/cubbyhq/cubby/internal/journal"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Exec starts a command and returns at once; the command goes on when ctx
// ends. WrongState when the sandbox does not run.
func (s *Service) Exec(ctx context.Context, id string, spec sandbox.ExecSpec) (sandbox.Exec, error) {
	return sandbox.Exec{}, errStub
}

// RunExec is [Service.Exec], [Service.WaitExec] and [Service.Result] in one,
// at the price of one. The result is unfinished when wait is over first.
func (s *Service) RunExec(ctx context.Context, id string, spec sandbox.ExecSpec, wait time.Duration, caps OutputCaps) (Result, error) {
	return Result{}, errStub
}

// WaitExec returns the exec when it has finished or when timeout is over.
func (s *Service) WaitExec(ctx context.Context, id string, seq int64, timeout time.Duration) (sandbox.Exec, error) {
	return sandbox.Exec{}, errStub
}

// ExecByID returns one exec, without its env.
func (s *Service) ExecByID(ctx context.Context, id string, seq int64) (sandbox.Exec, error) {
	return sandbox.Exec{}, errStub
}

// ExecQuery selects execs in ascending order of seq.
type ExecQuery struct {
	AfterSeq int64
	Limit    int // 0: 100, at most 1000
}

// Execs lists the execs of a sandbox.
func (s *Service) Execs(ctx context.Context, id string, q ExecQuery) ([]sandbox.Exec, error) {
	return nil, errStub
}

// Output reads an exec's output from an offset. With follow it waits for more
// until the exec has ended. The last entry of a finished exec is its Exit.
func (s *Service) Output(ctx context.Context, id string, seq, after int64, follow bool) iter.Seq2[journal.Entry, error] {
	return func(yield func(journal.Entry, error) bool) { yield(journal.Entry{}, errStub) }
}

// OutputCaps bound how many bytes of each stream a [Result] holds; a negative
// one is all.
type OutputCaps struct{ Stdout, Stderr int64 }

// Result is an exec with its output. The cut counts are the bytes that are
// missing, whether the journal or the caps left them out.
type Result struct {
	Exec                 sandbox.Exec
	Stdout, Stderr       []byte
	StdoutCut, StderrCut int64
}

// Result returns an exec with its output so far.
func (s *Service) Result(ctx context.Context, id string, seq int64, caps OutputCaps) (Result, error) {
	return Result{}, errStub
}

// Signal sends a signal ("SIGINT", "INT") to the command's process group, or
// with tree to everything that descends from it. WrongState when the exec has
// finished.
func (s *Service) Signal(ctx context.Context, id string, seq int64, signal string, tree bool) error {
	return errStub
}

// Cancel kills everything that descends from the command; its end says killed.
// Canceling a finished exec does nothing.
func (s *Service) Cancel(ctx context.Context, id string, seq int64) (sandbox.Exec, error) {
	return sandbox.Exec{}, errStub
}

// WriteStdin writes to the command's standard input at an offset and returns
// the offset reached. Bytes that were written before are skipped, so a repeat
// is harmless; an offset below 0 appends.
func (s *Service) WriteStdin(ctx context.Context, id string, seq, offset int64, data []byte, eof bool) (int64, error) {
	return 0, errStub
}

// Resize sets the size of the command's terminal.
func (s *Service) Resize(ctx context.Context, id string, seq int64, size sandbox.WindowSize) error {
	return errStub
}
