package wire

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"mime"
	"net/http"
	"time"

	"github.com/cubbyhq/cubby/internal/llm"
)

// Decoder turns the events of one answer into llm's. Its errors are *[llm.Error]s
// of [Client.Fault], or say how the stream is none of the dialect.
type Decoder interface {
	// Decode takes the next event, and reports whether it was the last one.
	Decode(e Event, emit func(llm.Event)) (done bool, err error)
	// End is called where the stream ends and no event said so. It reports whether
	// the answer is whole nevertheless.
	End(emit func(llm.Event)) (whole bool)
}

// Stream makes a call and passes on what the decoder makes of its answer. It asks
// again, with a new decoder, as long as nothing of an answer has come.
func (c *Client) Stream(ctx context.Context, call Call, decoder func() Decoder, yield func(llm.Event, error) bool) {
	for try := 1; ; try++ {
		a := attempt{client: c, yield: yield}
		err := a.run(ctx, call, decoder())
		switch {
		case err == nil || a.stopped:
			return
		case ctx.Err() != nil:
			yield(nil, ctx.Err())
			return
		}
		pause, again := c.again(err, try)
		if a.began || !again {
			yield(nil, err)
			return
		}
		if !yield(llm.Retrying{After: pause, Err: err}, nil) {
			return
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			yield(nil, ctx.Err())
			return
		}
	}
}

// again says whether a call that failed is made once more, and after which pause.
func (c *Client) again(err *llm.Error, try int) (time.Duration, bool) {
	if try >= c.config.Tries || err.Fault != llm.Limited && err.Fault != llm.Unavailable || errors.Is(err.Cause, errFinal) {
		return 0, false
	}
	if err.RetryAfter > 0 {
		return err.RetryAfter, err.RetryAfter <= longestWait
	}
	pause := min(c.config.Pause<<(try-1), longestPause)
	// Half of it is chance: those who were refused together do not come back
	// together.
	return pause/2 + rand.N(pause/2+1), true
}

// attempt is one request and its answer.
type attempt struct {
	client  *Client
	yield   func(llm.Event, error) bool
	began   bool // something of the answer was passed on
	stopped bool // the consumer wants no more
	size    size // of what was passed on
	over    bool // it is more than an answer may have
}

func (a *attempt) emit(e llm.Event) {
	if a.over = a.over || !a.size.add(e); a.over || a.stopped {
		return
	}
	if _, usage := e.(llm.Usage); !usage {
		a.began = true
	}
	a.stopped = !a.yield(e, nil)
}

func (a *attempt) run(ctx context.Context, call Call, d Decoder) *llm.Error {
	res, watch, fault := a.client.do(ctx, call, "text/event-stream")
	if fault != nil {
		return fault
	}
	defer watch.stop()
	defer res.Body.Close()
	if fault := a.client.noStream(res); fault != nil {
		return fault
	}
	events := NewReader(watch.reader(res.Body))
	events.room = a.client.config.Room
	defer events.Close()
	done, fault := a.events(events, d, watch)
	if done && !a.stopped {
		// To its end, and the connection serves the next request.
		watch.set(drainTime)
		_, _ = io.CopyN(io.Discard, res.Body, drainSize) // whatever comes of it
	}
	return fault
}

const (
	drainTime = 100 * time.Millisecond
	drainSize = 4 << 10
)

// events reads the stream until its end.
func (a *attempt) events(r *Reader, d Decoder, watch *watch) (done bool, fault *llm.Error) {
	for n := 0; ; n++ {
		e, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			whole := d.End(a.emit)
			switch {
			case a.over && !a.stopped:
				return false, a.client.broken(a.size.excess(), nil)
			case whole || a.stopped:
				return true, nil
			}
			// A proxy that loses the provider writes its own answer into the stream.
			if t := ReadTrouble(r.Stray()); t.Said {
				return false, a.told(a.client.Fault(0, t))
			}
			if n == 0 {
				return false, a.client.broken("the answer has no event", nil)
			}
			return false, a.client.broken("the answer broke off", nil)
		case err != nil:
			err = watch.cause(err)
			if errors.Is(err, errRoom) && !a.began {
				return false, a.client.fault(llm.Unavailable, 0, "its answer is large, and other large ones take all the room that there is", err)
			}
			if a.began || errors.Is(err, errLine) || errors.Is(err, errStream) {
				return false, a.client.broken("the answer broke off: "+reason(err), err)
			}
			return false, a.client.unanswered(err)
		}
		done, err := d.Decode(e, a.emit)
		var fault *llm.Error
		switch {
		case a.stopped:
			return false, nil
		case a.over:
			return false, a.client.broken(a.size.excess(), nil)
		case errors.As(err, &fault):
			return false, a.told(fault)
		case err != nil:
			return false, a.client.broken("it sent what is not part of an answer: "+string(e.Data), err)
		case done:
			return true, nil
		}
	}
}

// told is a fault that the provider tells in its stream: one in the middle of an answer
// has broken that.
func (a *attempt) told(fault *llm.Error) *llm.Error {
	if a.began {
		fault.Fault = llm.Broken
	}
	return fault
}

// do sends a call and returns the answer to it if that is a good one. The watch is
// to be stopped.
func (c *Client) do(ctx context.Context, call Call, accept string) (*http.Response, *watch, *llm.Error) {
	r, err := c.request(call, accept)
	if err != nil {
		return nil, nil, c.fault(llm.Invalid, 0, "the base URL is none", err)
	}
	if call.Body != nil {
		r.Body = io.NopCloser(bytes.NewReader(call.Body))
		r.ContentLength = int64(len(call.Body))
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(call.Body)), nil }
	}
	ctx, watch := newWatch(ctx, c.config.Idle)
	res, err := c.http.Do(r.WithContext(ctx))
	if err != nil {
		err = watch.cause(err)
		watch.stop()
		return nil, nil, c.unanswered(err)
	}
	if res.StatusCode < 200 || res.StatusCode > 299 {
		defer watch.stop()
		defer res.Body.Close()
		return nil, nil, c.refused(res)
	}
	return res, watch, nil
}

// noStream looks at the type of an answer: some providers answer 200 with what is
// wrong, and what is no API with a page.
func (c *Client) noStream(res *http.Response) *llm.Error {
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	switch kind {
	case "application/json", "text/html":
	default:
		// Some servers call a stream by no name, or by another one.
		return nil
	}
	body, _ := io.ReadAll(io.LimitReader(res.Body, maxFault))
	if kind == "text/html" {
		return c.page(res.StatusCode, body)
	}
	if t := ReadTrouble(body); t.Said {
		return c.Fault(0, t)
	}
	return c.broken("it answered with "+kind+" in place of a stream: "+string(body), nil)
}
