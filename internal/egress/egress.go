// Package egress decides which hosts a sandbox may reach and carries what is
// allowed. [Evaluator] is the pure policy; [Proxy] is the HTTP proxy that
// enforces it on the streams that sandboxes open.
//
// The guest is hostile: it chooses every byte that the proxy reads. Names are
// decided in one normal form, an address is dialled only after it was checked,
// and what is checked is what is dialled, so a name cannot change its mind in
// between. The proxy never looks into TLS, buffers no bodies and follows no
// redirects.
package egress

import (
	"context"
	"log/slog"
	"net"
	"net/netip"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Operator is the operator's own list of hosts, on top of every policy except
// "none". Only what it names may lie on a private network.
type Operator struct{ entries []entry }

type entry struct {
	host string
	port int // 0: any
}

// ParseOperator reads "host[:port],…"; a host is a name or an IP address.
func ParseOperator(s string) (Operator, error) { return Operator{}, nil }

// Decision is the answer to one request of a sandbox.
type Decision struct {
	Allow  bool
	Host   string // in normal form
	Port   int
	Rule   string // "allowlist", "operator", "open", "none", "private address", …
	Reason string // one sentence for people
	Hint   string // how to allow it; "" when allowed
	// Address is what was dialled, when something was.
	Address string
}

// Resolver looks names up. net.Resolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Config is what a Proxy needs. Zero fields take the system's own resolver and
// dialler, and a silent log.
type Config struct {
	Operator   Operator
	Log        *slog.Logger
	Resolver   Resolver
	Dial       func(ctx context.Context, network, address string) (net.Conn, error)
	OnDecision func(box sandbox.UID, d Decision)
}

// Proxy serves the streams that sandboxes open.
type Proxy struct{ c Config }

// New returns a Proxy. It starts nothing.
func New(c Config) *Proxy { return &Proxy{c: c} }

// Serve answers proxy requests on conn, a stream of box's, until either side
// closes it or ctx ends, and closes it. policy is asked for every request, so
// that a change holds for the next one.
func (p *Proxy) Serve(ctx context.Context, conn net.Conn, box sandbox.UID, policy func() sandbox.Policy) {
	conn.Close()
}
