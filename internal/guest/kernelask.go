package guest

import (
	"context"
	"time"

	"connectrpc.com/connect"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/kernel"
)

// askLimit is how long an agent may take for a question. The real one ends it
// itself after 5 seconds, or 20 until its kernel has answered one of the kind, and
// 16 may wait.
const askLimit = 6 * time.Minute

// CompleteCode asks an idle kernel how code can go on at the cursor, which is
// counted in Unicode code points. This and the other questions are WrongState
// when the kernel is at work or has no process, Timeout when it does not answer.
func (c *Client) CompleteCode(ctx context.Context, name, code string, cursor int) (kernel.Completion, error) {
	res, err := c.askKernel(ctx, &guestv1.AskKernelRequest{Name: name, Code: code, Question: &guestv1.AskKernelRequest_Complete_{
		Complete: &guestv1.AskKernelRequest_Complete{Cursor: int32(cursor)},
	}})
	if err != nil {
		return kernel.Completion{}, err
	}
	m := res.GetCompletion()
	r := kernel.Completion{Start: int(m.GetCursorStart()), End: int(m.GetCursorEnd())}
	if !r.Valid(code) {
		return kernel.Completion{}, errNonsense
	}
	for _, match := range m.GetMatches() {
		r.Matches.Add(match)
	}
	r.Matches.More = r.Matches.More || m.GetMore()
	return r, nil
}

// InspectCode asks what an idle kernel knows about the name at the cursor; with
// detail 1 instead of 0 that is more, as the source.
func (c *Client) InspectCode(ctx context.Context, name, code string, cursor, detail int) (kernel.Inspection, error) {
	res, err := c.askKernel(ctx, &guestv1.AskKernelRequest{Name: name, Code: code, Question: &guestv1.AskKernelRequest_Inspect_{
		Inspect: &guestv1.AskKernelRequest_Inspect{Cursor: int32(cursor), Detail: int32(detail)},
	}})
	if err != nil {
		return kernel.Inspection{}, err
	}
	m := res.GetInspection()
	r := kernel.Inspection{Found: m.GetFound(), Data: kernel.Texts{}}
	r.Data.AddAll(m.GetData())
	return r, nil
}

// CheckCode asks an idle kernel whether code can be run as it stands.
func (c *Client) CheckCode(ctx context.Context, name, code string) (kernel.Completeness, error) {
	res, err := c.askKernel(ctx, &guestv1.AskKernelRequest{Name: name, Code: code, Question: &guestv1.AskKernelRequest_Check_{
		Check: &guestv1.AskKernelRequest_Check{},
	}})
	m := res.GetCompleteness()
	return kernel.Completeness{Status: m.GetStatus(), Indent: m.GetIndent()}.Bounded(), err
}

var errNonsense = errs.E(errs.Unavailable, "the sandbox's agent sent nonsense about code")

func (c *Client) askKernel(ctx context.Context, m *guestv1.AskKernelRequest) (*guestv1.AskKernelResponse, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, askLimit, errs.E(errs.Timeout, "the sandbox's agent did not answer within %s", askLimit))
	defer cancel()
	res, err := c.rpc.AskKernel(ctx, connect.NewRequest(m))
	if err == nil {
		return res.Msg, nil
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return nil, fromWire(ctx, err)
}
