package front

import (
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
)

const (
	// stallTimeout ends a request whose client neither sends nor takes bytes.
	// It bounds each read and write, never a whole transfer or a wait.
	stallTimeout = 60 * time.Second
	// A body may take stallTimeout, and one second more for every minBodyRate
	// bytes that came: a client that sends a byte a minute is not stalled and
	// would hold its connection for ever. Only the time that is spent waiting
	// for it counts.
	minBodyRate = 1 << 10
	// leftoverTimeout is how long the server waits for the rest of a body that
	// no handler read, such as that of a request without a token.
	leftoverTimeout = time.Second
	// deadlineSlack saves most of the deadline changes of a fast transfer.
	deadlineSlack = time.Second
)

// response notes what was answered and keeps a client that takes no bytes from
// holding its handler.
type response struct {
	http.ResponseWriter
	control  *http.ResponseController
	status   int
	bytes    int64
	hijacked bool
	deadline time.Time
	// timed: a deadline ends the request when it passes, also while nothing is
	// written (HTTP/2); otherwise only a write that it finds.
	timed bool
}

func newResponse(w http.ResponseWriter, r *http.Request) *response {
	return &response{ResponseWriter: w, control: http.NewResponseController(w), timed: r.ProtoMajor >= 2}
}

// Unwrap lets http.ResponseController reach the connection.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *response) WriteHeader(status int) {
	if w.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		w.status = status
		w.hijacked = status == http.StatusSwitchingProtocols
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *response) Write(p []byte) (int, error) {
	w.begin()
	n, err := w.ResponseWriter.Write(p)
	w.bytes += int64(n)
	w.rest()
	return n, err
}

// Flush sends what was written so far.
func (w *response) Flush() {
	w.begin()
	_ = w.control.Flush() // what cannot flush does not stream either
	w.rest()
}

// rest lets a stream be quiet.
func (w *response) rest() {
	if w.timed {
		w.deadline = time.Time{}
		_ = w.control.SetWriteDeadline(w.deadline)
	}
}

func (w *response) begin() {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	w.extend()
}

func (w *response) extend() {
	now := time.Now()
	if w.deadline.Sub(now) > stallTimeout-deadlineSlack {
		return
	}
	w.deadline = now.Add(stallTimeout)
	_ = w.control.SetWriteDeadline(w.deadline) // not supported by test recorders
}

// body ends a read from a client that stalls or is too slow, and gives the
// connection back without a deadline: the server reads from it in the
// background while the handler works, and would take an old deadline for a
// client that left.
type body struct {
	io.ReadCloser
	control  *http.ResponseController
	deadline time.Time
	taken    int64
	waited   time.Duration
	ended    bool
}

func (b *body) Read(p []byte) (int, error) {
	now := time.Now()
	patience := stallTimeout + time.Duration(b.taken/minBodyRate)*time.Second - b.waited
	if patience <= 0 {
		return 0, errSlowBody
	}
	patience = min(patience, stallTimeout)
	if left := b.deadline.Sub(now); left < patience-deadlineSlack || left > patience {
		b.deadline = now.Add(patience)
		_ = b.control.SetReadDeadline(b.deadline)
	}
	n, err := b.ReadCloser.Read(p)
	b.taken += int64(n)
	b.waited += time.Since(now)
	if errors.Is(err, io.EOF) {
		b.ended = true
		_ = b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

var errSlowBody = errs.E(errs.Timeout, "the request body came too slowly").
	Hint("a body may take a minute, and one second more for each KiB of it")

// abandon bounds the wait for what was not read.
func (b *body) abandon() {
	if !b.ended {
		_ = b.control.SetReadDeadline(time.Now().Add(leftoverTimeout))
	}
}
