package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Code says what a caller can do about an error. A Code is itself an error, so
// that errors.Is(err, client.NotFound) works through any wrapping.
type Code string

// The codes of the API. New ones may be added; treat an unknown code by
// [Error.Retryable].
const (
	// InvalidRequest: the request is wrong and will be wrong again.
	InvalidRequest Code = "invalid_request"
	// Unauthorized: no token, or one that the daemon does not know.
	Unauthorized Code = "unauthorized"
	// Forbidden: the token may not do this.
	Forbidden Code = "forbidden"
	// NotFound: it does not exist, or not for this token.
	NotFound Code = "not_found"
	// Conflict: it exists already, or belongs to somebody else.
	Conflict Code = "conflict"
	// WrongState: the sandbox or exec is in a state that forbids the act.
	WrongState Code = "wrong_state"
	// SharedFiles: the sandbox's files are also others', so the act cannot be
	// done to it alone.
	SharedFiles Code = "shared_files"
	// InUse: something runs that the act would break; say that it may.
	InUse Code = "in_use"
	// TaskInProgress: a coding agent works where the act would.
	TaskInProgress Code = "task_in_progress"
	// TooLarge: the request or its result is over a documented size.
	TooLarge Code = "too_large"
	// Capacity: the host has no room now; see [Error.RetryAfter].
	Capacity Code = "sandbox_capacity"
	// LowMemory: the host's memory is at its reserve; see [Error.RetryAfter].
	LowMemory Code = "low_memory"
	// QuotaExceeded: the tenant, the thread or the sandbox has all that a bound
	// gives it; see [Error.RetryAfter].
	QuotaExceeded Code = "quota_exceeded"
	// Unavailable: the sandbox does not answer; try again.
	Unavailable Code = "sandbox_unavailable"
	// Unready: the daemon itself cannot work now, as without its database; try
	// again.
	Unready Code = "unavailable"
	// Timeout: the daemon, or the context's deadline, ended the request.
	Timeout Code = "timeout"
	// Canceled: the context was canceled.
	Canceled Code = "canceled"
	// Unsupported: this host or image cannot do it.
	Unsupported Code = "unsupported"
	// Internal: a fault of the daemon.
	Internal Code = "internal"

	// Unreachable: no daemon answers. It never comes from a daemon.
	Unreachable Code = "unreachable"
)

// Codes lists every code that this version knows.
func Codes() []Code {
	return []Code{
		InvalidRequest, Unauthorized, Forbidden, NotFound, Conflict, WrongState, SharedFiles, InUse, TaskInProgress, TooLarge,
		Capacity, LowMemory, QuotaExceeded, Unavailable, Unready, Timeout, Canceled, Unsupported, Internal, Unreachable,
	}
}

// Error makes a Code usable as the target of errors.Is.
func (c Code) Error() string { return strings.ReplaceAll(string(c), "_", " ") }

// Error is what every failing call of this package returns.
type Error struct {
	Code    Code
	Message string // for people, lower case
	Hint    string // how to get further; may be empty
	// RequestID names the request in the daemon's log.
	RequestID string
	// Retryable: the same request may succeed later.
	Retryable bool
	// RetryAfter is when, where the daemon said so.
	RetryAfter time.Duration
	// Status is the HTTP status; 0 when there was no answer.
	Status int

	cause error
}

// Error gives the message alone, so that it can be wrapped.
func (e *Error) Error() string { return e.Message }

// Unwrap returns the underlying error of the transport, if there is one:
// context.Canceled, syscall.ECONNREFUSED, …
func (e *Error) Unwrap() error { return e.cause }

// Is reports whether target is e's code.
func (e *Error) Is(target error) bool {
	code, ok := target.(Code)
	return ok && code == e.Code
}

// maxErrorBody bounds what is read of an answer that reports an error.
const maxErrorBody = 64 << 10

// errorOf reads the error envelope of an answer. Answers without one (of a
// proxy in between, or of something that is not cubby) become an error by
// their status.
func errorOf(res *http.Response) error {
	body, _ := io.ReadAll(io.LimitReader(res.Body, maxErrorBody))
	e, ok := decodeEnvelope(body)
	if !ok {
		e, ok = decodeFlat(body, res.StatusCode)
	}
	e.Status, e.RetryAfter = res.StatusCode, retryAfter(res.Header)
	if ok {
		return e
	}
	e.Code = codeOf(res.StatusCode)
	e.Retryable = res.StatusCode == http.StatusServiceUnavailable || res.StatusCode == http.StatusBadGateway || res.StatusCode == http.StatusGatewayTimeout
	e.Message = fmt.Sprintf("the server answered %s", res.Status)
	e.Hint = "this answer does not look like cubby's: check CUBBY_URL"
	return e
}

// decodeEnvelope reads {"error":{…}}.
func decodeEnvelope(body []byte) (*Error, bool) {
	var w struct {
		Error struct {
			Code      Code   `json:"code"`
			Message   string `json:"message"`
			Hint      string `json:"hint"`
			Retryable bool   `json:"retryable"`
			RequestID string `json:"request_id"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &w) != nil || w.Error.Code == "" {
		return nil, false
	}
	return &Error{
		Code: w.Error.Code, Message: w.Error.Message, Hint: w.Error.Hint,
		Retryable: w.Error.Retryable, RequestID: w.Error.RequestID,
	}, true
}

// decodeFlat reads {"error":"not_found","message":…}, which is how the agent's API
// answers. Without a message there is an empty error.
func decodeFlat(body []byte, status int) (*Error, bool) {
	var w struct {
		Code    Code   `json:"error"`
		Message string `json:"message"`
		Detail  string `json:"detail"` // the message again, with the hint
	}
	if json.Unmarshal(body, &w) != nil || w.Message == "" {
		return &Error{}, false
	}
	if !slices.Contains(Codes(), w.Code) {
		w.Code = codeOf(status)
	}
	hint, _ := strings.CutPrefix(w.Detail, w.Message+": ")
	if hint == w.Message {
		hint = ""
	}
	return &Error{Code: w.Code, Message: w.Message, Hint: hint, Retryable: status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests}, true
}

func codeOf(status int) Code {
	switch status {
	case http.StatusUnauthorized:
		return Unauthorized
	case http.StatusForbidden:
		return Forbidden
	case http.StatusNotFound:
		return NotFound
	case http.StatusConflict:
		return Conflict
	case http.StatusRequestEntityTooLarge:
		return TooLarge
	case http.StatusServiceUnavailable, http.StatusBadGateway:
		return Unavailable
	case http.StatusGatewayTimeout:
		return Timeout
	}
	if status < 500 {
		return InvalidRequest
	}
	return Internal
}

// retryAfter reads the header's form in seconds, the only one cubby sends.
func retryAfter(h http.Header) time.Duration {
	s, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil || s < 0 {
		return 0
	}
	return time.Duration(s) * time.Second
}

// transportError classifies what net/http returned instead of an answer.
func (c *Client) transportError(ctx context.Context, err error) error {
	var e *Error
	if errors.As(err, &e) {
		return err
	}
	switch {
	case errors.Is(err, context.Canceled) || errors.Is(ctx.Err(), context.Canceled):
		return &Error{Code: Canceled, Message: "canceled", cause: context.Canceled}
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(ctx.Err(), context.DeadlineExceeded):
		return &Error{Code: Timeout, Message: "no answer in time", Retryable: true, cause: context.DeadlineExceeded}
	case errors.Is(err, syscall.ECONNREFUSED):
		return &Error{
			Code: Unreachable, Message: "no daemon answers at " + c.URL(),
			Hint: "start one with `cubby serve`, or set CUBBY_URL", Retryable: true, cause: err,
		}
	}
	var dns *net.DNSError
	if errors.As(err, &dns) {
		return &Error{
			Code: Unreachable, Message: fmt.Sprintf("no host %q", dns.Name),
			Hint: "check CUBBY_URL", Retryable: dns.IsTemporary, cause: err,
		}
	}
	hint := ""
	if c.base != nil && c.base.Scheme == "https" && strings.Contains(err.Error(), "certificate") {
		hint = "the daemon's certificate is not trusted here: add its authority to the system, or set SSL_CERT_FILE"
	} else if strings.Contains(err.Error(), "server gave HTTP response to HTTPS client") {
		hint = "the daemon serves without TLS: use http://"
	} else if strings.Contains(err.Error(), "malformed HTTP response") {
		hint = "the daemon may serve over TLS: use https://"
	}
	return &Error{
		Code: Unreachable, Message: fmt.Sprintf("talking to %s: %s", c.URL(), plain(err)),
		Hint: hint, Retryable: true, cause: err,
	}
}

// plain strips the "Get http://…:" that net/http puts before its errors.
func plain(err error) string {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err.Error()
	}
	return err.Error()
}
