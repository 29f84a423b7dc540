package tasks

import (
	"context"
	"encoding/json"
	"iter"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/task"
)

// Event is one event of a task. Ids count from 0.
type Event struct {
	ID   int64
	Type string
	At   time.Time
	Data json.RawMessage
}

// Events reads the events of a task from an id on. With follow it waits for more
// until the task has ended, also while its sandbox sleeps. The last event of a task
// that has ended is done. It is NotFound when the events were removed to make room
// for later ones.
func (t *Tasks) Events(ctx context.Context, id, taskID string, from int64, follow bool) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		b, x, err := t.find(ctx, id, taskID)
		if err != nil {
			yield(Event{}, err)
			return
		}
		next := int64(0)
		for r, err := range records(t.cfg.Live.Execs().Output(ctx, id, x.Seq, 0, follow)) {
			if err != nil {
				yield(Event{}, err)
				return
			}
			// The last word is not the supervisor's.
			if r.Type == task.RequestType || r.Type == task.DoneType {
				continue
			}
			if next >= from && !yield(Event{ID: next, Type: r.Type, At: r.At, Data: r.Data}, nil) {
				return
			}
			next++
		}
		wait := time.Duration(0)
		if follow {
			wait = -1 // the end of the exec lags behind that of its journal
		}
		if x, err = t.cfg.Live.Execs().Wait(ctx, id, x.Seq, wait); err != nil {
			yield(Event{}, err)
			return
		}
		if !x.Status.Finished() {
			if follow {
				yield(Event{}, errs.E(errs.Unavailable, "the end of the task is not known yet").RetryAfter(time.Second))
			}
			return
		}
		if next < from {
			return
		}
		result := taskOf(b, x).Result
		data, err := json.Marshal(result)
		if err != nil {
			yield(Event{}, err)
			return
		}
		yield(Event{ID: next, Type: task.DoneType, At: result.FinishedAt, Data: data}, nil)
	}
}

// CheckEvents is the error that [Tasks.Events] would begin with.
func (t *Tasks) CheckEvents(ctx context.Context, id, taskID string) error {
	_, x, err := t.find(ctx, id, taskID)
	if err != nil {
		return err
	}
	return t.cfg.Live.Execs().CheckOutput(ctx, id, x.Seq)
}
