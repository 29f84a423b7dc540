package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"strconv"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front"
)

// pingEvery keeps proxies and clients from giving up a quiet stream.
const pingEvery = 15 * time.Second

// largestKept is the largest buffer that a quiet stream keeps.
const largestKept = 16 << 10

// eventStream writes Server-Sent Events. Methods are called from one
// goroutine.
type eventStream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	buf     bytes.Buffer
}

// newEventStream begins an answer of the given status.
func newEventStream(w http.ResponseWriter, status int) (*eventStream, error) {
	h := w.Header()
	h.Set("Content-Type", eventStreams)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	w.WriteHeader(status)
	s := &eventStream{w: w, control: http.NewResponseController(w)}
	return s, s.control.Flush()
}

// send writes one event and flushes it. An id below zero is left out.
func (s *eventStream) send(id int64, name string, data any) error {
	b := &s.buf
	if b.Reset(); b.Cap() > largestKept {
		*b = bytes.Buffer{}
	}
	if id >= 0 {
		b.WriteString("id: ")
		b.Write(strconv.AppendInt(b.AvailableBuffer(), id, 10))
		b.WriteByte('\n')
	}
	b.WriteString("event: " + name + "\ndata: ")
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(data); err != nil { // one line, with its end
		return err
	}
	b.WriteByte('\n')
	if _, err := s.w.Write(b.Bytes()); err != nil {
		return err
	}
	return s.control.Flush()
}

func (s *eventStream) ping() error { return s.send(-1, "ping", struct{}{}) }

// failStream tells an error that came after the response had begun.
func (d *Door) failStream(ctx context.Context, s *eventStream, err error) {
	if err == nil || ctx.Err() != nil || errors.Is(err, errDraining) {
		return // a stream without its last event is resumed by its client
	}
	d.logInternal(ctx, err)
	_, p := front.ProblemOf(ctx, err)
	_ = s.send(-1, "error", p) // the client is gone: nobody is left to tell
}

// errDraining ends a stream because the daemon stops.
var errDraining = errs.E(errs.Unavailable, "the daemon stops").Hint("resume the stream at its offset")

// pump hands every item of source to item, in order, and calls tick while there
// is none for a while. It returns when the source ends, when ctx ends, when drain is
// closed or with the first error, and leaves no goroutine behind.
//
// The source is made with a context that ends when pump wants to return, so
// that it does not keep pump waiting.
func pump[T any](ctx context.Context, drain <-chan struct{}, source func(context.Context) iter.Seq2[T, error], every time.Duration, item func(T) error, tick func() error) error {
	ctx, cancel := context.WithCancel(ctx)
	type next struct {
		item T
		err  error
	}
	items := make(chan next)
	go func() {
		defer close(items)
		for v, err := range source(ctx) {
			select {
			case items <- next{v, err}:
			case <-ctx.Done():
				return
			}
		}
	}()
	defer func() {
		cancel()
		for range items { //nolint:revive // waits for the goroutine
		}
	}()
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case n, ok := <-items:
			if !ok {
				return ctx.Err() // a source that the client's leaving ended has no end of its own
			}
			if n.err != nil {
				return n.err
			}
			if err := item(n.item); err != nil {
				return err
			}
			ticker.Reset(every)
		case <-ticker.C:
			if err := tick(); err != nil {
				return err
			}
		case <-drain:
			return errDraining
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
