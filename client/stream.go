package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net/url"
	"strconv"
	"time"
)

// Output is one piece of what a command printed, or its end.
type Output struct {
	Stream string // "stdout", "stderr" or, of cells, [Rich]; "" at the end
	Data   []byte
	// Offset is where Data begins in the output, counted over all streams.
	Offset int64
	// Next is the offset to go on from after this piece.
	Next int64
	// Exit is how the command ended, without its output; only at the end.
	Exit *Exec
}

// Rich is the stream of what a cell shows beside text: each Data is one JSON
// object. [Process.StreamCode] reads them.
const Rich = "rich"

// MarshalJSON writes the form of the API's events: data that is not UTF-8 as
// base64.
func (o Output) MarshalJSON() ([]byte, error) {
	if o.Exit != nil {
		return plainJSON(map[string]any{"exit": o.Exit, "offset": o.Offset})
	}
	text, encoding := encodeText(string(o.Data))
	return plainJSON(struct {
		Stream   string `json:"stream"`
		Data     string `json:"data"`
		Encoding string `json:"encoding,omitempty"`
		Offset   int64  `json:"offset"`
	}{o.Stream, text, encoding, o.Offset})
}

// Stream follows a command's output from an offset, 0 for the beginning. The
// last item has Exit set. A broken connection, a restarted proxy or daemon is
// bridged: the stream goes on at its offset, without a gap or a repetition.
// Leaving the loop does not touch the command.
//
// After an error the iteration ends; the last item's Next is where another
// Stream can go on.
func (p *Process) Stream(ctx context.Context, after int64) iter.Seq2[Output, error] {
	return following[Output]{p.c, p.path("stream"), afterQuery, errStreamCut, readOutput}.from(ctx, after)
}

func afterQuery(after int64) url.Values {
	q := url.Values{}
	if after > 0 {
		q.Set("after", strconv.FormatInt(after, 10))
	}
	return q
}

// errStreamCut: the stream ended without the command's end.
var errStreamCut = &Error{Code: Unavailable, Message: "the stream ended before the command did", Retryable: true}

func readOutput(ev event, after int64) (step[Output], error) {
	out, ok, err := ev.output(after)
	return step[Output]{item: out, some: ok, next: out.Next, last: out.Exit != nil}, err
}

// output turns an event into what the caller sees; false for pings and for
// output that it had before.
func (ev event) output(after int64) (Output, bool, error) {
	switch ev.name {
	case "stdout", "stderr":
		var w struct {
			Data     string `json:"data"`
			Encoding string `json:"encoding"`
			Offset   int64  `json:"offset"`
		}
		if err := json.Unmarshal(ev.data, &w); err != nil {
			return Output{}, false, badEvent(err)
		}
		text, err := decodeText(w.Data, w.Encoding)
		if err != nil {
			return Output{}, false, badEvent(err)
		}
		data, offset := []byte(text), w.Offset
		next := offset + int64(len(data))
		if next <= after {
			return Output{}, false, nil
		}
		if offset < after { // a record that begins before the resume point
			data, offset = data[after-offset:], after
		}
		return Output{Stream: ev.name, Data: data, Offset: offset, Next: next}, true, nil
	case Rich:
		next, err := strconv.ParseInt(ev.id, 10, 64)
		if err != nil {
			return Output{}, false, badEvent(err)
		}
		if next <= after {
			return Output{}, false, nil
		}
		return Output{Stream: Rich, Data: ev.data, Offset: after, Next: next}, true, nil
	case "exit":
		exec := new(Exec)
		if err := json.Unmarshal(ev.data, exec); err != nil {
			return Output{}, false, badEvent(err)
		}
		return Output{Offset: after, Next: after, Exit: exec}, true, nil
	case "error":
		e, ok := decodeEnvelope(ev.data)
		if !ok {
			return Output{}, false, badEvent(nil)
		}
		return Output{}, false, e
	}
	return Output{}, false, nil
}

func badEvent(cause error) error {
	return &Error{Code: Internal, Message: "the stream has an event that cannot be read", cause: cause}
}

// Copy follows the command from the beginning to its end and writes its output
// to stdout and stderr, which may be nil. What a cell shows beside text is left
// out.
func (p *Process) Copy(ctx context.Context, stdout, stderr io.Writer) (Exec, error) {
	for out, err := range p.Stream(ctx, 0) {
		if err != nil {
			return Exec{}, err
		}
		if out.Exit != nil {
			return *out.Exit, nil
		}
		w := map[string]io.Writer{"stdout": stdout, "stderr": stderr}[out.Stream]
		if w == nil {
			continue
		}
		if _, err := w.Write(out.Data); err != nil {
			return Exec{}, err
		}
	}
	return Exec{}, errStreamCut
}

// backoff spaces attempts to reach the daemon again.
type backoff struct {
	limit time.Duration
	since time.Time // of the first failure in a row; zero: none
	wait  time.Duration
}

func (c *Client) newBackoff() *backoff { return &backoff{limit: c.resume} }

func (b *backoff) reset() { b.since, b.wait = time.Time{}, 0 }

// worthwhile waits before the next attempt and reports whether there should be
// one: the error is of the connection and not of the request, ctx lives, and
// the time for it is not used up.
func (b *backoff) worthwhile(ctx context.Context, err error) bool {
	var e *Error
	if !errors.As(err, &e) || e.Code != Unreachable && e.Code != Unavailable || ctx.Err() != nil {
		return false
	}
	now := time.Now()
	if b.since.IsZero() {
		b.since, b.wait = now, 50*time.Millisecond
	}
	if now.Sub(b.since) >= b.limit {
		return false
	}
	wait := b.wait
	b.wait = min(2*b.wait, 2*time.Second)
	return pause(ctx, wait)
}

// pause waits and reports whether ctx lived on.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
