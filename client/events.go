package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Event is one entry of a sandbox's history. Events never change: an operation
// leaves one for each status that it reaches.
type Event struct {
	Cursor int64     `json:"cursor"` // ascending; where to go on after this one
	Time   time.Time `json:"time"`
	Kind   string    `json:"kind"`            // "sandbox.created", "exec.finished", "git.clone", …
	Actor  string    `json:"actor,omitempty"` // the principal's name; "" is cubby itself
	// Seq is the operation that it is about, to be read with [Process.Get]; 0
	// for an act that was over at once.
	Seq     int64           `json:"seq,omitempty"`
	Status  ExecStatus      `json:"status"`
	Payload json.RawMessage `json:"payload,omitempty"` // what was asked, by kind
	Result  json.RawMessage `json:"result,omitempty"`  // what came of it
}

// Events returns up to limit entries after the cursor (0: from the start;
// limit 0: the daemon's choice) and the cursor to go on from. Kinds, when there
// are any, are the only ones: "exec.finished", or "git.*" for all that begin
// with "git.". A destroyed sandbox's history is there until the daemon prunes
// it.
func (c *Client) Events(ctx context.Context, id string, after int64, limit int, kinds ...string) (events []Event, next int64, err error) {
	q := eventsQuery(after, kinds)
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	var page struct {
		Events []Event `json:"events"`
		Next   int64   `json:"next"`
	}
	err = c.do(ctx, call{method: http.MethodGet, path: sandboxPath(id, "events"), query: q}, &page)
	return page.Events, page.Next, err
}

func eventsQuery(after int64, kinds []string) url.Values {
	q := url.Values{}
	if after > 0 {
		q.Set("after", strconv.FormatInt(after, 10))
	}
	if len(kinds) > 0 {
		q.Set("kinds", strings.Join(kinds, ","))
	}
	return q
}

// FollowEvents is [Client.Events] that goes on until the sandbox is destroyed,
// ctx ends or the loop is left. A broken connection, a restarted proxy or
// daemon is bridged: it goes on at its cursor, without a gap or a repetition.
// After an error the iteration ends.
func (c *Client) FollowEvents(ctx context.Context, id string, after int64, kinds ...string) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		again := c.newBackoff()
		for {
			begun, from := time.Now(), after
			ended, err := c.followEvents(ctx, id, &after, kinds, func(e Event) bool { return yield(e, nil) })
			if ended {
				return
			}
			if after > from || time.Since(begun) > 5*time.Second {
				again.reset()
			}
			if !again.worthwhile(ctx, err) {
				yield(Event{}, err)
				return
			}
		}
	}
}

// followEvents reads one connection. It moves *after along and returns true
// when the consumer has had enough or everything.
func (c *Client) followEvents(ctx context.Context, id string, after *int64, kinds []string, emit func(Event) bool) (ended bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	res, err := c.send(ctx, call{
		method: http.MethodGet, path: sandboxPath(id, "events"), query: eventsQuery(*after, kinds),
		header: http.Header{"Accept": {"text/event-stream"}},
	})
	if err != nil {
		return false, err
	}
	defer res.Body.Close()

	alive := time.AfterFunc(streamSilence, func() { cancel(errEventsCut) })
	defer alive.Stop()
	events := newEventReader(res.Body)
	for {
		ev, err := events.next()
		if err != nil {
			if cause := context.Cause(ctx); errors.Is(cause, errEventsCut) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return false, errEventsCut
			}
			return false, c.readError(ctx, err)
		}
		alive.Reset(streamSilence)
		switch ev.name {
		case "ping":
			continue
		case "end":
			return true, nil
		case "error":
			if e, ok := decodeEnvelope(ev.data); ok {
				return false, e
			}
			return false, badEvent(nil)
		}
		var e Event
		if err := json.Unmarshal(ev.data, &e); err != nil {
			return false, badEvent(err)
		}
		if e.Cursor <= *after {
			continue
		}
		*after = e.Cursor
		if !emit(e) {
			return true, nil
		}
	}
}

// errEventsCut: the stream ended before the history did.
var errEventsCut = &Error{Code: Unavailable, Message: "the stream of events ended", Retryable: true}
