// Package address says in what kind of network an IP address lies: the public
// Internet, or one in which something private may listen. Whoever connects for
// others asks it about the address that is about to be dialled, whatever the name
// was that led there. It looks no name up and decides nothing: what is allowed is
// its callers' affair.
package address

import (
	"net"
	"net/netip"
)

// Class says what kind of network an address lies in. The empty class is the
// public Internet.
type Class string

const (
	Public    Class = ""
	Loopback  Class = "loopback"
	Private   Class = "private"
	LinkLocal Class = "link-local"
	Metadata  Class = "cloud metadata"
	Multicast Class = "multicast"
	Reserved  Class = "reserved"
	OwnHost   Class = "this host's own"
)

type block struct {
	prefix netip.Prefix
	class  Class
}

// blocks returns the networks that are not public, most specific first where
// they overlap. IPv6 is public only inside 2000::/3. The networks that are set
// aside for documentation are not among them: nothing of a host's lives there,
// and gateways that intercept a whole site's traffic hand them out for names.
func blocks() []block {
	list := []struct {
		prefix string
		class  Class
	}{
		{"168.63.129.16/32", Metadata}, // Azure's wire server, on a public address
		{"169.254.0.0/16", LinkLocal},  // with the metadata services of most clouds
		{"100.100.100.200/32", Metadata},
		{"192.0.0.192/32", Metadata},
		{"0.0.0.0/8", Loopback}, // Linux takes 0.0.0.0 for the host itself
		{"10.0.0.0/8", Private},
		{"100.64.0.0/10", Private}, // carrier-grade NAT
		{"127.0.0.0/8", Loopback},
		{"172.16.0.0/12", Private},
		{"192.0.0.0/24", Reserved},
		{"192.88.99.0/24", Reserved},
		{"192.168.0.0/16", Private},
		{"198.18.0.0/15", Private}, // benchmark networks
		{"224.0.0.0/4", Multicast},
		{"240.0.0.0/4", Reserved},
		{"::/128", Loopback},
		{"::1/128", Loopback},
		{"fd00:ec2::/32", Metadata},          // AWS's, of which ::23 gives credentials to pods too
		{"fd00:c1::a9fe:a9fe/128", Metadata}, // Oracle's
		{"fd00:42::42/128", Metadata},        // Scaleway's
		{"fd20:ce::254/128", Metadata},
		{"fc00::/7", Private},
		{"fe80::/10", LinkLocal},
		{"fec0::/10", Private},
		{"ff00::/8", Multicast},
		{"2001::/23", Reserved}, // IETF assignments, Teredo among them
	}
	out := make([]block, len(list))
	for i, b := range list {
		out[i] = block{netip.MustParsePrefix(b.prefix), b.class}
	}
	return out
}

var (
	nat64     = netip.MustParsePrefix("64:ff9b::/96")
	sixToFour = netip.MustParsePrefix("2002::/16")
	globalV6  = netip.MustParsePrefix("2000::/3")
	nonPublic = blocks()
)

// Carried returns the IPv4 address that a gateway makes of an IPv6 address, and
// a itself when none does.
func Carried(a netip.Addr) netip.Addr {
	a = a.WithZone("").Unmap()
	if a.Is6() {
		b := a.As16()
		switch {
		case nat64.Contains(a):
			return netip.AddrFrom4([4]byte(b[12:16]))
		case sixToFour.Contains(a):
			return netip.AddrFrom4([4]byte(b[2:6]))
		}
	}
	return a
}

// Of says which network a lies in. Addresses that carry an IPv4 address are what
// that one is.
func Of(a netip.Addr) Class {
	a = Carried(a)
	for _, b := range nonPublic {
		if b.prefix.Contains(a) {
			return b.class
		}
	}
	if a.Is6() && !globalV6.Contains(a) {
		return Reserved
	}
	return Public
}

// OfHost is OwnHost when a is one of own, the addresses of this machine's
// interfaces, or carries one, and [Public] else: what listens on a public address
// of the machine is not the Internet.
func OfHost(a netip.Addr, own []net.Addr) Class {
	for _, n := range own {
		ip, ok := n.(*net.IPNet)
		if !ok {
			continue
		}
		if o, ok := netip.AddrFromSlice(ip.IP); ok && (o.Unmap() == a.Unmap() || o.Unmap() == Carried(a)) {
			return OwnHost
		}
	}
	return Public
}

// OfDialed is the class of an address that is about to be connected to, as a
// [net.Dialer]'s ControlContext is given it. What cannot be told is not Public.
func OfDialed(to string) Class {
	at, err := netip.ParseAddrPort(to)
	if err != nil {
		return Reserved
	}
	if c := Of(at.Addr()); c != Public {
		return c
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return OwnHost // it could be one
	}
	return OfHost(at.Addr(), own)
}
