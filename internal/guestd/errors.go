package guestd

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"connectrpc.com/connect"

	"github.com/cubbyhq/cubby/internal/errs"
)

// Errors cross the channel with their kind, message and hint, so that the
// host's client rebuilds the same classified error. Handlers return errors of
// package errs (or let [proc.Classify] name the errno); one interceptor and one
// HTTP writer put them on the wire.
const (
	headerErrorKind = "Cubby-Error-Kind"
	headerErrorHint = "Cubby-Error-Hint"
)

// public is errs.Public, except that an unclassified error shows its text:
// inside a sandbox there is nothing to hide from its owner, and the text
// ("input/output error") is all the help there is.
func public(err error) errs.Info {
	info := errs.Public(err)
	var classified *errs.Error
	if info.Kind == errs.Internal && !errors.As(err, &classified) {
		info.Message = err.Error()
	}
	return info
}

var connectCodes = map[errs.Kind]connect.Code{
	errs.Invalid:         connect.CodeInvalidArgument,
	errs.Unauthenticated: connect.CodeUnauthenticated,
	errs.Forbidden:       connect.CodePermissionDenied,
	errs.NotFound:        connect.CodeNotFound,
	errs.Conflict:        connect.CodeAlreadyExists,
	errs.WrongState:      connect.CodeFailedPrecondition,
	errs.TooLarge:        connect.CodeOutOfRange,
	errs.Exhausted:       connect.CodeResourceExhausted,
	errs.Unavailable:     connect.CodeUnavailable,
	errs.Timeout:         connect.CodeDeadlineExceeded,
	errs.Canceled:        connect.CodeCanceled,
	errs.Unsupported:     connect.CodeUnimplemented,
	errs.Internal:        connect.CodeInternal,
}

func connectError(err error) error {
	var ce *connect.Error
	if err == nil || errors.As(err, &ce) {
		return err
	}
	info := public(err)
	ce = connect.NewError(connectCodes[info.Kind], errors.New(info.Message))
	ce.Meta().Set(headerErrorKind, string(info.Kind))
	if info.Hint != "" {
		ce.Meta().Set(headerErrorHint, info.Hint)
	}
	return ce
}

// errorInterceptor turns what handlers return into connect errors.
type errorInterceptor struct{}

func (errorInterceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		res, err := next(ctx, req)
		return res, connectError(err)
	}
}

func (errorInterceptor) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

func (errorInterceptor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		return connectError(next(ctx, conn))
	}
}

var httpStatus = map[errs.Kind]int{
	errs.Invalid:         http.StatusBadRequest,
	errs.Unauthenticated: http.StatusUnauthorized,
	errs.Forbidden:       http.StatusForbidden,
	errs.NotFound:        http.StatusNotFound,
	errs.Conflict:        http.StatusConflict,
	errs.WrongState:      http.StatusConflict,
	errs.TooLarge:        http.StatusRequestEntityTooLarge,
	errs.Exhausted:       http.StatusInsufficientStorage,
	errs.Unavailable:     http.StatusServiceUnavailable,
	errs.Timeout:         http.StatusGatewayTimeout,
	errs.Canceled:        499,
	errs.Unsupported:     http.StatusNotImplemented,
	errs.Internal:        http.StatusInternalServerError,
}

// wireError is the JSON body of a failed raw request.
type wireError struct {
	Kind    errs.Kind `json:"kind"`
	Message string    `json:"message"`
	Hint    string    `json:"hint,omitempty"`
}

// writeError answers a raw request with err.
func writeError(w http.ResponseWriter, err error) {
	info := public(err)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(httpStatus[info.Kind])
	_ = json.NewEncoder(w).Encode(wireError{Kind: info.Kind, Message: info.Message, Hint: info.Hint})
}
