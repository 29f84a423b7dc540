package guest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"connectrpc.com/connect"

	"github.com/cubbyhq/cubby/internal/errs"
)

// Texts of a guest are cut to this: root inside can answer anything.
const maxErrorText = 2048

const (
	headerErrorKind = "Cubby-Error-Kind"
	headerErrorHint = "Cubby-Error-Hint"
)

// fromWire rebuilds the classified error that the agent sent. What the agent
// does not know is Unsupported, failures of the transport are Unavailable, those
// of ctx stay what they are.
func fromWire(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var ce *connect.Error
	if errors.As(err, &ce) {
		if kind := ce.Meta().Get(headerErrorKind); kind != "" {
			return wireError(kind, ce.Message(), ce.Meta().Get(headerErrorHint))
		}
		// An agent lives as long as its sandbox runs, and may be older than the
		// host's program.
		if ce.Code() == connect.CodeUnimplemented {
			return errs.E(errs.Unsupported, "the sandbox's agent does not know this call").
				Hint("the sandbox was started by an older version: stop and start it").Because(err)
		}
	}
	// Without the request's URL, which has the names of files.
	if of, ok := errors.AsType[*url.Error](err); ok {
		err = of.Err
	}
	var classified *errs.Error
	if errors.As(err, &classified) {
		return err
	}
	return errs.E(errs.Unavailable, "the sandbox's agent does not answer").Because(err)
}

func wireError(kind, message, hint string) error {
	k := errs.Kind(kind)
	if !slices.Contains(errs.Kinds(), k) {
		k = errs.Internal
	}
	e := errs.E(k, "%s", clean(message))
	if hint != "" {
		e = e.Hint("%s", clean(hint))
	}
	return e
}

// httpError reads the error of a raw request; the caller closes the body.
func httpError(res *http.Response) error {
	var e struct{ Kind, Message, Hint string }
	if err := json.NewDecoder(io.LimitReader(res.Body, 4*maxErrorText)).Decode(&e); err != nil || e.Kind == "" {
		return errs.E(errs.Internal, "the sandbox's agent answered %d", res.StatusCode)
	}
	return wireError(e.Kind, e.Message, e.Hint)
}

func clean(s string) string {
	if len(s) > maxErrorText {
		s = s[:maxErrorText]
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
