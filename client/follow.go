package client

import (
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
	"net/url"
	"time"

	"github.com/cubbyhq/cubby/client/internal/sse"
)

// following is a stream of Server-Sent Events that outlives its connections.
type following[T any] struct {
	c     *Client
	path  string
	query func(after int64) url.Values
	cut   *Error // the connection ended, and the stream did not
	read  func(ev sse.Event, after int64) (step[T], error)
}

// step is what an event says to one who has all up to a position.
type step[T any] struct {
	item T
	some bool  // there is an item
	next int64 // the position after it
	last bool  // the stream ends here
}

// from goes on after a position. A broken connection, a restarted proxy or
// daemon is bridged. After an error the iteration ends.
func (f following[T]) from(ctx context.Context, after int64) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		again := f.c.newBackoff()
		for {
			begun, from := time.Now(), after
			ended, err := f.connection(ctx, &after, func(item T) bool { return yield(item, nil) })
			if ended {
				return
			}
			if after > from || time.Since(begun) > 5*time.Second {
				again.Reset()
			}
			if !again.worthwhile(ctx, err) {
				var none T
				yield(none, err)
				return
			}
		}
	}
}

// streamSilence is how long a stream may say nothing before its connection is
// taken for dead. The daemon sends a ping every 15 seconds.
const streamSilence = time.Minute

// connection reads one connection. It moves *after along and returns true when
// the consumer has had enough or everything.
func (f following[T]) connection(ctx context.Context, after *int64, emit func(T) bool) (ended bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	res, err := f.c.send(ctx, call{
		method: http.MethodGet, path: f.path, query: f.query(*after),
		header: http.Header{"Accept": {"text/event-stream"}},
	})
	if err != nil {
		return false, err
	}
	defer res.Body.Close()

	alive := time.AfterFunc(streamSilence, func() { cancel(f.cut) })
	defer alive.Stop()
	events := sse.NewReader(res.Body)
	for {
		ev, err := events.Next()
		if err != nil {
			if cause := context.Cause(ctx); errors.Is(cause, f.cut) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return false, f.cut
			}
			return false, f.c.readError(ctx, err)
		}
		alive.Reset(streamSilence)
		s, err := f.read(ev, *after)
		if err != nil {
			return false, err
		}
		if s.some {
			*after = s.next
			if !emit(s.item) {
				return true, nil
			}
		}
		if s.last {
			return true, nil
		}
	}
}
