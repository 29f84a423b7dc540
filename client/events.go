package client

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/cubbyhq/cubby/client/internal/sse"
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

// String is short, for logs: what it is about, and what came of it.
func (e Event) String() string {
	if e.Seq == 0 {
		return fmt.Sprintf("event %d: %s: %s", e.Cursor, e.Kind, e.Status)
	}
	return fmt.Sprintf("event %d: %s %d: %s", e.Cursor, e.Kind, e.Seq, e.Status)
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
	q := afterQuery(after)
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
	query := func(after int64) url.Values { return eventsQuery(after, kinds) }
	return following[Event]{c, sandboxPath(id, "events"), query, errEventsCut, readEvent}.from(ctx, after)
}

func readEvent(ev sse.Event, after int64) (step[Event], error) {
	switch ev.Name {
	case "ping":
		return step[Event]{}, nil
	case "end":
		return step[Event]{last: true}, nil
	case "error":
		if e, ok := decodeEnvelope(ev.Data); ok {
			return step[Event]{}, e
		}
		return step[Event]{}, badEvent(nil)
	}
	var e Event
	if err := json.Unmarshal(ev.Data, &e); err != nil {
		return step[Event]{}, badEvent(err)
	}
	return step[Event]{item: e, some: e.Cursor > after, next: e.Cursor}, nil
}

// errEventsCut: the stream ended before the history did.
var errEventsCut = &Error{Code: Unavailable, Message: "the stream of events ended", Retryable: true}
