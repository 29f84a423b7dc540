package egress

import "net/netip"

// class says what kind of network an address lies in. The empty class is the
// public Internet.
type class string

const (
	public    class = ""
	loopback  class = "loopback"
	private   class = "private"
	linkLocal class = "link-local"
	metadata  class = "cloud metadata"
	multicast class = "multicast"
	reserved  class = "reserved"
	ownHost   class = "this host's own"
)

// named reports whether the operator can allow a class by listing a name. For
// the others the address itself must be listed: whoever answers for a name
// must not be able to point it at the metadata service.
func (c class) named() bool {
	switch c {
	case public, loopback, private, reserved, ownHost:
		return true
	case linkLocal, metadata, multicast:
	}
	return false
}

type block struct {
	prefix netip.Prefix
	class  class
}

// blocks returns the networks that are not public, most specific first where
// they overlap. IPv6 is public only inside 2000::/3. The networks that are set
// aside for documentation are not among them: nothing of a host's lives there,
// and gateways that intercept a whole site's traffic hand them out for names.
func blocks() []block {
	list := []struct {
		prefix string
		class  class
	}{
		{"168.63.129.16/32", metadata}, // Azure's wire server, on a public address
		{"169.254.0.0/16", linkLocal},  // with the metadata services of most clouds
		{"100.100.100.200/32", metadata},
		{"192.0.0.192/32", metadata},
		{"0.0.0.0/8", loopback}, // Linux takes 0.0.0.0 for the host itself
		{"10.0.0.0/8", private},
		{"100.64.0.0/10", private}, // carrier-grade NAT
		{"127.0.0.0/8", loopback},
		{"172.16.0.0/12", private},
		{"192.0.0.0/24", reserved},
		{"192.88.99.0/24", reserved},
		{"192.168.0.0/16", private},
		{"198.18.0.0/15", private}, // benchmark networks
		{"224.0.0.0/4", multicast},
		{"240.0.0.0/4", reserved},
		{"::/128", loopback},
		{"::1/128", loopback},
		{"fd00:ec2::/32", metadata},          // AWS's, of which ::23 gives credentials to pods too
		{"fd00:c1::a9fe:a9fe/128", metadata}, // Oracle's
		{"fd00:42::42/128", metadata},        // Scaleway's
		{"fd20:ce::254/128", metadata},
		{"fc00::/7", private},
		{"fe80::/10", linkLocal},
		{"fec0::/10", private},
		{"ff00::/8", multicast},
		{"2001::/23", reserved}, // IETF assignments, Teredo among them
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

// carried returns the IPv4 address that a gateway makes of an IPv6 address, and
// a itself when none does.
func carried(a netip.Addr) netip.Addr {
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

// classify says which network a lies in. Addresses that carry an IPv4 address
// are what that one is.
func classify(a netip.Addr) class {
	a = carried(a)
	for _, b := range nonPublic {
		if b.prefix.Contains(a) {
			return b.class
		}
	}
	if a.Is6() && !globalV6.Contains(a) {
		return reserved
	}
	return public
}
