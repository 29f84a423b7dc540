package live

import (
	"context"

	"github.com/cubbyhq/cubby/internal/egress"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Egress is the way from running sandboxes to other hosts. What it knows of
// those that do not run is their policy.
type Egress struct{ s *Sandboxes }

// Explain tells what a sandbox would get that asks for target, as "host" or
// "host:port", and which rule decides. The name is looked up; nothing is
// connected, and the sandbox's history does not have it.
func (h *Egress) Explain(ctx context.Context, id, target string) (egress.Decision, error) {
	b, err := h.s.cfg.Scope.Find(ctx, id)
	if err != nil {
		return egress.Decision{}, err
	}
	host, port, err := egress.Target(target)
	if err != nil {
		return egress.Decision{}, err
	}
	policy := b.Spec.Network
	if r := h.s.Of(b.UID); r != nil {
		policy = r.out.policy()
	}
	return h.s.proxy.Explain(ctx, egress.Guest{Box: b.UID, Tenant: b.Tenant}, policy, host, port)
}

// Connections is the connections to hosts outside that a sandbox has now, the
// oldest first, with what each carried so far. A sandbox that does not run has
// none.
func (h *Egress) Connections(ctx context.Context, id string) ([]egress.Connection, error) {
	b, err := h.s.cfg.Scope.Find(ctx, id)
	if err != nil {
		return nil, err
	}
	return h.s.proxy.Open(b.UID), nil
}

// Traffic is how many connections sandboxes have to hosts outside, and the
// bytes that these and all before them carried.
func (h *Egress) Traffic() (open int, sent, received int64) { return h.s.proxy.Traffic() }

// PolicyChanged says that another policy holds for a sandbox from now on. When it
// returns, nothing that its agent was told before is believed any more.
func (h *Egress) PolicyChanged(box sandbox.UID) { h.s.proxy.PolicyChanged(box) }

// Cut ends the open connections of a sandbox that a policy does not allow, nor what
// is lent to it.
func (h *Egress) Cut(box sandbox.UID, policy sandbox.Policy) {
	if r := h.s.Of(box); r != nil {
		policy.Lent = r.out.policy().Lent
	}
	h.s.proxy.Cut(box, policy)
}

// listen puts the package in front of whoever hears of decisions and ends.
func (h *Egress) listen(cfg egress.Config) egress.Config {
	heardDecision, heardEnd := cfg.OnDecision, cfg.OnEnd
	cfg.OnDecision = func(box sandbox.UID, d egress.Decision) {
		h.decided(box, d)
		if heardDecision != nil {
			heardDecision(box, d)
		}
	}
	cfg.OnEnd = func(box sandbox.UID, c egress.Connection) {
		h.connectionEnded(box, c)
		if heardEnd != nil {
			heardEnd(box, c)
		}
	}
	return cfg
}

// decision is an event to be written down, or asks to be told when those
// before it are.
type decision struct {
	event   sandbox.Event
	written chan struct{}
}

// decided hears every decision of the egress proxy. It does not block.
func (h *Egress) decided(box sandbox.UID, d egress.Decision) {
	h.s.cfg.Metrics.Egress(d.Allow, string(d.Rule))
	r := h.s.Of(box)
	if r == nil {
		return
	}
	if d.Protocol != egress.ProtocolDNS { // a program that asks for a name in vain uses nothing
		r.Touch(context.Background())
	}
	if !d.Allow { // of what is allowed the end is the event
		r.out.list(event.Denied{Host: d.Host, Port: d.Port, Rule: string(d.Rule), Protocol: string(d.Protocol), Message: d.Reason}, event.Unlisted{Denied: 1})
	}
}

// connectionEnded hears what became of every connection that was allowed. It
// does not block.
func (h *Egress) connectionEnded(box sandbox.UID, c egress.Connection) {
	h.s.cfg.Metrics.EgressEnded(string(c.Protocol), string(c.End), c.Duration)
	if r := h.s.Of(box); r != nil {
		r.out.list(event.Allowed{
			Host: c.Host, Port: c.Port, Rule: string(c.Rule), Protocol: string(c.Protocol),
			BytesSent: c.Sent, BytesReceived: c.Received, DurationMS: c.Duration.Milliseconds(), End: string(c.End),
		}, event.Unlisted{Allowed: 1, BytesSent: c.Sent, BytesReceived: c.Received})
	}
}

// writeDecisions writes down what comes, and when ended is closed what is left.
func (h *Egress) writeDecisions(ended <-chan struct{}) {
	for {
		select {
		case d := <-h.s.decisions:
			h.write(d)
		case <-ended:
			h.writeLeft()
			return
		}
	}
}

// writeLeft writes down what has come and is not written yet.
func (h *Egress) writeLeft() {
	for {
		select {
		case d := <-h.s.decisions:
			h.write(d)
		default:
			return
		}
	}
}

func (h *Egress) write(d decision) {
	if d.written != nil {
		close(d.written)
		return
	}
	h.s.cfg.Recorder.Note(context.Background(), d.event)
}
