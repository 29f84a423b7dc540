package egress

import (
	"cmp"
	"io"
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
	// ProtocolTransparent: a program connected by itself, knowing of no proxy.
	ProtocolTransparent Protocol = "transparent"
	// ProtocolDNS: a program asked for the address of a name. Of these only what
	// is denied is a decision.
	ProtocolDNS Protocol = "dns"
)

// End is how a connection ended that was allowed.
type End string

const (
	EndClosed End = ""       // by one of its sides, or with the sandbox
	EndFailed End = "failed" // the host did not answer
	EndDenied End = "denied" // for what the sandbox said on it
	EndCut    End = "cut"    // by a change of the policy
)

// Connection is what became of a request that was allowed, or of one that is
// still open what it is by now.
type Connection struct {
	Decision
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
	// sent and received count while bytes flow, over all connections that the
	// request took.
	sent, received atomic.Int64
}

// begin times a request.
func (s *stream) begin(by Protocol) *flow {
	return &flow{s: s, about: Connection{Decision: Decision{Protocol: by}}, began: time.Now()}
}

// decided reports the decision about the request, and returns it with how it was
// asked for.
func (f *flow) decided(d Decision) Decision {
	d.Protocol = f.about.Protocol
	f.s.onDecision(f.s.box, d)
	return d
}

// open reports that the request has its connection, by a decision under
// policy, and lets [Proxy.Cut] end it with shut. A policy that changed in the
// meantime holds for it too.
func (f *flow) open(d Decision, policy sandbox.Policy, shut func()) {
	s := f.s
	f.about.Decision, f.shut = f.decided(d), shut
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
func (f *flow) done(end End) {
	c := f.s.flows.remove(f.s.box, f)
	if c.End = end; f.isCut.Load() {
		c.End = EndCut
	}
	f.s.onEnd(f.s.box, c)
}

// now is what an open one is by now.
func (f *flow) now() Connection {
	c := f.about
	c.Sent, c.Received, c.Duration = f.sent.Load(), f.received.Load(), time.Since(f.began)
	return c
}

// counted counts what is written to a side of a flow.
type counted struct {
	io.Writer
	n *atomic.Int64
}

func (c counted) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	c.n.Add(int64(n))
	return n, err
}

// fail reports an allowed request that got no connection.
func (f *flow) fail(d Decision) {
	f.about.Decision, f.about.End, f.about.Duration = f.decided(d), EndFailed, time.Since(f.began)
	f.s.onEnd(f.s.box, f.about)
}

// flows are the open ones, by sandbox.
type flows struct {
	mu    sync.Mutex
	count int
	boxes map[sandbox.UID]map[*flow]struct{}
	// What those carried that have ended.
	sent, received int64
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

// remove returns what became of f, which is what its bytes are counted as.
func (o *flows) remove(box sandbox.UID, f *flow) Connection {
	o.mu.Lock()
	defer o.mu.Unlock()
	c := f.now()
	o.sent += c.Sent
	o.received += c.Received
	if delete(o.boxes[box], f); len(o.boxes[box]) == 0 {
		delete(o.boxes, box)
	}
	o.count--
	return c
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

// Traffic is how many connections are open now, of all sandboxes, and the bytes
// that these and all earlier ones carried.
func (p *Proxy) Traffic() (open int, sent, received int64) {
	o := &p.flows
	o.mu.Lock()
	defer o.mu.Unlock()
	sent, received = o.sent, o.received
	for _, box := range o.boxes {
		for f := range box {
			sent += f.sent.Load()
			received += f.received.Load()
		}
	}
	return o.count, sent, received
}

// Open is the connections that a sandbox has now, the oldest first.
func (p *Proxy) Open(box sandbox.UID) []Connection {
	var list []Connection
	for _, f := range p.flows.of(box) {
		list = append(list, f.now())
	}
	slices.SortFunc(list, func(a, b Connection) int { return cmp.Compare(b.Duration, a.Duration) })
	return list
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
