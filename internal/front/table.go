// Package front holds what all doors share: the error table, authentication,
// request ids, limits and panic recovery. It decodes nothing and knows no
// resource of the API; each door does that for itself.
package front

import (
	"net/http"

	"github.com/cubbyhq/cubby/internal/errs"
)

// Row is how one kind of error leaves through the doors.
type Row struct {
	Code      string // the wire code in the REST error envelope
	HTTP      int
	Retryable bool // the same request may succeed later
}

// StatusClientClosedRequest is the de-facto status for a caller that went
// away; only logs ever see it.
const StatusClientClosedRequest = 499

// Table maps every kind of errs; a test proves that it is total.
var Table = map[errs.Kind]Row{
	errs.Invalid:         {"invalid_request", http.StatusBadRequest, false},
	errs.Unauthenticated: {"unauthorized", http.StatusUnauthorized, false},
	errs.Forbidden:       {"forbidden", http.StatusForbidden, false},
	errs.NotFound:        {"not_found", http.StatusNotFound, false},
	errs.Conflict:        {"conflict", http.StatusConflict, false},
	errs.WrongState:      {"wrong_state", http.StatusConflict, false},
	errs.SharedFiles:     {"shared_files", http.StatusConflict, false},
	errs.InUse:           {"in_use", http.StatusConflict, false},
	errs.TaskInProgress:  {"task_in_progress", http.StatusConflict, false},
	errs.TooLarge:        {"too_large", http.StatusRequestEntityTooLarge, false},
	errs.Exhausted:       {"sandbox_capacity", http.StatusServiceUnavailable, true},
	errs.LowMemory:       {"low_memory", http.StatusServiceUnavailable, true},
	errs.OverQuota:       {"quota_exceeded", http.StatusTooManyRequests, true},
	errs.Unavailable:     {"sandbox_unavailable", http.StatusBadGateway, true},
	errs.Unready:         {"unavailable", http.StatusServiceUnavailable, true},
	errs.Timeout:         {"timeout", http.StatusGatewayTimeout, true},
	errs.Canceled:        {"canceled", StatusClientClosedRequest, true},
	errs.Unsupported:     {"unsupported", http.StatusConflict, false},
	errs.Internal:        {"internal", http.StatusInternalServerError, false},
}

// RowOf returns the row of a kind; an unknown kind is internal.
func RowOf(k errs.Kind) Row {
	if r, ok := Table[k]; ok {
		return r
	}
	return Table[errs.Internal]
}
