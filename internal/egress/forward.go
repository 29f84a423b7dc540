package egress

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// forward carries a request with an absolute URL.
func (s *stream) forward(w http.ResponseWriter, r *http.Request) {
	hostname, port, err := targetOf(r.URL.Host, 80)
	if err != nil {
		badRequest(w, "Could not parse host from URL", "malformed host in the URL")
		return
	}
	f, policy := s.begin(ProtocolHTTP), s.policy()
	d := s.eval.Decide(policy, hostname, port)
	if !d.Allow {
		s.refuseRequest(w, r, f, d, &deniedError{d})
		return
	}
	if s.transport == nil || !samePolicy(s.asked, policy) {
		// A kept connection leads to an address that the policy allowed then.
		if s.transport != nil {
			s.transport.CloseIdleConnections()
		}
		s.transport, s.asked = s.newTransport(policy), policy
	}

	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	var report sync.Once // one decision per request, whichever way it goes
	var conn *hostConn
	defer func() {
		if conn != nil { // it was opened
			conn.carries.Store(nil)
			f.done(EndClosed)
		}
	}()
	trace := &httptrace.ClientTrace{
		GotConn: func(c httptrace.GotConnInfo) {
			// As the transport's dial made it. A request that is sent again
			// has more than one.
			conn = c.Conn.(*hostConn)
			conn.expect()
			conn.carries.Store(f)
			report.Do(func() {
				d.Address = conn.address
				f.open(d, policy, func() {
					cancel()
					s.conn.Close()
				})
			})
		},
	}
	rp := &httputil.ReverseProxy{
		Transport:     s.transport,
		FlushInterval: -1,
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.Out.URL.Host = d.HostPort()
			pr.Out.Host = pr.In.URL.Host   // never a Host header that differs from what was decided
			pr.Out.Trailer = pr.In.Trailer // itself: its values come after the body
			keepForwarded(pr)
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			reported := true
			report.Do(func() { reported = false })
			if reported {
				// The guest sees a failed connection, not a failed decision.
				s.log.Debug("egress upstream", "sandbox", s.box, "host", d.Host, "err", err)
				http.Error(w, failureText(ProtocolHTTP, "the connection to "+d.HostPort()+" broke"), http.StatusBadGateway)
				return
			}
			s.refuseRequest(w, r, f, d, err)
		},
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	// An answer may begin while the request is still being sent.
	_ = http.NewResponseController(w).EnableFullDuplex()
	rp.ServeHTTP(w, r.WithContext(httptrace.WithClientTrace(ctx, trace)))
}

// keepForwarded gives the headers back that ReverseProxy takes away as a
// gateway would: this proxy is on the client's side.
func keepForwarded(pr *httputil.ProxyRequest) {
	for _, k := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if v, ok := pr.In.Header[k]; ok {
			pr.Out.Header[k] = v
		}
	}
}

// refuseRequest is refuse for a request that may have a body: one that has is
// answered through the server, which reads the rest of it away.
func (s *stream) refuseRequest(w http.ResponseWriter, r *http.Request, f *flow, d Decision, err error) {
	if r.ContentLength == 0 {
		s.refuse(w, f, d, err)
		return
	}
	if denied, ok := asDenied(err); ok {
		f.decided(denied)
		http.Error(w, denialText(denied), http.StatusForbidden)
		return
	}
	f.fail(d)
	s.log.Debug("egress upstream", "sandbox", s.box, "host", d.Host, "err", err)
	http.Error(w, failureText(ProtocolHTTP, errs.Public(err).Message), http.StatusBadGateway)
}

// hostConn is a connection to a host that carries requests, one after another.
type hostConn struct {
	headerGuard
	address netip.AddrPort       // that was decided; invalid behind another proxy
	carries atomic.Pointer[flow] // the request that it is for now
}

func (c *hostConn) Read(p []byte) (int, error) {
	n, err := c.headerGuard.Read(p)
	if f := c.carries.Load(); f != nil {
		f.received.Add(int64(n))
	}
	return n, err
}

func (c *hostConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if f := c.carries.Load(); f != nil {
		f.sent.Add(int64(n))
	}
	return n, err
}

// newTransport makes the stream's own connection pool: no two sandboxes ever
// speak on one upstream connection, and none was made under another policy.
func (s *stream) newTransport(policy sandbox.Policy) *http.Transport {
	return &http.Transport{
		Proxy: func(*http.Request) (*url.URL, error) { return nil, nil },
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			hostname, port, err := targetOf(addr, 0)
			if err != nil {
				return nil, err
			}
			conn, d, err := s.dial(ctx, policy, hostname, port)
			if err != nil {
				return nil, err
			}
			return &hostConn{headerGuard: headerGuard{Conn: conn, answers: true}, address: d.Address}, nil
		},
		DisableCompression:     true,
		MaxIdleConns:           2, // a stream carries one request at a time, mostly to one host
		MaxIdleConnsPerHost:    2,
		IdleConnTimeout:        30 * time.Second,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: maxHeaderBytes,
		ForceAttemptHTTP2:      false,
	}
}
