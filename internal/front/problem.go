package front

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
)

// Problem is the body of every canonical error.
type Problem struct {
	Error Detail `json:"error"`
}

// Detail says what went wrong, in words that are safe to show.
type Detail struct {
	Code      string `json:"code" doc:"What to switch on." example:"not_found"`
	Message   string `json:"message" doc:"What happened, for people."`
	Hint      string `json:"hint,omitempty" doc:"How to get further."`
	Retryable bool   `json:"retryable" doc:"Whether the same request may succeed later."`
	RequestID string `json:"request_id" doc:"Names this request in the daemon's log."`
}

// ProblemOf returns the status and the body for err.
func ProblemOf(ctx context.Context, err error) (int, Problem) {
	info := Public(err)
	row := RowOf(info.Kind)
	return row.HTTP, Problem{Detail{
		Code: row.Code, Message: info.Message, Hint: info.Hint, Retryable: row.Retryable, RequestID: RequestID(ctx),
	}}
}

// SetErrorHeaders sets the headers that go with err: Retry-After where the
// error or its kind has one, and the challenge of a 401.
func SetErrorHeaders(h http.Header, err error) {
	info := errs.Public(err)
	retry := info.RetryAfter
	if retry == 0 && info.Kind == errs.Exhausted {
		retry = defaultRetryAfter
	}
	if retry > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(retry.Seconds()))))
	}
	if info.Kind == errs.Unauthenticated {
		h.Set("WWW-Authenticate", `Bearer realm="cubby"`)
	}
}

// defaultRetryAfter is told to clients when the host is full and nobody knows
// better.
const defaultRetryAfter = 30 * time.Second

// WriteProblem answers with the canonical error envelope.
func WriteProblem(w http.ResponseWriter, r *http.Request, err error) {
	status, p := ProblemOf(r.Context(), err)
	SetErrorHeaders(w.Header(), err)
	WriteJSON(w, status, p)
}

// WriteJSON answers with compact JSON on one line.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false) // it is never part of a page, and "<" is common in commands
	if err := enc.Encode(v); err != nil {
		// Every v is a struct of this program; the tests encode each of them.
		panic(err)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(body.Len()))
	w.WriteHeader(status)
	_, _ = w.Write(body.Bytes()) // the client went away: nobody is left to tell
}
