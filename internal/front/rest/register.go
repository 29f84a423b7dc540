package rest

import (
	"context"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/cubbyhq/cubby/internal/front/rest/problem"
)

// tags group the operations of the document.
var tags = []*huma.Tag{
	{Name: "sandboxes", Description: "Computers and their lives."},
	{Name: "execs", Description: "Commands, their output and their ends."},
	{Name: "sessions", Description: "Shells that keep directory, variables and functions from one command to the next."},
	{Name: "terminals", Description: "Programs with a PTY and a name, which viewers come to and leave."},
	{Name: "history", Description: "What happened in a sandbox, and to it."},
	{Name: "files", Description: "What is on a sandbox's disk."},
	{Name: "archives", Description: "Files of destroyed sandboxes, in the storage that the operator set up."},
	{Name: "code", Description: "Kernels, which keep their state, and the cells that run in them."},
	{Name: "ports", Description: "What listens in a sandbox, and who may see it."},
	{Name: "services", Description: "Commands that run for as long as their sandbox does."},
	{Name: "tasks", Description: "What coding agents are asked to do in a sandbox."},
	{Name: "packages", Description: "What runtimes install."},
	{Name: "git", Description: "Operations on repositories in a sandbox."},
	{Name: "host", Description: "The daemon itself."},
	{Name: "threads", Description: "Conversations: sandboxes that share bounds, exports and uploads."},
	{Name: "snapshots", Description: "Sandboxes kept as they were, to begin others from or to go back to."},
	{Name: "tenants", Description: "Whose sandboxes share files, and their uploads."},
	{Name: "secrets", Description: "What the operator sets for the tasks of tenants, such as keys of model providers."},
}

func apiConfig(document *huma.OpenAPI) huma.Config {
	return huma.Config{
		OpenAPI:                      document,
		Formats:                      map[string]huma.Format{"application/json": huma.DefaultJSONFormat, "json": huma.DefaultJSONFormat},
		DefaultFormat:                "application/json",
		RejectUnknownQueryParameters: true,
		Transformers:                 []huma.Transformer{problem.Transform},
	}
}

func (d *door) fail(ctx context.Context, err error) error {
	d.LogInternal(ctx, err)
	return problem.Of(ctx, err)
}

// operation describes one endpoint.
type operation struct {
	id, method, path, tag, summary, description string
	status                                      int   // of success; 0: 200
	body                                        int64 // least limit of the request body, in bytes
	anyone                                      bool
	hidden                                      bool
	responses                                   map[string]*huma.Response
}

// register adds an endpoint whose input huma decodes. Errors that h returns
// leave in the canonical envelope.
func register[I, O any](d *door, op operation, h func(context.Context, *I) (*O, error)) {
	o := huma.Operation{
		OperationID: op.id, Method: op.method, Path: op.path, Tags: []string{op.tag}, Summary: op.summary, Description: op.description,
		DefaultStatus: op.status, Hidden: op.hidden,
		MaxBodyBytes:    max(d.BodyLimit, op.body) + 1, // huma refuses what reaches it
		BodyReadTimeout: -1,                            // front bounds stalls
		Responses:       op.responses,
	}
	if o.Responses == nil {
		o.Responses = map[string]*huma.Response{}
	}
	o.Responses["default"] = d.ErrorResponse()
	if op.anyone {
		o.Security = []map[string][]string{}
	}
	if o.DefaultStatus == 0 {
		o.DefaultStatus = http.StatusOK
	}
	if status := strconv.Itoa(o.DefaultStatus); o.Responses[status] == nil {
		o.Responses[status] = &huma.Response{Description: http.StatusText(o.DefaultStatus)}
	}
	huma.Register(d.api, o, func(ctx context.Context, in *I) (*O, error) {
		out, err := h(ctx, in)
		if err != nil {
			return nil, d.fail(ctx, err)
		}
		return out, nil
	})
}

// exchange gives a handler the raw request and response, for bodies that are
// streamed.
type exchange struct {
	r *http.Request
	w http.ResponseWriter
}

// Resolve is called by huma before the handler.
func (e *exchange) Resolve(ctx huma.Context) []error {
	e.r, e.w = humago.Unwrap(ctx)
	return nil
}

// head reports a HEAD request: the mux brings them to the handlers of GET, and
// producing a body that nobody gets could take for ever.
func (e *exchange) head() bool { return e.r.Method == http.MethodHead }

// nothing is the answer to HEAD.
func nothing(contentType string) func(huma.Context) {
	return func(ctx huma.Context) {
		ctx.SetHeader("Content-Type", contentType)
		ctx.SetStatus(http.StatusOK)
	}
}

// streamed is the output of a handler that writes its response itself.
type streamed struct {
	Body func(huma.Context)
}

// stream returns an output that runs h after all errors that can be told in
// the envelope are behind it.
func stream(h func()) *streamed { return &streamed{Body: func(huma.Context) { h() }} }
