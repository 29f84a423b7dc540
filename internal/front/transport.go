package front

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/cubbyhq/cubby/internal/core/scope"
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

// response notes what was answered, keeps a client that takes no bytes from
// holding its handler, and charges large writes to the client's memory until
// they have left. A status waits for the first byte of its answer: until then
// the whole may be replaced by a refusal.
type response struct {
	http.ResponseWriter
	control  *http.ResponseController
	status   int  // of the answer, or what it will be
	sent     bool // the status
	bytes    int64
	hijacked bool
	deadline time.Time
	// timed: a deadline ends the request when it passes, also while nothing is
	// written (HTTP/2); otherwise only a write that it finds.
	timed bool

	losses  *scope.Losses // told in the header; nil: they are not
	account *account      // nil: nothing is charged
	// refused is why the answer was or is to be replaced; what the handler
	// writes is then dropped.
	refused error
	refuse  func(error) // writes the refusal
	writing bool        // the refusal
}

func newResponse(w http.ResponseWriter, r *http.Request) *response {
	return &response{ResponseWriter: w, control: http.NewResponseController(w), timed: r.ProtoMajor >= 2}
}

// Unwrap lets http.ResponseController reach the connection.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *response) WriteHeader(status int) {
	switch {
	case status == http.StatusSwitchingProtocols:
		w.tellLosses()
		w.hijacked, w.sent, w.status = true, true, status
	case status < http.StatusOK:
	case w.dropped() || w.sent:
		return
	default:
		if w.status == 0 {
			w.status = status
		}
		return
	}
	w.ResponseWriter.WriteHeader(status)
}

// Hijack gives the connection to a handler that answers on it by itself.
func (w *response) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := w.control.Hijack()
	if err == nil {
		w.hijacked, w.sent, w.status = true, true, http.StatusSwitchingProtocols
	}
	return conn, buffered, err
}

// send sends the status, if there is one to send.
func (w *response) send() {
	if w.status != 0 && !w.sent {
		w.sent = true
		w.tellLosses()
		w.ResponseWriter.WriteHeader(w.status)
	}
}

// end answers where the handler has left it to the server.
func (w *response) end() {
	if w.refused != nil {
		w.replace(w.refused)
		return
	}
	w.send()
}

// replace gives up the answer for a refusal: as its status, or where another
// status has been sent by breaking the connection.
func (w *response) replace(err error) {
	w.refused = err
	switch {
	case w.writing:
	case w.sent && w.refuse != nil:
		panic(http.ErrAbortHandler)
	case w.refuse != nil:
		for _, name := range []string{"Content-Length", "Content-Range", "Content-Disposition", "Location", "Trailer"} {
			w.Header().Del(name)
		}
		w.status, w.writing = 0, true
		w.refuse(err)
		w.send()
		w.refuse, w.writing = nil, false
	}
}

// drop makes a refusal the answer when the handler has ended.
func (w *response) drop(err error) { w.refused = err }

// dropped reports whether what the handler writes goes nowhere.
func (w *response) dropped() bool { return w.refused != nil && !w.writing }

// Refused reports whether what is written to an answer goes nowhere any more, because
// it was too large for the room that its client has: nobody needs to make the rest.
func Refused(w http.ResponseWriter) bool {
	for {
		switch inner := w.(type) {
		case *response:
			return inner.dropped()
		case interface{ Unwrap() http.ResponseWriter }:
			w = inner.Unwrap()
		default:
			return false
		}
	}
}

func (w *response) Write(p []byte) (int, error) {
	if w.dropped() {
		return len(p), nil
	}
	if n := int64(len(p)); w.account != nil && n > freeWrite && !w.writing {
		more := w.account.covers(n * writeWeight)
		if err := w.account.memory.charge(w.account.client, more); err != nil {
			// The rest is dropped: an error would make huma panic.
			w.replace(err)
			return len(p), nil
		}
		defer w.account.memory.give(w.account.client, more)
	}
	w.begin()
	n, err := w.ResponseWriter.Write(p)
	w.bytes += int64(n)
	w.rest()
	return n, err
}

// Flush sends what was written so far.
func (w *response) Flush() {
	if w.dropped() {
		return
	}
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
	w.send()
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
	charged  charged
}

func (b *body) Read(p []byte) (int, error) {
	now := time.Now()
	if b.charged.err != nil {
		return 0, b.charged.err
	}
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
	if err := b.charged.cover(b.taken); err != nil {
		return 0, err
	}
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
