package rest

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"

	"github.com/cubbyhq/cubby/internal/core/tasks"
)

// maxEventBytes ends a list of events that is long.
const maxEventBytes = 4 << 20

// listTaskEvents answers with the events so far as JSON. It is written while it is
// read: events can be many.
func (d *door) listTaskEvents(ctx context.Context, in *taskEventsInput, from int64) (*streamed, error) {
	if in.head() {
		return &streamed{Body: nothing("application/json")}, nil
	}
	return stream(func() {
		in.w.Header().Set("Content-Type", "application/json")
		in.w.WriteHeader(http.StatusOK)
		d.Abort(ctx, writeTaskEvents(in.w, d.Core.Tasks().Events(ctx, in.ID, in.Task, from, false), from, in.Limit))
	}), nil
}

func writeTaskEvents(w io.Writer, events func(func(tasks.Event, error) bool), from int64, limit int) error {
	if _, err := io.WriteString(w, `{"events":[`); err != nil {
		return err
	}
	next, n, size := from, 0, 0
	for e, err := range events {
		if err != nil {
			return err
		}
		text, err := json.Marshal(TaskEvent{ID: e.ID, Type: e.Type, Time: e.At.UTC(), Data: e.Data})
		if err != nil {
			return err
		}
		if n > 0 {
			text = append([]byte(","), text...)
		}
		if _, err := w.Write(text); err != nil {
			return err
		}
		next, n, size = e.ID+1, n+1, size+len(text)
		if n == limit || size > maxEventBytes {
			break
		}
	}
	_, err := io.WriteString(w, `],"next":`+strconv.FormatInt(next, 10)+"}\n")
	return err
}
