package egress

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/tenancy"
)

const (
	headerTimeout  = 30 * time.Second // to send a request's header
	idleTimeout    = 5 * time.Minute  // between two requests of a stream
	maxHeaderBytes = 32 << 10
)

// Config is what a Proxy needs. Zero fields take the system's resolver and
// dialler, and a silent log.
type Config struct {
	Operator Operator
	Log      *slog.Logger
	Resolver Resolver
	Dial     func(ctx context.Context, network, address string) (net.Conn, error)
	// OnDecision hears every decision, one per request, before the first
	// byte of the answer, and one more when TLS asks for another host than
	// was allowed. OnEnd hears what became of every request that was allowed.
	// They must not block.
	OnDecision func(box sandbox.UID, d Decision)
	OnEnd      func(box sandbox.UID, c Connection)
	// Upstream, when not nil, makes the connections instead of this proxy.
	Upstream *Upstream
}

// Proxy serves the streams that sandboxes open. It is safe for concurrent use
// and shares nothing between streams.
type Proxy struct {
	eval       *Evaluator
	log        *slog.Logger
	resolver   Resolver
	dialer     func(ctx context.Context, network, address string) (net.Conn, error)
	ownAddrs   func() ([]net.Addr, error)
	onDecision func(box sandbox.UID, d Decision)
	onEnd      func(box sandbox.UID, c Connection)
	upstream   *Upstream // nil: it connects by itself
	flows      flows
	questions  questions
	streams    *tenancy.Places
	lookups    *tenancy.Turns
}

// New returns a Proxy. It starts nothing.
func New(c Config) *Proxy {
	p := &Proxy{
		eval: NewEvaluator(c.Operator), log: c.Log, resolver: c.Resolver,
		dialer: c.Dial, ownAddrs: net.InterfaceAddrs, onDecision: c.OnDecision, onEnd: c.OnEnd, upstream: c.Upstream,
		streams: tenancy.NewPlaces(streamsOpen, streamBound), lookups: tenancy.NewTurns(lookupBound),
	}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	if p.resolver == nil {
		p.resolver = net.DefaultResolver
	}
	if p.dialer == nil {
		p.dialer = new(net.Dialer).DialContext
	}
	if p.onDecision == nil {
		p.onDecision = func(sandbox.UID, Decision) {}
	}
	if p.onEnd == nil {
		p.onEnd = func(sandbox.UID, Connection) {}
	}
	return p
}

// Serve answers one guest stream, as the door by which it came wants, until either side
// closes it or ctx ends; it closes conn and returns when nothing of it is left.
// policy is asked for every request, so a change holds from the next one on
// (for names: see [Proxy.PolicyChanged]). A
// stream beyond what its sandbox or tenant may have open is answered 503.
func (p *Proxy) Serve(ctx context.Context, conn net.Conn, door sandbox.Door, from Guest, policy func() sandbox.Policy) {
	leave, err := p.streams.EnterFor(from.Tenant, string(from.Box))
	if err != nil {
		turnAway(ctx, conn, door, err)
		return
	}
	defer leave()
	s := &stream{Proxy: p, box: from.Box, tenant: from.Tenant, policy: policy, conn: conn}
	switch door {
	case sandbox.DoorConnect:
		s.whole(ctx, s.transparent)
	case sandbox.DoorResolve:
		s.whole(ctx, s.resolve)
	case sandbox.DoorProxy:
		p.serve(ctx, conn, s)
	default:
		conn.Close()
	}
}

// whole serves a stream that is one thing from its beginning to its end.
func (s *stream) whole(ctx context.Context, serve func(context.Context)) {
	stop := context.AfterFunc(ctx, func() { s.conn.Close() })
	defer stop()
	defer s.conn.Close()
	serve(ctx)
}

func (p *Proxy) serve(ctx context.Context, conn net.Conn, s *stream) {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	defer conn.Close()
	first := make([]byte, 1)
	_ = conn.SetReadDeadline(time.Now().Add(headerTimeout))
	if _, err := io.ReadFull(conn, first); err != nil {
		return
	}
	_ = conn.SetReadDeadline(time.Time{})
	if first[0] == socksVersion {
		if s.admit == nil { // SOCKS carries no token
			s.socks(ctx)
		}
		return
	}
	defer func() {
		if s.transport != nil {
			s.transport.CloseIdleConnections()
		}
	}()

	guard := &headerGuard{Conn: &replayed{Conn: conn, first: first}}
	l := newSingleListener(guard)
	srv := &http.Server{
		Handler:           s,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(p.log.Handler(), slog.LevelDebug),
		// "OPTIONS *" asks about a server; this is none.
		DisableGeneralOptionsHandler: true,
		BaseContext:                  func(net.Listener) context.Context { return ctx },
		ConnState: func(_ net.Conn, st http.ConnState) {
			switch st {
			case http.StateClosed:
				_ = l.Close()
			case http.StateHijacked:
				// The server has forgotten it; the handler ends it.
				s.hijacked.Store(true)
			case http.StateIdle:
				guard.expect()
			case http.StateNew, http.StateActive:
			}
		},
	}
	s.end = l.Close
	_ = srv.Serve(l) // always net.ErrClosed: the stream has ended
	s.running.Wait()
}

// stream is one guest stream while it is served.
type stream struct {
	*Proxy
	box       sandbox.UID
	tenant    string     // whose share of lookups it takes, with the box; of a proxy alone, its session
	from      netip.Addr // of a proxy alone, where it came from
	policy    func() sandbox.Policy
	admit     func(*stream, *http.Request) error // sets box and policy by the request; nil: they are known
	conn      net.Conn
	transport *http.Transport // with connections that were made under asked; nil before the first request
	asked     sandbox.Policy
	end       func() error   // lets Serve return
	hijacked  atomic.Bool    // conn belongs to the handler
	running   sync.WaitGroup // handlers; one that took conn over outlives its server
}

// ServeHTTP answers one request of the guest.
func (s *stream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.running.Add(1)
	defer s.running.Done()
	defer func() {
		if s.hijacked.Load() {
			s.conn.Close()
			_ = s.end()
		}
	}()
	if s.admit != nil {
		if err := s.admit(s, r); err != nil {
			d := Decision{Host: printable(r.Host, 80)}
			if host, port, err := targetOf(r.Host, 80); err == nil {
				d.Host, d.Port = printable(host, 80), port
			}
			d.Protocol = requestProtocol(r)
			s.onDecision(s.box, d.denied(RuleToken, errs.Public(err).Message, ""))
			notAdmitted(w, err)
			return
		}
		r.Header.Del("Proxy-Authorization")
	}
	switch {
	case r.Method == http.MethodConnect:
		s.tunnel(w, r)
	case r.URL.Host == "" || r.URL.Opaque != "":
		badRequest(w, "Invalid proxy request", "this is an HTTP proxy: it takes absolute URLs and CONNECT")
	case r.URL.Scheme != "http":
		badRequest(w, "Invalid proxy request", "this proxy carries http URLs; use CONNECT for anything else")
	default:
		s.forward(w, r)
	}
}

func requestProtocol(r *http.Request) Protocol {
	if r.Method == http.MethodConnect {
		return ProtocolConnect
	}
	return ProtocolHTTP
}

// badRequest answers what cannot be decided: what it is, in agentbox's words,
// and why.
func badRequest(w http.ResponseWriter, what, why string) {
	w.Header().Set("Connection", "close")
	http.Error(w, what+"\ncubby: "+why, http.StatusBadRequest)
}

// singleListener is a net.Listener of one connection. Its second Accept blocks
// until it is closed.
type singleListener struct {
	conn   chan net.Conn
	addr   net.Addr
	once   sync.Once
	closed chan struct{}
}

func newSingleListener(c net.Conn) *singleListener {
	l := &singleListener{conn: make(chan net.Conn, 1), addr: c.LocalAddr(), closed: make(chan struct{})}
	l.conn <- c
	return l
}

func (l *singleListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *singleListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *singleListener) Addr() net.Addr { return l.addr }
