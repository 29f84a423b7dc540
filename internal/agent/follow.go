package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"iter"

	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// maxEvent bounds a line of a journal as it is read.
const maxEvent = 64 << 20

// Follow yields what a run tells, from an offset of its journal on, and waits for more
// while it goes on. The last event is its end; a sequence without one was cut off by
// ctx, or by the end of the daemon, and can be followed again.
func (r *Runs) Follow(ctx context.Context, thread, id string, after int64) iter.Seq2[conversation.Recorded, error] {
	return func(yield func(conversation.Recorded, error) bool) {
		if err := r.s.enter(ctx); err != nil { // journals are taken up
			yield(conversation.Recorded{}, err)
			return
		}
		run, t, err := r.find(ctx, thread, id)
		if err != nil {
			yield(conversation.Recorded{}, err)
			return
		}
		last := after
		for rec, err := range r.s.records(ctx, t.UID, run.Seq, after, true) {
			if errors.Is(err, errs.NotFound) {
				break // it was forgotten, or is
			}
			if err != nil {
				yield(rec, err)
				return
			}
			last = rec.Offset
			if !yield(rec, nil) || rec.Event.Ended != nil {
				return
			}
		}
		// The journal has no end, or none that could be kept: the row knows it.
		run, err = r.s.cfg.Store.ConversationRun(ctx, t.UID, id)
		if err != nil || !run.Status.Ended() {
			if err != nil {
				yield(conversation.Recorded{}, err)
			}
			return
		}
		ended := conversation.Ended{Status: run.Status}
		if conversation.Given(run.Error) {
			var failed struct{ Error, Message string }
			_ = json.Unmarshal(run.Error, &failed) // the service wrote it
			ended.Error, ended.Message = failed.Error, failed.Message
		}
		yield(conversation.Recorded{Offset: last + 1, Event: conversation.Event{Time: run.UpdatedAt, Ended: &ended}}, nil)
	}
}

// records reads events out of a journal. Those that were cut off are left out.
func (s *Service) records(ctx context.Context, uid sandbox.UID, seq, after int64, follow bool) iter.Seq2[conversation.Recorded, error] {
	return func(yield func(conversation.Recorded, error) bool) {
		var part []byte
		expected := after
		for entry, err := range s.cfg.Journals.Read(ctx, uid, seq, after, follow) {
			if err != nil {
				yield(conversation.Recorded{}, err)
				return
			}
			if entry.Exit != nil {
				return
			}
			if entry.Output.Offset != expected {
				part = nil // something was cut
			}
			data := entry.Output.Data
			expected = entry.Output.Offset + int64(len(data))
			for at := entry.Output.Offset; len(data) > 0; {
				line, rest, whole := bytes.Cut(data, []byte("\n"))
				if !whole {
					if part = append(part, line...); len(part) > maxEvent {
						yield(conversation.Recorded{}, errs.E(errs.Internal, "an event of the run is too long"))
						return
					}
					break
				}
				at += int64(len(line)) + 1
				text := line
				if len(part) > 0 {
					text, part = append(part, line...), nil
				}
				data = rest
				rec := conversation.Recorded{Offset: at}
				if json.Unmarshal(text, &rec.Event) != nil {
					continue // the rest of a line whose beginning was cut, or an offset within one
				}
				if !yield(rec, nil) {
					return
				}
			}
		}
	}
}
