package egress

import (
	"context"
	"encoding/base64"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// maxStreams bounds the connections that a proxy alone serves at once.
const maxStreams = 10_000

// maxSessionStreams bounds those of one session, so that it leaves some to the
// others. A sandbox has fewer open at once.
const maxSessionStreams = 2048

// maxStrangers bounds the connections from one address that have shown no good
// token yet: who has none cannot keep the proxy from those that do.
const maxStrangers = 1024

// acceptPause is how long it waits when the system has nothing left for another
// connection.
const acceptPause = 100 * time.Millisecond

// Alone serves proxy requests that come over the network, each with a token
// that says what it may reach. Without a good token nothing is reached: 407.
type Alone struct {
	proxy      *Proxy
	keys       Keys
	now        func() time.Time
	perSession int // connections
	strangers  int // connections of one address

	mu        sync.Mutex
	streams   map[sandbox.UID]int // connections of each session that has one; guarded by mu
	addresses map[netip.Addr]int  // connections of each address without a session; guarded by mu
}

// NewAlone returns a proxy that takes the tokens of keys.
func NewAlone(c Config, keys Keys) *Alone {
	return &Alone{proxy: New(c), keys: keys, now: time.Now, perSession: maxSessionStreams, strangers: maxStrangers}
}

// Traffic is [Proxy.Traffic].
func (a *Alone) Traffic() (open int, sent, received int64) { return a.proxy.Traffic() }

// Serve answers until ctx ends; then it closes the listener and every
// connection, and returns when nothing is left of them. Its error is the
// listener's.
func (a *Alone) Serve(ctx context.Context, l net.Listener) error {
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	var streams sync.WaitGroup
	defer streams.Wait()
	places := make(chan struct{}, maxStreams)
	for {
		select {
		case places <- struct{}{}: // who comes too many waits in the kernel's queue
		case <-ctx.Done():
			return nil
		}
		conn, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			<-places
			if isExhausted(err) {
				// Whoever holds the descriptors must not end the proxy for all.
				a.proxy.log.Error("taking a connection", "err", err)
				select {
				case <-time.After(acceptPause):
				case <-ctx.Done():
				}
				continue
			}
			return errs.E(errs.Unavailable, "the proxy cannot take connections").Because(err)
		}
		from := addressOf(conn.RemoteAddr())
		if !a.arrive(from) {
			conn.Close()
			<-places
			continue
		}
		streams.Go(func() {
			defer func() { <-places }()
			s := &stream{Proxy: a.proxy, conn: conn, admit: a.admit, from: from}
			defer a.leave(s)
			a.proxy.serve(ctx, conn, s)
		})
	}
}

// isExhausted reports an error of Accept that passes when something is closed.
func isExhausted(err error) bool {
	return slices.ContainsFunc([]error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM}, func(e error) bool { return errors.Is(err, e) })
}

// admit reads the token of a request. A connection is one session's: its later
// requests may have a newer token, and none of another session's.
func (a *Alone) admit(s *stream, r *http.Request) error {
	session, policy, err := a.keys.verify(proxyToken(r.Header), a.now())
	if err != nil {
		return err
	}
	if s.box != "" && string(s.box) != session {
		return errs.E(errs.Unauthenticated, "the connection belongs to another session")
	}
	if s.box == "" && !a.enter(sandbox.UID(session), s.from) {
		return errs.E(errs.OverQuota, "the session has %d connections, which is the most", a.perSession)
	}
	s.box, s.tenant, s.policy = sandbox.UID(session), session, func() sandbox.Policy { return policy }
	return nil
}

// arrive counts a connection that has shown no token; false when its address
// has the most of these.
func (a *Alone) arrive(from netip.Addr) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.addresses[from] >= a.strangers {
		return false
	}
	if a.addresses == nil {
		a.addresses = make(map[netip.Addr]int)
	}
	a.addresses[from]++
	return true
}

// known forgets it as one. It is called with mu held.
func (a *Alone) known(from netip.Addr) {
	if a.addresses[from]--; a.addresses[from] <= 0 {
		delete(a.addresses, from)
	}
}

// addressOf is whom a connection without a token is counted for: one IPv4
// address, or the /64 that an IPv6 host can choose its addresses from.
func addressOf(remote net.Addr) netip.Addr {
	at, err := netip.ParseAddrPort(remote.String())
	if err != nil {
		return netip.Addr{}
	}
	addr := at.Addr().Unmap().WithZone("")
	if p, err := addr.Prefix(64); err == nil && addr.Is6() {
		return p.Addr()
	}
	return addr
}

// enter counts a connection as one of a session; false when that has the most.
func (a *Alone) enter(session sandbox.UID, from netip.Addr) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.streams[session] >= a.perSession {
		return false
	}
	if a.streams == nil {
		a.streams = make(map[sandbox.UID]int)
	}
	a.streams[session]++
	a.known(from)
	return true
}

// leave forgets a connection that is over.
func (a *Alone) leave(s *stream) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.box == "" { // it never had a good token
		a.known(s.from)
		return
	}
	if a.streams[s.box]--; a.streams[s.box] <= 0 {
		delete(a.streams, s.box)
	}
}

// proxyToken is the token that a request has: a bearer's, or the password of
// anybody behind "jwt_".
func proxyToken(h http.Header) string {
	scheme, value, _ := strings.Cut(h.Get("Proxy-Authorization"), " ")
	value = strings.TrimSpace(value)
	switch {
	case strings.EqualFold(scheme, "bearer"):
		return strings.TrimPrefix(value, "jwt_")
	case strings.EqualFold(scheme, "basic"):
		if len(value) > 2*maxToken {
			return ""
		}
		text, err := base64.StdEncoding.DecodeString(value)
		if err != nil {
			return ""
		}
		_, password, _ := strings.Cut(string(text), ":")
		token, ok := strings.CutPrefix(password, "jwt_")
		if ok {
			return token
		}
	}
	return ""
}

// notAdmitted answers a request without a good token, or of a session that has
// too many connections.
func notAdmitted(w http.ResponseWriter, err error) {
	w.Header().Set("Connection", "close")
	if errs.KindOf(err) == errs.OverQuota {
		http.Error(w, "cubby: "+errs.Public(err).Message, http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Proxy-Authenticate", `Basic realm="cubby"`)
	http.Error(w, "cubby: "+errs.Public(err).Message, http.StatusProxyAuthRequired)
}
