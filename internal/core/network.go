package core

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/cubbyhq/cubby/internal/egress"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

const (
	// A sandbox that asks very often gets no event for each time.
	listedRate  = 5 // a second
	listedBurst = 50
	// unlistedEvery is how often a history says what has no event.
	unlistedEvery = 10 * time.Second
	// hangUpTime is how long the end of a sandbox waits for its connections to
	// be in the history: a moment, unless the host has too much to do.
	hangUpTime = 10 * time.Second
)

// ExplainEgress tells what a sandbox would get that asks for target, as "host"
// or "host:port", and which rule decides. The name is looked up; nothing is
// connected, and the sandbox's history does not have it.
func (s *Service) ExplainEgress(ctx context.Context, id, target string) (egress.Decision, error) {
	b, err := s.scope.Find(ctx, id)
	if err != nil {
		return egress.Decision{}, err
	}
	host, port, err := egress.Target(target)
	if err != nil {
		return egress.Decision{}, err
	}
	return s.proxy.Explain(ctx, egress.Guest{Box: b.UID, Tenant: b.Tenant}, b.Spec.Network, host, port)
}

// EgressConnections is the connections to hosts outside that a sandbox has
// now, the oldest first, with what each carried so far. A sandbox that does not
// run has none.
func (s *Service) EgressConnections(ctx context.Context, id string) ([]egress.Connection, error) {
	b, err := s.scope.Find(ctx, id)
	if err != nil {
		return nil, err
	}
	return s.proxy.Open(b.UID), nil
}

// EgressTraffic is how many connections sandboxes have to hosts outside, and
// the bytes that these and all before them carried.
func (s *Service) EgressTraffic() (open int, sent, received int64) { return s.proxy.Traffic() }

// network is the egress streams of a run that end together.
type network struct {
	ctx     context.Context
	cancel  context.CancelFunc
	used    bool           // guarded by the run's mu
	streams sync.WaitGroup // Add only under the run's mu, while it is the run's
}

func newNetwork(ctx context.Context) *network {
	n := &network{}
	n.ctx, n.cancel = context.WithCancel(ctx)
	return n
}

// serveStream carries one stream that the sandbox opened to the outside.
func (r *run) serveStream(conn net.Conn, door sandbox.Door) {
	r.mu.Lock()
	n := r.net
	n.used = true
	n.streams.Add(1)
	r.mu.Unlock()
	served := r.s.gate.Spawn(func(context.Context) {
		defer n.streams.Done()
		r.s.proxy.Serve(n.ctx, conn, door, egress.Guest{Box: r.uid, Tenant: r.tenant}, func() sandbox.Policy { return r.spec.Load().Network })
	})
	if !served {
		n.streams.Done()
		conn.Close()
	}
}

// hangUp ends the streams that are open. When it returns their ends are in the
// history, or that takes too long to wait for.
func (r *run) hangUp() {
	r.mu.Lock()
	n := r.net
	r.net = newNetwork(r.ctx)
	used := n.used
	r.mu.Unlock()
	n.cancel()
	if !used {
		return
	}
	written := make(chan struct{})
	waiting := r.s.gate.Spawn(func(context.Context) {
		n.streams.Wait()
		r.tellUnlisted()
		r.s.decisions <- decision{written: written}
	})
	if !waiting {
		return
	}
	t := time.NewTimer(hangUpTime)
	defer t.Stop()
	select {
	case <-written:
	case <-t.C:
	}
}

// decision is an event to be written down, or asks to be told when those
// before it are.
type decision struct {
	event   sandbox.Event
	written chan struct{}
}

// decided hears every decision of the egress proxy. It does not block.
func (s *Service) decided(box sandbox.UID, d egress.Decision) {
	s.metrics.Egress(d.Allow, string(d.Rule))
	r := s.runOf(box)
	if r == nil {
		return
	}
	if d.Protocol != egress.ProtocolDNS { // a program that asks for a name in vain uses nothing
		r.active(context.Background())
	}
	if !d.Allow { // of what is allowed the end is the event
		r.list(event.Denied{Host: d.Host, Port: d.Port, Rule: string(d.Rule), Protocol: string(d.Protocol), Message: d.Reason}, event.Unlisted{Denied: 1})
	}
}

// connectionEnded hears what became of every connection that was allowed. It
// does not block.
func (s *Service) connectionEnded(box sandbox.UID, c egress.Connection) {
	s.metrics.EgressEnded(string(c.Protocol), string(c.End), c.Duration)
	if r := s.runOf(box); r != nil {
		r.list(event.Allowed{
			Host: c.Host, Port: c.Port, Rule: string(c.Rule), Protocol: string(c.Protocol),
			BytesSent: c.Sent, BytesReceived: c.Received, DurationMS: c.Duration.Milliseconds(), End: string(c.End),
		}, event.Unlisted{Allowed: 1, BytesSent: c.Sent, BytesReceived: c.Received})
	}
}

// list has an event about egress written down, or when there are too many
// counts it as one that is not.
func (r *run) list(p event.Payload, otherwise event.Unlisted) {
	s := r.s
	e := event.New(r.uid, "", p)
	e.Time = s.now()
	if r.listed.Allow() {
		select {
		case s.decisions <- decision{event: e}:
			return
		default:
		}
	}
	s.metrics.EgressUnlisted()
	r.mu.Lock()
	defer r.mu.Unlock()
	u := &r.unlisted
	u.Allowed += otherwise.Allowed
	u.Denied += otherwise.Denied
	u.BytesSent += otherwise.BytesSent
	u.BytesReceived += otherwise.BytesReceived
	if r.telling {
		return
	}
	// Where nothing is spawned any more the end of the service tells.
	r.telling = s.gate.Spawn(func(context.Context) {
		t := time.NewTimer(unlistedEvery)
		defer t.Stop()
		select {
		case <-t.C:
		case <-r.ctx.Done():
		}
		r.tellUnlisted()
	})
}

// tellUnlisted says in the history what has no event of its own. When it returns
// all of that is written, whoever began to.
func (r *run) tellUnlisted() {
	r.tells.Lock()
	defer r.tells.Unlock()
	r.mu.Lock()
	u := r.unlisted
	r.unlisted, r.telling = event.Unlisted{}, false
	r.mu.Unlock()
	if u == (event.Unlisted{}) {
		return
	}
	r.s.log.Info("not every connection has an event", telemetry.KeyUID, r.uid, "allowed", u.Allowed, "denied", u.Denied)
	r.s.recorder.Note(context.Background(), event.New(r.uid, "", u))
}

// writeDecisions writes down what comes, and when ended is closed what is left.
func (s *Service) writeDecisions(ended <-chan struct{}) {
	for {
		select {
		case d := <-s.decisions:
			s.write(d)
			continue
		default:
		}
		select {
		case d := <-s.decisions:
			s.write(d)
		case <-ended:
			return
		}
	}
}

func (s *Service) write(d decision) {
	if d.written != nil {
		close(d.written)
		return
	}
	s.recorder.Note(context.Background(), d.event)
}
