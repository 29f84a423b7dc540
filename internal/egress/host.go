package egress

import (
	"net"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/net/idna"

	"github.com/cubbyhq/cubby/internal/errs"
)

// host is a target in normal form: an address, or a name in lower-case ASCII
// without a trailing dot.
type host struct {
	name string
	addr netip.Addr // valid: the host is an address and name its text
}

const maxNameLength = 253

// parseHost brings every spelling of a host to one form. Old spellings of IPv4
// addresses (decimal, octal, hexadecimal, fewer than four parts) become the
// address that C programs take them for, so that no resolver behind the policy
// sees anything else than the policy did.
func parseHost(s string) (host, error) {
	if strings.HasPrefix(s, "[") {
		inner, ok := strings.CutSuffix(s[1:], "]")
		if !ok || !strings.Contains(inner, ":") {
			return host{}, errs.E(errs.Invalid, "malformed host")
		}
		s = inner
	}
	if strings.Contains(s, ":") {
		a, err := netip.ParseAddr(s)
		if err != nil || a.Zone() != "" {
			return host{}, errs.E(errs.Invalid, "malformed host")
		}
		return addressHost(a), nil
	}
	if s == "" || len(s) > 4*maxNameLength {
		return host{}, errs.E(errs.Invalid, "malformed host")
	}
	name, err := idna.Lookup.ToASCII(s)
	if err != nil {
		// Underscores and the like appear in real names that IDNA refuses.
		name = strings.ToLower(s)
	}
	name = strings.TrimSuffix(name, ".") // after IDNA, which knows other dots
	if !validName(name) {
		return host{}, errs.E(errs.Invalid, "malformed host")
	}
	if lastLabelNumeric(name) {
		a, ok := parseIPv4(name)
		if !ok {
			return host{}, errs.E(errs.Invalid, "malformed host")
		}
		return addressHost(a), nil
	}
	return host{name: name}, nil
}

func addressHost(a netip.Addr) host {
	a = a.Unmap()
	return host{name: a.String(), addr: a}
}

func parsePort(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 {
		return 0, errs.E(errs.Invalid, "malformed port")
	}
	return int(n), nil
}

func validName(s string) bool {
	if len(s) > maxNameLength {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for i := range len(label) {
			c := label[i]
			if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
				return false
			}
		}
	}
	return true
}

// lastLabelNumeric tells addresses from names as the URL standard does.
func lastLabelNumeric(s string) bool {
	last := s[strings.LastIndexByte(s, '.')+1:]
	_, err := strconv.ParseUint(last, 10, 64)
	if err == nil {
		return true
	}
	if n, ok := strings.CutPrefix(last, "0x"); ok {
		return strings.Trim(n, "0123456789abcdef") == ""
	}
	return strings.Trim(last, "0123456789") == ""
}

// parseIPv4 reads an IPv4 address as inet_aton does.
func parseIPv4(s string) (netip.Addr, bool) {
	parts := strings.Split(s, ".")
	if len(parts) > 4 {
		return netip.Addr{}, false
	}
	var v uint64
	for i, p := range parts {
		n, ok := parseNumber(p)
		if !ok {
			return netip.Addr{}, false
		}
		if i < len(parts)-1 {
			if n > 255 {
				return netip.Addr{}, false
			}
			v = v<<8 | n
			continue
		}
		bits := 8 * (5 - len(parts))
		if n >= 1<<bits {
			return netip.Addr{}, false
		}
		v = v<<bits | n
	}
	return netip.AddrFrom4([4]byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)}), true
}

func parseNumber(s string) (uint64, bool) {
	base := 10
	switch {
	case strings.HasPrefix(s, "0x"):
		s, base = s[2:], 16
		if s == "" {
			return 0, true
		}
	case len(s) > 1 && s[0] == '0':
		s, base = s[1:], 8
	}
	n, err := strconv.ParseUint(s, base, 64)
	return n, err == nil && n <= 0xffffffff
}

// targetOf splits the target of a CONNECT or of a URL; a missing port is def.
func targetOf(hostport string, def int) (string, int, error) {
	h, p, err := net.SplitHostPort(hostport)
	if err != nil {
		if def == 0 || strings.Count(hostport, ":") == 1 {
			return "", 0, errs.E(errs.Invalid, "malformed target")
		}
		return hostport, def, nil
	}
	if p == "" && def != 0 {
		return h, def, nil
	}
	port, err := parsePort(p)
	return h, port, err
}
