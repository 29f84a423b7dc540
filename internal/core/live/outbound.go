package live

import (
	"context"
	"net"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/cubbyhq/cubby/internal/core/gate"
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

// outbound is the way of one sandbox to other hosts.
type outbound struct {
	run    *Run
	lent   lent
	listed *rate.Limiter // events about what the egress proxy decides
	// accepting is the goroutine that takes the sandbox's streams.
	accepting sync.WaitGroup
	// tells is held while unlisted is told of, before mu.
	tells sync.Mutex

	mu       sync.Mutex
	net      *network       // of the streams that come next; guarded by mu
	unlisted event.Unlisted // since the last event that said so; guarded by mu
	telling  bool           // somebody will tell of unlisted; guarded by mu
}

func newOutbound(r *Run) *outbound {
	return &outbound{run: r, listed: rate.NewLimiter(listedRate, listedBurst), net: newNetwork(r.ctx)}
}

// network is the egress streams of a run that end together.
type network struct {
	ctx     context.Context
	cancel  context.CancelFunc
	used    bool           // guarded by outbound.mu
	streams sync.WaitGroup // Add only under outbound.mu, while it is the outbound's
}

func newNetwork(ctx context.Context) *network {
	n := &network{}
	n.ctx, n.cancel = context.WithCancel(ctx)
	return n
}

// begin accepts streams in a goroutine of its own.
func (o *outbound) begin() {
	o.accepting.Add(1)
	if !o.run.s.cfg.Gate.Spawn(func(context.Context) { defer o.accepting.Done(); o.serve() }) {
		o.accepting.Done()
	}
}

// serve carries the streams that the sandbox opens to the outside.
func (o *outbound) serve() {
	r := o.run
	pauses := gate.NewPauses()
	for {
		conn, door, err := r.s.cfg.Driver.AcceptEgress(r.ctx, r.Handle)
		if r.ctx.Err() != nil {
			if err == nil {
				conn.Close()
			}
			return
		}
		if err != nil {
			r.sleep(pauses.NextBackOff())
			continue
		}
		pauses.Reset()
		o.serveStream(conn, door)
	}
}

// serveStream carries one of them.
func (o *outbound) serveStream(conn net.Conn, door sandbox.Door) {
	r := o.run
	o.mu.Lock()
	n := o.net
	n.used = true
	n.streams.Add(1)
	o.mu.Unlock()
	served := r.s.cfg.Gate.Spawn(func(context.Context) {
		defer n.streams.Done()
		r.s.proxy.Serve(n.ctx, conn, door, egress.Guest{Box: r.UID, Tenant: r.Tenant}, o.policy)
	})
	if !served {
		n.streams.Done()
		conn.Close()
	}
}

// HangUp ends the streams to other hosts that are open. When it returns their
// ends are in the history, or that takes too long to wait for.
func (r *Run) HangUp() {
	o := r.out
	o.mu.Lock()
	n := o.net
	o.net = newNetwork(r.ctx)
	used := n.used
	o.mu.Unlock()
	n.cancel()
	if !used {
		return
	}
	written := make(chan struct{})
	waiting := r.s.cfg.Gate.Spawn(func(context.Context) {
		n.streams.Wait()
		o.tellUnlisted()
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

// list has an event about egress written down, or when there are too many
// counts it as one that is not.
func (o *outbound) list(p event.Payload, otherwise event.Unlisted) {
	s := o.run.s
	e := event.New(o.run.UID, "", p)
	e.Time = s.cfg.Now()
	if o.listed.Allow() {
		select {
		case s.decisions <- decision{event: e}:
			return
		default:
		}
	}
	s.cfg.Metrics.EgressUnlisted()
	o.mu.Lock()
	defer o.mu.Unlock()
	u := &o.unlisted
	u.Allowed += otherwise.Allowed
	u.Denied += otherwise.Denied
	u.BytesSent += otherwise.BytesSent
	u.BytesReceived += otherwise.BytesReceived
	if o.telling {
		return
	}
	// Where nothing is spawned any more the end of the service tells.
	o.telling = s.cfg.Gate.Spawn(func(context.Context) {
		t := time.NewTimer(unlistedEvery)
		defer t.Stop()
		select {
		case <-t.C:
		case <-o.run.ctx.Done():
		}
		o.tellUnlisted()
	})
}

// tellUnlisted says in the history what has no event of its own. When it returns
// all of that is written, whoever began to.
func (o *outbound) tellUnlisted() {
	o.tells.Lock()
	defer o.tells.Unlock()
	o.mu.Lock()
	u := o.unlisted
	o.unlisted, o.telling = event.Unlisted{}, false
	o.mu.Unlock()
	if u == (event.Unlisted{}) {
		return
	}
	cfg := o.run.s.cfg
	cfg.Log.Info("not every connection has an event", telemetry.KeyUID, o.run.UID, "allowed", u.Allowed, "denied", u.Denied)
	cfg.Recorder.Note(context.Background(), event.New(o.run.UID, "", u))
}
