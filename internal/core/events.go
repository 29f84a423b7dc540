package core

import (
	"context"

	"github.com/cubbyhq/cubby/internal/egress"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// note appends an event to a history. An act that has happened does not fail
// because its event could not be written.
func (s *Service) note(ctx context.Context, e sandbox.Event) {
	if _, err := s.cfg.Store.AppendEvent(context.WithoutCancel(ctx), e); err != nil {
		s.log.Error("append an event", "kind", e.Kind, telemetry.KeyUID, e.Box, telemetry.KeyErr, err)
	}
}

// decided hears every decision of the egress proxy. It does not block: of a
// sandbox that asks without end not every decision becomes an event, but every
// one is counted.
func (s *Service) decided(box sandbox.UID, d egress.Decision) {
	s.metrics.Egress(d.Allow)
	r := s.runOf(box)
	if r == nil {
		return
	}
	r.active(context.Background())
	if !r.events.Allow() {
		return
	}
	var p event.Payload = event.Denied{Host: d.Host, Port: d.Port, Rule: string(d.Rule)}
	if d.Allow {
		p = event.Allowed{Host: d.Host, Port: d.Port, Rule: string(d.Rule)}
	}
	e := event.New(box, "", p)
	e.Time = s.now()
	select {
	case s.decisions <- e:
	default:
		s.log.Warn("too many egress decisions to write all down", telemetry.KeyUID, box)
	}
}

// writeDecisions writes the egress proxy's decisions down.
func (s *Service) writeDecisions(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-s.decisions:
			s.note(ctx, e)
		}
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
