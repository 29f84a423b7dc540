package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	"github.com/cubbyhq/cubby/internal/address"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

const (
	lookupTimeout  = 10 * time.Second
	addressTimeout = 10 * time.Second // per address of a name
	dialTimeout    = 30 * time.Second // for all of them
	maxAddresses   = 8
)

// Resolver looks names up. [net.Resolver] is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// deniedError carries a denial out of a dial.
type deniedError struct{ d Decision }

func (e *deniedError) Error() string { return e.d.Reason }

// dial decides on host:port, looks the name up, and connects to the first
// address that policy allows and that answers. The error is a *deniedError, or
// says what went wrong on the way.
func (s *stream) dial(ctx context.Context, policy sandbox.Policy, hostname string, port int) (net.Conn, Decision, error) {
	p := s.Proxy
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	d := p.eval.Decide(policy, hostname, port)
	if !d.Allow {
		return nil, d, &deniedError{d}
	}
	if p.upstream != nil {
		conn, err := p.upstream.connect(ctx, p.dialer, s.box, policy, d)
		return conn, d, err
	}
	addrs, err := p.lookup(ctx, Guest{Box: s.box, Tenant: s.tenant}, d)
	if err != nil {
		return nil, d, err
	}
	var denied, failed error
	for _, a := range addrs[:min(len(addrs), maxAddresses)] {
		checked := p.eval.decideAddress(policy, d, a, p.ownClass(a))
		if !checked.Allow {
			denied = &deniedError{checked}
			continue
		}
		conn, err := p.connect(ctx, netip.AddrPortFrom(a, uint16(port)))
		if err != nil {
			failed = err
			continue
		}
		d.Address = netip.AddrPortFrom(a, uint16(port))
		return conn, d, nil
	}
	switch {
	case failed != nil:
		return nil, d, errs.E(errs.Unavailable, "%s does not answer", d.HostPort()).Because(failed)
	case denied != nil:
		return nil, d, denied
	}
	return nil, d, errs.E(errs.Unavailable, "%s has no address", d.Host)
}

func (p *Proxy) lookup(ctx context.Context, from Guest, d Decision) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(d.Host); err == nil {
		return []netip.Addr{a}, nil
	}
	done, err := p.lookups.TakeFor(ctx, from.Tenant, string(from.Box))
	if err != nil {
		return nil, errs.E(errs.Unavailable, "%s cannot be looked up: too many names are", d.Host).Because(err)
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	name := d.Host
	if d.Rule != RuleOperator && d.Rule != RuleTask {
		// The trailing dot keeps the host's search domains out of it.
		name += "."
	}
	addrs, err := p.resolver.LookupNetIP(ctx, "ip", name)
	if err != nil {
		return nil, errs.E(errs.Unavailable, "%s cannot be looked up", d.Host).Because(err)
	}
	for i, a := range addrs {
		addrs[i] = a.Unmap()
	}
	return addrs, nil
}

func (p *Proxy) connect(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, addressTimeout)
	defer cancel()
	return p.dialer(ctx, "tcp", to.String())
}

// ownClass is address.OwnHost for the addresses of this machine's interfaces: what
// listens on a public one is still not meant for sandboxes. An unreadable
// interface list says nothing about any address, so it denies.
func (p *Proxy) ownClass(a netip.Addr) address.Class {
	own, err := p.ownAddrs()
	if err != nil {
		p.log.Error("reading the interfaces' addresses", "err", err)
		return address.OwnHost
	}
	return address.OfHost(a, own)
}

func asDenied(err error) (Decision, bool) {
	var e *deniedError
	if errors.As(err, &e) {
		return e.d, true
	}
	return Decision{}, false
}
