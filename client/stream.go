package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/url"
	"strconv"

	"github.com/cubbyhq/cubby/client/internal/backoff"
	"github.com/cubbyhq/cubby/client/internal/sse"
	"github.com/cubbyhq/cubby/client/internal/texts"
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

// String is short, for logs: how much it is, or how the command ended.
func (o Output) String() string {
	if o.Exit != nil {
		return o.Exit.String()
	}
	return fmt.Sprintf("%s: %d bytes", o.Stream, len(o.Data))
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
	text, encoding := texts.Encode(string(o.Data))
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

func afterQuery(after int64) url.Values { return positionQuery("after", after) }

func positionQuery(name string, at int64) url.Values {
	q := url.Values{}
	if at > 0 {
		q.Set(name, strconv.FormatInt(at, 10))
	}
	return q
}

// errStreamCut: the stream ended without the command's end.
var errStreamCut = &Error{Code: Unavailable, Message: "the stream ended before the command did", Retryable: true}

func readOutput(ev sse.Event, after int64) (step[Output], error) {
	out, ok, err := outputOf(ev, after)
	return step[Output]{item: out, some: ok, next: out.Next, last: out.Exit != nil}, err
}

// outputOf turns an event into what the caller sees; false for pings and for
// output that it had before.
func outputOf(ev sse.Event, after int64) (Output, bool, error) {
	switch ev.Name {
	case "stdout", "stderr":
		var w struct {
			Data     string `json:"data"`
			Encoding string `json:"encoding"`
			Offset   int64  `json:"offset"`
		}
		if err := json.Unmarshal(ev.Data, &w); err != nil {
			return Output{}, false, badEvent(err)
		}
		text, err := texts.Decode(w.Data, w.Encoding)
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
		return Output{Stream: ev.Name, Data: data, Offset: offset, Next: next}, true, nil
	case Rich:
		next, err := strconv.ParseInt(ev.ID, 10, 64)
		if err != nil {
			return Output{}, false, badEvent(err)
		}
		if next <= after {
			return Output{}, false, nil
		}
		return Output{Stream: Rich, Data: ev.Data, Offset: after, Next: next}, true, nil
	case "exit":
		exec := new(Exec)
		if err := json.Unmarshal(ev.Data, exec); err != nil {
			return Output{}, false, badEvent(err)
		}
		return Output{Offset: after, Next: after, Exit: exec}, true, nil
	case "error":
		e, ok := decodeEnvelope(ev.Data)
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

// retries spaces attempts to reach the daemon again.
type retries struct{ *backoff.Backoff }

func (c *Client) newBackoff() retries { return retries{backoff.New(c.resume)} }

// worthwhile waits before the next attempt and reports whether there should be
// one: the error is of the connection and not of the request, ctx lives, and
// the time for it is not used up.
func (r retries) worthwhile(ctx context.Context, err error) bool {
	var e *Error
	return errors.As(err, &e) && (e.Code == Unreachable || e.Code == Unavailable) && ctx.Err() == nil && r.Again(ctx)
}
