package rest

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cubbyhq/cubby/internal/core/cell"
	"github.com/cubbyhq/cubby/internal/front"
	"github.com/cubbyhq/cubby/internal/front/httpapi"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// codeBody is what the longest code takes as JSON, unless most of it has to be
// escaped.
const codeBody = 2 * sandbox.MaxCode

func (d *door) codeRoutes() {
	answers := orEvents(httpapi.Media("application/json", d.Schema(Execution{}, "Execution")))
	register(d, operation{
		id: "run-code", method: http.MethodPost, path: "/v1/sandboxes/{id}/code", tag: "code", body: codeBody, summary: "Run a cell of code in a kernel",
		description: "Cells of one kernel run one after another in one state. Answers 200 when the cell has ended, 202 when it goes on (wait is false, or its time is over), " +
			"or with Server-Sent Events as GET …/execs/{seq}/stream does, with the cell as data of the last one. An exception is no error of the request: see success and error. The cell does not depend on the connection.",
		responses: map[string]*huma.Response{
			"200": {Description: "The cell has ended, or a stream of its output", Content: answers},
			"202": {Description: "The cell goes on", Content: httpapi.Media("application/json", d.Schema(Execution{}, "Execution"))},
		},
	}, d.runCode)
	register(d, operation{
		id: "get-code", method: http.MethodGet, path: "/v1/sandboxes/{id}/code/{seq}", tag: "code",
		summary: "Get a cell with what came of it so far", description: "With wait_seconds it waits for the end first.",
	}, d.getCode)
}

type codeRequest struct {
	exchange
	IDInput
	Body CodeInput
}

func (d *door) runCode(ctx context.Context, in *codeRequest) (*streamed, error) {
	r, err := in.Body.request()
	if err != nil {
		return nil, err
	}
	var e cell.Execution
	return d.launch(ctx, in.exchange, in.ID, launch{
		stream: in.Body.Stream, wait: in.Body.Wait, seconds: in.Body.WaitSeconds, below: "code", ended: d.endedCode,
		start: func() (x sandbox.Exec, err error) {
			e.Exec, err = d.Core.Code().Start(ctx, in.ID, r)
			return e.Exec, err
		},
		run: func(ctx context.Context, wait time.Duration) (x sandbox.Exec, err error) {
			e, err = d.Core.Code().Run(ctx, in.ID, r, wait)
			return e.Exec, err
		},
		answer: func(status int) { front.WriteJSON(in.w, status, executionJSON(e, time.Now())) },
	})
}

// endedCode is the cell as ended is the exec, with its output where that can
// still be read.
func (d *door) endedCode(ctx context.Context, id string, seq int64, exit sandbox.Exit) any {
	x := d.finished(ctx, id, seq, exit)
	e, err := d.Core.Code().Execution(ctx, id, seq)
	if err != nil || !e.Exec.Status.Finished() {
		e = cell.Execution{Exec: x}
	}
	return executionJSON(e, time.Now())
}

type getCodeInput struct {
	SeqInput
	WaitSeconds float64 `query:"wait_seconds" minimum:"0" maximum:"600" doc:"Wait for the end that long."`
}

func (d *door) getCode(ctx context.Context, in *getCodeInput) (*struct{ Body Execution }, error) {
	if err := d.await(ctx, in.SeqInput, in.WaitSeconds); err != nil {
		return nil, err
	}
	e, err := d.Core.Code().Execution(ctx, in.ID, in.Seq)
	if err != nil {
		return nil, err
	}
	return &struct{ Body Execution }{executionJSON(e, time.Now())}, nil
}
