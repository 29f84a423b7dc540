package core

import (
	"context"
	"sync"

	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// note appends an event to a history. An act that has happened does not fail
// because its event could not be written: that is made up for, in order, when
// the store can be written again.
func (s *Service) note(ctx context.Context, e sandbox.Event) {
	if e.Time.IsZero() {
		e.Time = s.now()
	}
	n := &s.notes
	n.mu.Lock()
	behind := len(n.waiting) > 0
	if behind {
		s.keepNote(e)
	}
	n.mu.Unlock()
	if behind {
		return
	}
	if _, err := s.cfg.Store.AppendEvent(context.WithoutCancel(ctx), e); err != nil {
		s.log.Error("append an event; it is tried again", "kind", e.Kind, telemetry.KeyUID, e.Box, telemetry.KeyErr, err)
		n.mu.Lock()
		defer n.mu.Unlock()
		s.keepNote(e)
	}
}

// notebook has the events that could not be written.
type notebook struct {
	mu      sync.Mutex
	waiting []sandbox.Event // in order; guarded by mu
	writing bool            // somebody tries; guarded by mu
}

// maxNotes bounds them: a store that stays away does not eat the memory.
const maxNotes = 10_000

// keepNote puts an event behind those that wait. The caller holds notes.mu.
func (s *Service) keepNote(e sandbox.Event) {
	n := &s.notes
	if len(n.waiting) >= maxNotes {
		s.log.Error("too many events wait for the store: one is lost", "kind", e.Kind, telemetry.KeyUID, e.Box)
		return
	}
	n.waiting = append(n.waiting, e)
	if n.writing {
		return
	}
	if n.writing = s.gate.Spawn(s.writeNotes); !n.writing {
		s.log.Error("cubby stops and an event is lost", "kind", e.Kind, telemetry.KeyUID, e.Box)
	}
}

// writeNotes writes what waits until nothing does. The end of the service is
// the last attempt.
func (s *Service) writeNotes(ctx context.Context) {
	n := &s.notes
	delay := gate.RetryFirst
	for {
		n.mu.Lock()
		if len(n.waiting) == 0 {
			n.writing = false
			n.mu.Unlock()
			return
		}
		e := n.waiting[0]
		n.mu.Unlock()
		last := ctx.Err() != nil
		_, err := s.cfg.Store.AppendEvent(context.WithoutCancel(ctx), e)
		if err == nil {
			n.mu.Lock()
			n.waiting = n.waiting[1:]
			n.mu.Unlock()
			delay = gate.RetryFirst
			continue
		}
		if last {
			n.mu.Lock()
			s.log.Error("cubby stops and events are lost", "count", len(n.waiting), telemetry.KeyErr, err)
			n.mu.Unlock()
			return
		}
		delay = gate.Pause(ctx, delay)
	}
}

// DiskPressure is what workspace.Config.OnPressure calls.
func (s *Service) DiskPressure(frozen bool, free int64) {
	s.metrics.DiskPressure(frozen, free)
	var p event.Payload = event.Thawed{FreeBytes: free}
	if frozen {
		p = event.Frozen{FreeBytes: free}
	}
	s.note(context.Background(), event.New("", "", p))
}
