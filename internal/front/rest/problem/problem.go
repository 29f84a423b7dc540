// Package problem brings errors into the API's envelope on their way through huma: those
// of handlers, and what huma itself refuses. It takes every body for JSON, whatever the
// request says about it.
package problem

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front"
)

// jsonContext wraps huma's context: every body is JSON, whatever curl says about it,
// and what huma itself refuses leaves in our envelope.
type jsonContext struct {
	inner
	override int
}

// inner is embedded under another name than that of its method Context.
type inner huma.Context

func (c *jsonContext) Unwrap() huma.Context { return c.inner }

func (c *jsonContext) Header(name string) string {
	if strings.EqualFold(name, "Content-Type") {
		return "application/json"
	}
	return c.inner.Header(name)
}

func (c *jsonContext) SetStatus(code int) {
	if c.override != 0 {
		code = c.override
	}
	c.inner.SetStatus(code)
}

// Strict is a middleware that takes every body for JSON.
func Strict(ctx huma.Context, next func(huma.Context)) { next(&jsonContext{inner: ctx}) }

// Transform turns huma's own errors into the envelope. Handlers return what [Of]
// makes, which is in it already.
func Transform(ctx huma.Context, _ string, v any) (any, error) {
	m, ok := v.(*huma.ErrorModel)
	if !ok {
		return v, nil
	}
	var err error
	switch {
	case m.Status == http.StatusRequestEntityTooLarge:
		err = errs.E(errs.TooLarge, "the request body is too large")
	case m.Status >= http.StatusInternalServerError && len(m.Errors) == 0:
		err = errs.E(errs.Internal, "internal error")
	default:
		err = errs.E(errs.Invalid, "%s", validationMessage(m))
	}
	status, problem := front.ProblemOf(ctx.Context(), err)
	ctx.SetHeader("Content-Type", "application/json")
	if c, ok := ctx.(*jsonContext); ok {
		c.override = status
	}
	return problem, nil
}

// validationMessage names what is wrong without repeating values: they may be
// secrets.
func validationMessage(m *huma.ErrorModel) string {
	const most = 5
	var parts []string
	for i, e := range m.Errors {
		if i == most {
			parts = append(parts, "and "+strconv.Itoa(len(m.Errors)-most)+" more")
			break
		}
		where := strings.TrimPrefix(e.Location, "body.")
		switch {
		case strings.HasPrefix(e.Message, "unexpected property"):
			parts = append(parts, "unknown field "+strconv.Quote(where))
		case strings.HasPrefix(e.Message, "unknown query parameter"):
			parts = append(parts, "unknown query parameter "+strconv.Quote(strings.TrimPrefix(where, "query.")))
		case where == "" || where == "body" && strings.HasPrefix(e.Message, "expected"):
			parts = append(parts, "the request body: "+e.Message)
		case where == "body":
			parts = append(parts, "the request body is not valid JSON: "+e.Message)
		default:
			parts = append(parts, where+": "+e.Message)
		}
	}
	if len(parts) == 0 {
		return m.Detail
	}
	return strings.Join(parts, "; ")
}

// failure carries a handler's error through huma.
type failure struct {
	front.Problem
	status int
	header http.Header
}

func (f *failure) Error() string           { return f.Problem.Error.Message }
func (f *failure) GetStatus() int          { return f.status }
func (f *failure) GetHeaders() http.Header { return f.header }

// MarshalJSON writes the envelope alone.
func (f *failure) MarshalJSON() ([]byte, error) { return front.PlainJSON(f.Problem) }

// Of is an error as huma answers with it.
func Of(ctx context.Context, err error) error {
	f := &failure{header: http.Header{}}
	f.status, f.Problem = front.ProblemOf(ctx, err)
	front.SetErrorHeaders(f.header, err)
	return f
}
