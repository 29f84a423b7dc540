package tools

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// Failure is what every tool answers when it cannot do its work.
type Failure struct {
	Success        bool             `json:"success" jsonschema:"always false"`
	Error          string           `json:"error" jsonschema:"INVALID_INPUT, CONTAINER_DIED: why, or the type of the error and what happened"`
	Details        []Detail         `json:"details,omitempty" jsonschema:"of INVALID_INPUT: everything that is wrong"`
	SessionID      string           `json:"session_id,omitempty" jsonschema:"of CONTAINER_DIED: whose"`
	ActiveSessions *[]ActiveSession `json:"active_sessions,omitempty" jsonschema:"the sessions that there are"`
	Hint           string           `json:"hint,omitempty" jsonschema:"what to do"`
	// Cause is the error, for whoever runs the tool.
	Cause error `json:"-"`
}

// ActiveSession is a session of the conversation.
type ActiveSession struct {
	SessionID string `json:"session_id"`
	Runtime   string `json:"runtime"`
	Status    string `json:"status" jsonschema:"starting, running, stopped, sleeping or dead"`
}

const (
	hintActive = "Use one of the active session_ids listed above."
	hintNone   = "No active sessions. Call create_session first."
	hintDied   = "The session is dead. Call stop_session and then create_session. Find out why it died before you go on, and never run the same code again unchanged."
	hintOOM    = "Variables are lost, files are not. Find out what took the memory before you go on (work in pieces, load less at once), and never run " +
		"the same code again unchanged. If the session does not answer, call stop_session and then create_session."
)

// FailureSchema is the schema of a [Failure].
func FailureSchema() *jsonschema.Schema { return shape[Failure]() }

// died says that what a tool ran was ended with its session, or with all the
// memory that the session may have.
type died struct {
	session, reason, hint string
}

func (e *died) Error() string { return sandbox.DiedPrefix + e.reason }

// noSession is the error of a session that the conversation does not have.
type noSession struct{ error }

func (e *noSession) Unwrap() error { return e.error }

// hints say what to do about errors that do not say it themselves.
var hints = map[errs.Kind]string{
	errs.Invalid:     "Correct the arguments and call again.",
	errs.NotFound:    "Check the name, and look at what there is first.",
	errs.TooLarge:    "Use less at once.",
	errs.Unsupported: "This cannot be done here. Use another way.",
	errs.Internal:    "This is a fault of the server, which its log explains. Tell the user.",
}

// types names kinds of errors as clients of sandbox-agent know them.
var types = map[errs.Kind]string{
	errs.Invalid: "ValueError", errs.NotFound: "ValueError", errs.TooLarge: "ValueError", errs.Unsupported: "ValueError",
	errs.Forbidden: "PermissionError", errs.Unauthenticated: "PermissionError", errs.Timeout: "TimeoutError",
}

// failure turns an error into what a model can read.
func (s *Set) failure(ctx context.Context, t Tool, c *call, err error) Failure {
	var invalid *invalidInput
	if errors.As(err, &invalid) {
		return Failure{Error: "INVALID_INPUT", Details: invalid.details, Cause: err}
	}
	// Whoever was canceled is not listening, and the list costs nothing.
	active, listErr := c.active(context.WithoutCancel(ctx))
	f := Failure{ActiveSessions: &active, Hint: hintActive, Cause: err}
	if len(active) == 0 && listErr == nil {
		f.Hint = hintNone
	}
	var dead *died
	if errors.As(err, &dead) {
		f.Error, f.SessionID, f.Hint = dead.Error(), dead.session, dead.hint
		return f
	}
	info := front.Public(err)
	var nowhere *noSession
	if !errors.As(err, &nowhere) {
		f.Hint = cmp.Or(info.Hint, hints[info.Kind])
	}
	if info.Kind == errs.Internal {
		s.log.ErrorContext(ctx, "a tool failed", telemetry.KeyRequest, front.RequestID(ctx), "tool", t.Name, telemetry.KeyErr, err)
	}
	kind, ok := types[info.Kind]
	if !ok {
		kind = "RuntimeError"
	}
	f.Error = fmt.Sprintf("%s: %s", kind, info.Message)
	return f
}
