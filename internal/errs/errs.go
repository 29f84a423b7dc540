// Package errs holds cubby's one error type. An error is classified once, at
// the place where its meaning is known, by giving it a [Kind]; every layer
// above only wraps it with the operation (fmt.Errorf("start %s: %w", id, err)).
// The doors turn kinds into HTTP, gRPC and MCP codes in one table
// (internal/front).
//
// An error of this package carries two texts: a message and a hint that are
// safe to show to any client, and a private cause for the log. Errors of other
// packages are never shown: [Public] reports them as [Internal] with a fixed
// message. The package does not log, does not format stacks and knows no
// transport.
package errs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Kind says what a client can do about an error. A Kind is itself an error so
// that errors.Is(err, errs.NotFound) works through any wrapping.
type Kind string

const (
	// Invalid: the request is wrong and will be wrong again.
	Invalid Kind = "invalid"
	// Unauthenticated: no credentials, or credentials that name nobody.
	Unauthenticated Kind = "unauthenticated"
	// Forbidden: the caller is known and may not do this.
	Forbidden Kind = "forbidden"
	// NotFound: the thing does not exist, or not for this caller.
	NotFound Kind = "not_found"
	// Conflict: the thing exists already, or is owned by somebody else.
	Conflict Kind = "conflict"
	// WrongState: the sandbox or exec is in a state that forbids the act.
	WrongState Kind = "wrong_state"
	// SharedFiles: the sandbox's files are also others', so the act cannot be
	// done to it alone.
	SharedFiles Kind = "shared_files"
	// InUse: something runs that the act would break, and the caller did not say
	// that it may.
	InUse Kind = "in_use"
	// TaskInProgress: a coding agent works where the act would.
	TaskInProgress Kind = "task_in_progress"
	// TooLarge: the request or its result is over a documented size.
	TooLarge Kind = "too_large"
	// Exhausted: the host has no room for this now; try again later.
	Exhausted Kind = "exhausted"
	// LowMemory: the host's memory is at its reserve; try again later.
	LowMemory Kind = "low_memory"
	// OverQuota: the caller has all that a bound of the operator gives; give
	// something back, or try again later.
	OverQuota Kind = "over_quota"
	// Unavailable: a part that is needed does not answer; try again.
	Unavailable Kind = "unavailable"
	// Unready: cubby itself cannot work now, as without its database; try
	// again.
	Unready Kind = "unready"
	// Timeout: the time that the caller allowed is over.
	Timeout Kind = "timeout"
	// Canceled: the caller went away.
	Canceled Kind = "canceled"
	// Unsupported: this host, driver or image cannot do it.
	Unsupported Kind = "unsupported"
	// Internal: a fault of cubby itself, or a foreign error.
	Internal Kind = "internal"
)

// Kinds lists every kind, for tables that must be total.
func Kinds() []Kind {
	return []Kind{
		Invalid, Unauthenticated, Forbidden, NotFound, Conflict, WrongState,
		SharedFiles, InUse, TaskInProgress, TooLarge, Exhausted, LowMemory, OverQuota, Unavailable, Unready, Timeout, Canceled, Unsupported, Internal,
	}
}

// Error makes a Kind usable as the target of errors.Is.
func (k Kind) Error() string { return strings.ReplaceAll(string(k), "_", " ") }

// Error is a classified error. The zero value is not useful; make one with [E].
type Error struct {
	kind       Kind
	message    string
	hint       string
	retryAfter time.Duration
	cause      error
}

// E classifies. The message states the fact in lower case without "failed to"
// and is shown to clients, so it holds no host paths, secrets or foreign text.
func E(kind Kind, format string, args ...any) *Error {
	return &Error{kind: kind, message: fmt.Sprintf(format, args...)}
}

// Hint returns a copy of e that tells the user how to get further.
func (e *Error) Hint(format string, args ...any) *Error {
	c := *e
	c.hint = fmt.Sprintf(format, args...)
	return &c
}

// Because returns a copy of e with a private cause, which is logged and never
// shown.
func (e *Error) Because(cause error) *Error {
	c := *e
	c.cause = cause
	return &c
}

// RetryAfter returns a copy of e that tells the client when to try again.
func (e *Error) RetryAfter(d time.Duration) *Error {
	c := *e
	c.retryAfter = d
	return &c
}

// Error includes the private cause: it is for logs, not for clients.
func (e *Error) Error() string {
	if e.cause != nil {
		return e.message + ": " + e.cause.Error()
	}
	return e.message
}

func (e *Error) Unwrap() error { return e.cause }

// Is reports whether target is e's kind.
func (e *Error) Is(target error) bool {
	k, ok := target.(Kind)
	return ok && k == e.kind
}

// Info is what a client may see of an error.
type Info struct {
	Kind       Kind
	Message    string
	Hint       string
	RetryAfter time.Duration // 0: not given
}

// Public returns what a client may see of err: the outermost classified error
// in its chain. A nil err must not be passed. Context errors become [Canceled]
// and [Timeout]; everything else is [Internal] with a fixed message.
func Public(err error) Info {
	var e *Error
	if errors.As(err, &e) {
		return Info{Kind: e.kind, Message: e.message, Hint: e.hint, RetryAfter: e.retryAfter}
	}
	switch {
	case errors.Is(err, context.Canceled):
		return Info{Kind: Canceled, Message: "the request was canceled"}
	case errors.Is(err, context.DeadlineExceeded):
		return Info{Kind: Timeout, Message: "the request took too long"}
	}
	return Info{Kind: Internal, Message: "internal error"}
}

// KindOf returns the kind that [Public] reports.
func KindOf(err error) Kind { return Public(err).Kind }
