package kernels

import (
	"context"
	"errors"
	"time"
	"unicode/utf8"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

const (
	// askLimit is how long a kernel may take for an answer. It runs no cell
	// meanwhile.
	askLimit = 5 * time.Second
	// firstAskLimit is the same until a process has answered a question of the kind:
	// IPython imports what completes code at the first completion, 1.5 s of a
	// processor, and an interrupt throws away what it has imported.
	firstAskLimit = 20 * time.Second
	// askGrace is how long a question that is given up may take to be so.
	askGrace = 100 * time.Millisecond
	// maxAsks bounds the questions that wait for a kernel.
	maxAsks = 16
)

// ask is a question about code that is not run, for a kernel that runs nothing.
type ask struct {
	ctx    context.Context //nolint:containedctx // of who waits for the answer
	kind   askKind
	put    func(ctx context.Context, e engine) (*guestv1.AskKernelResponse, error)
	answer chan answered // holds one
}

// askKind is a kind of question.
type askKind string

const (
	askComplete askKind = "complete"
	askInspect  askKind = "inspect"
	askCheck    askKind = "check"
)

// patience is how long a process may take for a question of a kind.
func (p *kernelProcess) patience(kind askKind) time.Duration {
	if p.answers[kind] {
		return askLimit
	}
	return firstAskLimit
}

type answered struct {
	res *guestv1.AskKernelResponse
	err error
}

// ask puts a question to the kernel and returns its answer: WrongState when it
// is at work or has no process.
func (k *liveKernel) ask(ctx context.Context, a *ask) (*guestv1.AskKernelResponse, error) {
	k.mu.Lock()
	err := k.attentive()
	if err == nil && len(k.asks) >= maxAsks {
		err = errs.E(errs.Exhausted, "%d questions wait for the kernel already", maxAsks)
	}
	if err == nil {
		k.asks = append(k.asks, a)
	}
	k.mu.Unlock()
	if err != nil {
		return nil, err
	}
	k.stir()
	select {
	case r := <-a.answer:
		return r.res, r.err
	case <-k.gone:
		return nil, errs.E(errs.NotFound, "the kernel %q was deleted", k.name)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// attentive says why the kernel can answer no question now: cells go first. k.mu
// is held.
func (k *liveKernel) attentive() error {
	switch {
	case k.ending != nil:
		return errNoMore
	case k.current != nil, len(k.queue) > 0:
		return errs.E(errs.WrongState, "the kernel %q runs a cell", k.name).
			Hint("ask again when it is idle, or interrupt the cell")
	case k.status == guestv1.KernelStatus_KERNEL_STATUS_STARTING, len(k.restart) > 0:
		return errs.E(errs.WrongState, "the kernel %q is starting", k.name).Hint("ask again when it is idle")
	case k.process == nil, k.leaving:
		return errs.E(errs.WrongState, "the kernel %q has ended", k.name).Hint("run a cell, which starts it anew, or restart it")
	case k.process.asked.Load():
		return errs.E(errs.Unavailable, "the kernel %q has not taken an earlier question yet", k.name).Hint("restart it")
	}
	return nil
}

// put waits for the answer to a question as long as it may take. A kernel that
// does not even read it holds up nobody but the goroutine that writes, until the
// kernel ends.
func (k *liveKernel) put(process *kernelProcess, a *ask) {
	k.mu.Lock()
	err := k.attentive()
	if err == nil {
		err = context.Cause(a.ctx)
	}
	if err != nil {
		k.mu.Unlock()
		a.answer <- answered{err: err}
		return
	}
	limit := process.patience(a.kind)
	ctx, cancel := k.s.cfg.Uptime.WithTimeout(k.s.life, limit, errAskSlow)
	defer cancel()
	k.abort = cancel
	k.mu.Unlock()
	process.asked.Store(true)
	got := make(chan answered, 1)
	k.s.background.Go(func() {
		res, err := a.put(ctx, process.engine)
		process.asked.Store(false)
		got <- answered{res, err}
	})
	var r answered
	select {
	case r = <-got:
	case <-ctx.Done():
		r.err = context.Cause(ctx)
		select {
		case <-got:
		case <-time.After(askGrace): // it is still being written
		}
	}
	k.mu.Lock()
	k.abort = nil
	k.mu.Unlock()
	var classified *errs.Error
	switch {
	case r.err == nil:
		process.answers[a.kind] = true
	case errors.As(r.err, &classified):
	case ctx.Err() == nil:
		r.err = errs.E(errs.Unavailable, "%s", r.err)
	case errors.Is(context.Cause(ctx), errAskSlow):
		r.err = errs.E(errs.Timeout, "the kernel %q did not answer within %s", k.name, limit)
		if !process.asks {
			// It goes on looking otherwise, and the next cell waits for that.
			process.signal(process.tree.PID())
		}
	default:
		r.err = errs.E(errs.WrongState, "the kernel %q was ended or restarted", k.name)
	}
	a.answer <- r
}

var errAskSlow = errors.New("the kernel took too long to answer")

// Ask puts a question about code that is not run to a kernel, and returns its
// answer: WrongState when the kernel is at work or has no process.
func (s *Set) Ask(ctx context.Context, m *guestv1.AskKernelRequest) (*guestv1.AskKernelResponse, error) {
	k, err := s.kernel(m.GetName())
	if err != nil {
		return nil, err
	}
	a := &ask{ctx: ctx, answer: make(chan answered, 1)}
	code, cursor := m.GetCode(), 0
	switch q := m.GetQuestion().(type) {
	case *guestv1.AskKernelRequest_Complete_:
		a.kind, cursor = askComplete, int(q.Complete.GetCursor())
		a.put = func(ctx context.Context, e engine) (*guestv1.AskKernelResponse, error) {
			r, err := e.Complete(ctx, code, cursor)
			return &guestv1.AskKernelResponse{Answer: &guestv1.AskKernelResponse_Completion{Completion: &guestv1.CodeCompletion{
				Matches: r.Matches.Texts, More: r.Matches.More, CursorStart: int32(r.Start), CursorEnd: int32(r.End),
			}}}, err
		}
	case *guestv1.AskKernelRequest_Inspect_:
		a.kind, cursor = askInspect, int(q.Inspect.GetCursor())
		a.put = func(ctx context.Context, e engine) (*guestv1.AskKernelResponse, error) {
			r, err := e.Inspect(ctx, code, cursor, int(q.Inspect.GetDetail()))
			return &guestv1.AskKernelResponse{Answer: &guestv1.AskKernelResponse_Inspection{Inspection: &guestv1.CodeInspection{
				Found: r.Found, Data: r.Data,
			}}}, err
		}
	case *guestv1.AskKernelRequest_Check_:
		a.kind = askCheck
		a.put = func(ctx context.Context, e engine) (*guestv1.AskKernelResponse, error) {
			r, err := e.Check(ctx, code)
			return &guestv1.AskKernelResponse{Answer: &guestv1.AskKernelResponse_Completeness{Completeness: &guestv1.CodeCompleteness{
				Status: r.Status, Indent: r.Indent,
			}}}, err
		}
	default:
		return nil, errs.E(errs.Unsupported, "the sandbox's agent does not know this question")
	}
	if cursor < 0 || cursor > utf8.RuneCountInString(code) || len(code) > sandbox.MaxCode {
		return nil, errs.E(errs.Invalid, "the cursor is outside of the code")
	}
	return k.ask(ctx, a)
}
