package egress

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/netip"
	"net/textproto"
	"net/url"
	"sync"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
)

// forward carries a request with an absolute URL.
func (s *stream) forward(w http.ResponseWriter, r *http.Request) {
	hostname, port, err := targetOf(r.URL.Host, 80)
	if err != nil {
		badRequest(w, "malformed host in the URL")
		return
	}
	d := s.eval.Decide(s.policy(), hostname, port)
	if !d.Allow {
		s.refuseRequest(w, r, d, &deniedError{d})
		return
	}

	var report sync.Once // one decision per request, whichever way it goes
	var guard *headerGuard
	trace := &httptrace.ClientTrace{
		GotConn: func(c httptrace.GotConnInfo) {
			if guard, _ = c.Conn.(*headerGuard); guard != nil {
				guard.expect()
			}
			report.Do(func() {
				d.Address, _ = netip.ParseAddrPort(c.Conn.RemoteAddr().String())
				s.onDecision(s.box, d)
			})
		},
		Got1xxResponse: func(int, textproto.MIMEHeader) error {
			if guard != nil {
				guard.expect()
			}
			return nil
		},
	}
	rp := &httputil.ReverseProxy{
		Transport:     s.transport,
		FlushInterval: -1,
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.Out.URL.Host = d.HostPort()
			pr.Out.Host = pr.In.URL.Host // never a Host header that differs from what was decided
			keepForwarded(pr)
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			reported := true
			report.Do(func() { reported = false })
			if reported {
				// The guest sees a failed connection, not a failed decision.
				s.log.Debug("egress upstream", "sandbox", s.box, "host", d.Host, "err", err)
				http.Error(w, "cubby: the connection to "+d.HostPort()+" broke", http.StatusBadGateway)
				return
			}
			s.refuseRequest(w, r, d, err)
		},
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	// An answer may begin while the request is still being sent.
	_ = http.NewResponseController(w).EnableFullDuplex()
	rp.ServeHTTP(w, r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
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
func (s *stream) refuseRequest(w http.ResponseWriter, r *http.Request, d Decision, err error) {
	if r.ContentLength == 0 {
		s.refuse(w, d, err)
		return
	}
	if denied, ok := asDenied(err); ok {
		s.onDecision(s.box, denied)
		http.Error(w, denialText(denied), http.StatusForbidden)
		return
	}
	s.onDecision(s.box, d)
	s.log.Debug("egress upstream", "sandbox", s.box, "host", d.Host, "err", err)
	http.Error(w, "cubby: "+errs.Public(err).Message, http.StatusBadGateway)
}

// newTransport makes the stream's own connection pool: no two sandboxes ever
// speak on one upstream connection.
func (s *stream) newTransport() *http.Transport {
	return &http.Transport{
		Proxy: func(*http.Request) (*url.URL, error) { return nil, nil },
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			hostname, port, err := targetOf(addr, 0)
			if err != nil {
				return nil, err
			}
			conn, _, err := s.dial(ctx, hostname, port)
			if err != nil {
				return nil, err
			}
			return &headerGuard{Conn: conn}, nil
		},
		DisableCompression:     true,
		MaxIdleConns:           8,
		MaxIdleConnsPerHost:    2,
		IdleConnTimeout:        30 * time.Second,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: maxHeaderBytes,
		ForceAttemptHTTP2:      false,
	}
}
