package core

import (
	"context"
	"strings"
	"time"

	"github.com/cubbyhq/cubby/internal/core/cell"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// StartCode starts a cell and returns at once. It is an exec: numbered, kept,
// followed, canceled and waited for as a command is. The cells of one kernel
// run in the order of their numbers, and one that waits is pending. WrongState
// when the sandbox does not run, NotFound when there is no kernel of this name
// and nothing says of which language to make one.
func (s *Service) StartCode(ctx context.Context, id string, r cell.Request) (sandbox.Exec, error) {
	leave, err := s.gate.Enter(ctx)
	if err != nil {
		return sandbox.Exec{}, err
	}
	defer leave()
	b, run, err := s.findRunning(ctx, id)
	if err != nil {
		return sandbox.Exec{}, err
	}
	spec, err := r.Spec(b.Spec, func(kernel string) (string, error) { return run.languageOf(ctx, kernel) })
	if err != nil {
		return sandbox.Exec{}, err
	}
	return run.enqueue(ctx, b, spec)
}

// RunCode is [Service.StartCode], [Service.WaitExec] and [Service.Execution]
// in one. The execution is unfinished when wait is over first, and names the
// exec beside the error when ctx ends first; a negative wait is for ever.
func (s *Service) RunCode(ctx context.Context, id string, r cell.Request, wait time.Duration) (cell.Execution, error) {
	x, err := s.StartCode(ctx, id, r)
	if err != nil {
		return cell.Execution{}, err
	}
	ended, err := s.waitQueued(ctx, x.Box, x.Seq, wait)
	if err != nil {
		return cell.Execution{Exec: x}, err
	}
	return s.execution(ctx, ended)
}

// Execution returns a cell with what it has shown so far, also that of a
// destroyed sandbox. Invalid when the exec is not a cell.
func (s *Service) Execution(ctx context.Context, id string, seq int64) (cell.Execution, error) {
	x, err := s.ExecByID(ctx, id, seq)
	if err != nil {
		return cell.Execution{}, err
	}
	if x.Spec.Cell == nil {
		return cell.Execution{}, errs.E(errs.Invalid, "%d is a command and not code", seq).Hint("read it as a command: its output is text")
	}
	return s.execution(ctx, x)
}

// languageOf returns the language of a kernel that somebody has made.
func (r *run) languageOf(ctx context.Context, kernel string) (string, error) {
	r.mu.Lock()
	language := r.languages[kernel]
	r.mu.Unlock()
	if language != "" {
		return language, nil
	}
	k, err := r.kernel(ctx, kernel)
	if err != nil {
		return "", err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.languages) >= maxLanguages {
		clear(r.languages)
	}
	r.languages[kernel] = k.Language
	return k.Language, nil
}

// maxLanguages bounds the kernels whose language is remembered.
const maxLanguages = 256

// execution reads what a cell has shown.
func (s *Service) execution(ctx context.Context, x sandbox.Exec) (cell.Execution, error) {
	var missing sandbox.Exit
	if x.Exit != nil {
		missing = *x.Exit
	} else if live := s.live(x.Box, x.Seq); live != nil {
		missing = withCuts(missing, live.log)
	}
	return s.cells.Execution(ctx, x, missing)
}

// queueOf names the queue whose commands run one after another: a session's or
// a kernel's; "" is none. A session's name has no colon.
func queueOf(x sandbox.ExecSpec) string {
	if x.Cell != nil {
		return kernelQueue(x.Cell.Kernel)
	}
	return x.Session
}

func kernelQueue(kernel string) string { return "kernel:" + kernel }

// ofKernel reports whether a queue is a kernel's.
func (q *queue) ofKernel() bool { return strings.HasPrefix(q.name, kernelQueue("")) }
