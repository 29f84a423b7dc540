package egress

import (
	"context"
	"encoding/base64"
	"errors"
	"net"
	"net/http"
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

// acceptPause is how long it waits when the system has nothing left for another
// connection.
const acceptPause = 100 * time.Millisecond

// Alone serves proxy requests that come over the network, each with a token
// that says what it may reach. Without a good token nothing is reached: 407.
type Alone struct {
	proxy *Proxy
	keys  Keys
	now   func() time.Time
}

// NewAlone returns a proxy that takes the tokens of keys.
func NewAlone(c Config, keys Keys) *Alone { return &Alone{proxy: New(c), keys: keys, now: time.Now} }

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
		streams.Go(func() {
			defer func() { <-places }()
			a.proxy.serve(ctx, conn, &stream{Proxy: a.proxy, conn: conn, admit: a.admit})
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
	s.box, s.policy = sandbox.UID(session), func() sandbox.Policy { return policy }
	return nil
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

// unauthenticated answers a request without a good token.
func unauthenticated(w http.ResponseWriter, err error) {
	w.Header().Set("Connection", "close")
	w.Header().Set("Proxy-Authenticate", `Basic realm="cubby"`)
	http.Error(w, "cubby: "+errs.Public(err).Message, http.StatusProxyAuthRequired)
}
