// Package history keeps what happened to sandboxes: it records events, lets
// readers list and follow them, and forgets what is too old or too much. It knows
// nothing of what its events are about.
package history

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// maxRetries bounds the events that wait for a store which cannot be written.
const maxRetries = 10_000

// Recorder appends events to histories. Its methods may be called from any
// goroutine.
type Recorder struct {
	store *store.Store
	gate  *gate.Gate
	log   *slog.Logger
	now   func() time.Time
	queue retryQueue
}

// retryQueue holds the events that could not be written.
type retryQueue struct {
	mu      sync.Mutex
	events  []sandbox.Event // in order; guarded by mu
	writing bool            // a goroutine writes them; guarded by mu
}

// NewRecorder returns a Recorder that retries in goroutines of the gate.
func NewRecorder(st *store.Store, g *gate.Gate, log *slog.Logger, now func() time.Time) *Recorder {
	return &Recorder{store: st, gate: g, log: log, now: now}
}

// Note appends an event; one without a time is of now. An act that has happened
// does not fail because its event could not be written: the event is retried, in
// order, until the store can be written again.
func (r *Recorder) Note(ctx context.Context, e sandbox.Event) {
	if e.Time.IsZero() {
		e.Time = r.now()
	}
	q := &r.queue
	q.mu.Lock()
	behind := len(q.events) > 0
	if behind {
		r.enqueue(e)
	}
	q.mu.Unlock()
	if behind {
		return
	}
	if _, err := r.store.AppendEvent(context.WithoutCancel(ctx), e); err != nil {
		r.log.Error("append an event; it is tried again", "kind", e.Kind, telemetry.KeyUID, e.Box, telemetry.KeyErr, err)
		q.mu.Lock()
		defer q.mu.Unlock()
		r.enqueue(e)
	}
}

// enqueue puts an event at the end of the queue. The caller holds queue.mu.
func (r *Recorder) enqueue(e sandbox.Event) {
	q := &r.queue
	if len(q.events) >= maxRetries {
		r.log.Error("too many events wait for the store: one is lost", "kind", e.Kind, telemetry.KeyUID, e.Box)
		return
	}
	q.events = append(q.events, e)
	if q.writing {
		return
	}
	if q.writing = r.gate.Spawn(r.retry); !q.writing {
		r.log.Error("cubby stops and an event is lost", "kind", e.Kind, telemetry.KeyUID, e.Box)
	}
}

// retry writes the queue until it is empty. The end of the service is the last
// attempt.
func (r *Recorder) retry(ctx context.Context) {
	q := &r.queue
	pauses := gate.NewPauses()
	for {
		q.mu.Lock()
		if len(q.events) == 0 {
			q.writing = false
			q.mu.Unlock()
			return
		}
		e := q.events[0]
		q.mu.Unlock()
		last := ctx.Err() != nil
		_, err := r.store.AppendEvent(context.WithoutCancel(ctx), e)
		if err == nil {
			q.mu.Lock()
			q.events = q.events[1:]
			q.mu.Unlock()
			pauses.Reset()
			continue
		}
		if last {
			q.mu.Lock()
			r.log.Error("cubby stops and events are lost", "count", len(q.events), telemetry.KeyErr, err)
			q.mu.Unlock()
			return
		}
		gate.Pause(ctx, pauses)
	}
}
