package egress

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Protocol is how a sandbox asked for a connection.
type Protocol string

const (
	ProtocolConnect Protocol = "connect"
	ProtocolSocks   Protocol = "socks"
	ProtocolHTTP    Protocol = "http" // a request with an absolute URL
)

// End is how a connection ended that was allowed.
type End string

const (
	EndClosed End = ""       // by one of its sides, or with the sandbox
	EndFailed End = "failed" // the host did not answer
	EndDenied End = "denied" // for what the sandbox said on it
	EndCut    End = "cut"    // by a change of the policy
)

// Connection is what became of a request that was allowed.
type Connection struct {
	Decision
	Protocol Protocol
	// Sent and Received are bytes to and from the host, headers of HTTP
	// included.
	Sent, Received int64
	Duration       time.Duration // since it was asked for
	End            End
}

// flow is a request from the moment when it is allowed to its end.
type flow struct {
	s     *stream
	about Connection
	began time.Time
	shut  func() // ends the connection; from any goroutine
	isCut atomic.Bool
}

// begin times a request.
func (s *stream) begin(by Protocol) *flow {
	return &flow{s: s, about: Connection{Protocol: by}, began: time.Now()}
}

// open reports that the request has its connection, by a decision under
// policy, and lets [Proxy.Cut] end it with shut. A policy that changed in the
// meantime holds for it too.
func (f *flow) open(d Decision, policy sandbox.Policy, shut func()) {
	s := f.s
	f.about.Decision, f.shut = d, shut
	s.onDecision(s.box, d)
	s.flows.add(s.box, f)
	if now := s.policy(); !samePolicy(policy, now) && !s.allows(now, d) {
		f.cut()
	}
}

func (f *flow) cut() {
	if f.isCut.CompareAndSwap(false, true) {
		f.shut()
	}
}

// done reports how an open one ended.
func (f *flow) done(sent, received int64, end End) {
	f.s.flows.remove(f.s.box, f)
	if f.isCut.Load() {
		end = EndCut
	}
	f.about.Sent, f.about.Received, f.about.End = sent, received, end
	f.about.Duration = time.Since(f.began)
	f.s.onEnd(f.s.box, f.about)
}

// fail reports an allowed request that got no connection.
func (f *flow) fail(d Decision) {
	f.s.onDecision(f.s.box, d)
	f.about.Decision, f.about.End, f.about.Duration = d, EndFailed, time.Since(f.began)
	f.s.onEnd(f.s.box, f.about)
}

// flows are the open ones, by sandbox.
type flows struct {
	mu    sync.Mutex
	count int
	boxes map[sandbox.UID]map[*flow]struct{}
}

func (o *flows) add(box sandbox.UID, f *flow) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.boxes == nil {
		o.boxes = make(map[sandbox.UID]map[*flow]struct{})
	}
	if o.boxes[box] == nil {
		o.boxes[box] = make(map[*flow]struct{})
	}
	o.boxes[box][f] = struct{}{}
	o.count++
}

func (o *flows) remove(box sandbox.UID, f *flow) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if delete(o.boxes[box], f); len(o.boxes[box]) == 0 {
		delete(o.boxes, box)
	}
	o.count--
}

func (o *flows) of(box sandbox.UID) []*flow {
	o.mu.Lock()
	defer o.mu.Unlock()
	list := make([]*flow, 0, len(o.boxes[box]))
	for f := range o.boxes[box] {
		list = append(list, f)
	}
	return list
}

// Connections is how many connections are open now, of all sandboxes.
func (p *Proxy) Connections() int {
	p.flows.mu.Lock()
	defer p.flows.mu.Unlock()
	return p.flows.count
}

// Cut ends the open connections of a sandbox that policy does not allow, and
// returns how many. The policy that Serve asks for must be the new one already:
// then none that the old one allowed is left.
func (p *Proxy) Cut(box sandbox.UID, policy sandbox.Policy) int {
	n := 0
	for _, f := range p.flows.of(box) {
		if !p.allows(policy, f.about.Decision) {
			f.cut()
			n++
		}
	}
	return n
}

// allows reports whether policy allows what d allowed under another one. Where
// a proxy of its own connects, the address is not known here: rules about
// addresses then deny.
func (p *Proxy) allows(policy sandbox.Policy, d Decision) bool {
	now := p.eval.Decide(policy, d.Host, d.Port)
	if !now.Allow {
		return false
	}
	if d.Address.IsValid() {
		a := d.Address.Addr().Unmap()
		return p.eval.decideAddress(policy, now, a, p.ownClass(a)).Allow
	}
	deny, err := parsePatterns(policy.Deny)
	return err == nil && !slices.ContainsFunc(deny, func(e pattern) bool { return e.prefix.IsValid() && e.port(d.Port) })
}

func samePolicy(a, b sandbox.Policy) bool {
	return a.Mode == b.Mode && slices.Equal(a.Allow, b.Allow) && slices.Equal(a.Deny, b.Deny)
}
