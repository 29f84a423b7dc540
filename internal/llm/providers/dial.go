package providers

import (
	"context"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/cubbyhq/cubby/internal/address"
)

// Resolver looks names up. [net.Resolver] is one.
type Resolver = *net.Resolver

// transports has the connections of a set: those to where the operator, or nobody,
// said, and those to where others said. They are not mixed.
type transports struct{ trusted, guarded *http.Transport }

func newTransports(r Resolver) *transports {
	trusted := transport(&net.Dialer{Timeout: dialTimeout, Resolver: r})
	// The daemon's proxy is for the operator's addresses. For others it would be
	// what connects, to wherever a name leads it.
	trusted.Proxy = http.ProxyFromEnvironment
	return &transports{trusted, transport(&net.Dialer{Timeout: dialTimeout, Resolver: r, ControlContext: publicOnly})}
}

const dialTimeout = 15 * time.Second

func transport(d *net.Dialer) *http.Transport {
	return &http.Transport{
		DialContext:            d.DialContext,
		ForceAttemptHTTP2:      true,
		TLSHandshakeTimeout:    10 * time.Second,
		IdleConnTimeout:        90 * time.Second,
		MaxIdleConns:           100,
		MaxIdleConnsPerHost:    8,
		MaxResponseHeaderBytes: 256 << 10,
	}
}

func (t *transports) client(trusted bool) *http.Client {
	if trusted {
		return &http.Client{Transport: t.trusted}
	}
	return &http.Client{Transport: t.guarded}
}

func (t *transports) close() {
	t.trusted.CloseIdleConnections()
	t.guarded.CloseIdleConnections()
}

// publicOnly is asked about each address before it is connected to, after its name
// was looked up: what the name leads to later does not matter.
func publicOnly(_ context.Context, _, to string, _ syscall.RawConn) error {
	if c := address.OfDialed(to); c != address.Public {
		return addressError{c}
	}
	return nil
}

// addressError is an address that a base URL may not lead to.
type addressError struct{ class address.Class }

func (e addressError) Error() string { return "a " + string(e.class) + " address" }

// RefusedAddress is what a user may read.
func (e addressError) RefusedAddress() string {
	return "its base URL leads to a " + string(e.class) + " address; only the operator's may"
}
