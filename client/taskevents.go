package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	"github.com/cubbyhq/cubby/client/internal/sse"
	"github.com/cubbyhq/cubby/client/task"
)

func sinceQuery(since int64) url.Values { return positionQuery("since", since) }

// Events follows the events of a task from an id, 0 for the first, to "done". A broken
// connection, a restarted proxy or daemon is bridged, without a gap or a repetition.
// Leaving the loop does not touch the task. After an error the iteration ends.
func (t *Tasks) Events(ctx context.Context, id string, since int64) iter.Seq2[task.Event, error] {
	return following[task.Event]{t.c, t.path(id, "events"), sinceQuery, errStreamCut, readTaskEvent}.from(ctx, since)
}

func readTaskEvent(ev sse.Event, next int64) (step[task.Event], error) {
	if ev.ID == "" { // about the stream, not of the task
		if ev.Name != "error" {
			return step[task.Event]{}, nil
		}
		if e, ok := decodeEnvelope(ev.Data); ok {
			return step[task.Event]{}, e
		}
		return step[task.Event]{}, badEvent(nil)
	}
	id, err := strconv.ParseInt(ev.ID, 10, 64)
	if err != nil || !json.Valid(ev.Data) {
		return step[task.Event]{}, badEvent(err)
	}
	e := task.Event{ID: id, Type: ev.Name, Data: ev.Data}
	return step[task.Event]{item: e, some: id >= next, next: id + 1, last: e.Type == task.DoneEvent}, nil
}

// EventsSoFar returns the events of a task from an id on without waiting for more, at
// most 1,000 and some megabytes, and the id to go on from.
func (t *Tasks) EventsSoFar(ctx context.Context, id string, since int64) (events []task.Event, next int64, err error) {
	var page struct {
		Events []task.Event `json:"events"`
		Next   int64        `json:"next"`
	}
	err = t.c.do(ctx, call{
		method: http.MethodGet, path: t.path(id, "events"), query: sinceQuery(since), header: http.Header{"Accept": {"application/json"}},
	}, &page)
	return page.Events, page.Next, err
}
