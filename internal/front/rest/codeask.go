package rest

import (
	"context"
	"net/http"

	"github.com/cubbyhq/cubby/internal/core/cell"
	"github.com/cubbyhq/cubby/internal/kernel"
)

// CodePosition is a place in code that is not run.
type CodePosition struct {
	Code   string `json:"code" doc:"At most 4 MiB."`
	Cursor *int   `json:"cursor_pos,omitempty" minimum:"0" doc:"In Unicode code points. Default: the end of the code."`
}

func (p CodePosition) position() cell.Position {
	return cell.Position{Code: p.Code, Cursor: p.Cursor}
}

// InspectInput asks what a name is.
type InspectInput struct {
	CodePosition
	Detail int `json:"detail_level,omitempty" minimum:"0" maximum:"1" doc:"1: more, as the source."`
}

// CheckInput asks whether code is whole.
type CheckInput struct {
	Code string `json:"code" doc:"At most 4 MiB."`
}

// CodeCompletion is how code can go on.
type CodeCompletion struct {
	Matches     []string `json:"matches" nullable:"false" doc:"What may stand from cursor_start to cursor_end; at most 1000."`
	CursorStart int      `json:"cursor_start" doc:"In Unicode code points."`
	CursorEnd   int      `json:"cursor_end" doc:"In Unicode code points."`
	Truncated   bool     `json:"truncated" doc:"There are more matches."`
}

// CodeInspection is what a kernel knows about a name.
type CodeInspection struct {
	Found bool              `json:"found"`
	Data  map[string]string `json:"data" nullable:"false" doc:"Texts by MIME type, text/plain without colours; at most 256 KiB together."`
}

// CodeCompleteness is whether code can be run as it stands.
type CodeCompleteness struct {
	Status string `json:"status" enum:"complete,incomplete,invalid,unknown" doc:"incomplete: more lines belong to it. invalid: no line can mend it. unknown: the kernel cannot say."`
	Indent string `json:"indent" doc:"What the next line of incomplete code begins with."`
}

func (d *door) codeAskRoutes() {
	const (
		path = "/v1/sandboxes/{id}/kernels/{kernel}/"
		idle = " 409 while it runs a cell, is starting or has ended; 504 when it does not answer in time. Nothing is run, and no history has it."
	)
	register(d, operation{
		id: "complete-code", method: http.MethodPost, path: path + "complete", tag: "code", body: codeBody, summary: "Ask a kernel how code can go on",
		description: "What Jupyter's complete_request says." + idle,
	}, func(ctx context.Context, in *struct {
		KernelNameInput
		Body CodePosition
	}) (*struct{ Body CodeCompletion }, error) {
		r, err := d.Core.Kernels().Complete(ctx, in.ID, in.Kernel, in.Body.position())
		if err != nil {
			return nil, err
		}
		return &struct{ Body CodeCompletion }{completionJSON(r)}, nil
	})
	register(d, operation{
		id: "inspect-code", method: http.MethodPost, path: path + "inspect", tag: "code", body: codeBody, summary: "Ask a kernel what a name is",
		description: "What Jupyter's inspect_request says: documentation, the type, the source." + idle,
	}, func(ctx context.Context, in *struct {
		KernelNameInput
		Body InspectInput
	}) (*struct{ Body CodeInspection }, error) {
		r, err := d.Core.Kernels().Inspect(ctx, in.ID, in.Kernel, in.Body.position(), in.Body.Detail)
		if err != nil {
			return nil, err
		}
		return &struct{ Body CodeInspection }{CodeInspection{Found: r.Found, Data: r.Data}}, nil
	})
	register(d, operation{
		id: "check-code", method: http.MethodPost, path: path + "is-complete", tag: "code", body: codeBody, summary: "Ask a kernel whether code is whole",
		description: "What Jupyter's is_complete_request says, for prompts: run it, or read another line." + idle,
	}, func(ctx context.Context, in *struct {
		KernelNameInput
		Body CheckInput
	}) (*struct{ Body CodeCompleteness }, error) {
		r, err := d.Core.Kernels().Check(ctx, in.ID, in.Kernel, in.Body.Code)
		if err != nil {
			return nil, err
		}
		return &struct{ Body CodeCompleteness }{CodeCompleteness(r)}, nil
	})
}

func completionJSON(r kernel.Completion) CodeCompletion {
	out := CodeCompletion{Matches: r.Matches.Texts, CursorStart: r.Start, CursorEnd: r.End, Truncated: r.Matches.More}
	if out.Matches == nil {
		out.Matches = []string{}
	}
	return out
}
