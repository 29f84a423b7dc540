package egress

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// pattern is one entry of a list of hosts.
type pattern struct {
	name   string       // normal form of a name; "" for addresses
	below  bool         // *.name: the name itself and everything below it
	prefix netip.Prefix // of addresses
	// The ports first to last; first is 0 where every port matches.
	first, last int
}

// patternForms is the hint to an entry that is none.
const patternForms = "entries are host names (example.com), names with all below them (*.example.com), addresses (192.0.2.5, 2001:db8::1) " +
	"or networks (192.0.2.0/24), each with or without :port or :first-last; an IPv6 address with a port is in brackets"

// parsePattern reads an entry. Its errors are Invalid.
func parsePattern(s string) (pattern, error) {
	refused := errs.E(errs.Invalid, "%q is not a host, a network or host:port", printable(s, 80)).Hint(patternForms)
	text, ports := s, ""
	switch i := strings.LastIndexByte(s, ':'); {
	case strings.HasPrefix(s, "["):
		end := strings.IndexByte(s, ']')
		if end < 0 || end+1 < len(s) && s[end+1] != ':' {
			return pattern{}, refused
		}
		text, ports = s[1:end], s[end+1:]
		if !strings.Contains(text, ":") {
			return pattern{}, refused
		}
	case strings.Count(s, ":") == 1:
		text, ports = s[:i], s[i:]
	}
	p, err := parsePatternHost(text)
	if err != nil {
		return pattern{}, refused
	}
	if ports == "" {
		return p, nil
	}
	first, last, isRange := strings.Cut(ports[1:], "-")
	if !isRange {
		last = first
	}
	if p.first, err = parsePort(first); err != nil {
		return pattern{}, refused
	}
	if p.last, err = parsePort(last); err != nil || p.last < p.first {
		return pattern{}, refused
	}
	return p, nil
}

func parsePatternHost(text string) (pattern, error) {
	if address, bits, ok := strings.Cut(text, "/"); ok {
		h, err := parseHost(address)
		n, numErr := strconv.Atoi(bits)
		if err != nil || numErr != nil || !h.addr.IsValid() {
			return pattern{}, errs.E(errs.Invalid, "malformed network")
		}
		if strings.Contains(address, ":") && h.addr.Is4() {
			n -= 96 // ::ffff:192.0.2.0/120
		}
		prefix, err := h.addr.Prefix(n)
		if err != nil || prefix.Addr() != h.addr {
			// Bits below the mask are a mistake: it is not said which is meant.
			return pattern{}, errs.E(errs.Invalid, "malformed network")
		}
		return pattern{prefix: prefix}, nil
	}
	name, below := strings.CutPrefix(text, "*.")
	h, err := parseHost(name)
	switch {
	case err != nil:
		return pattern{}, err
	case !h.addr.IsValid():
		return pattern{name: h.name, below: below}, nil
	case below:
		return pattern{}, errs.E(errs.Invalid, "an address has nothing below it")
	}
	return pattern{prefix: netip.PrefixFrom(h.addr, h.addr.BitLen())}, nil
}

func (p pattern) port(port int) bool {
	return p.first == 0 || p.first <= port && port <= p.last
}

// names reports whether the pattern names h, as a name or as an address.
func (p pattern) names(h host, port int) bool {
	if !p.port(port) {
		return false
	}
	if h.addr.IsValid() {
		return p.contains(h.addr)
	}
	return p.name != "" && (h.name == p.name || p.below && strings.HasSuffix(h.name, "."+p.name))
}

// contains reports whether an address is one of the pattern's.
func (p pattern) contains(a netip.Addr) bool { return p.prefix.IsValid() && p.prefix.Contains(a) }

// patterns is a list of hosts.
type patterns []pattern

// parsePatterns reads a list. Its errors are Invalid and name the entry.
func parsePatterns(entries []string) (patterns, error) {
	list := make(patterns, 0, len(entries))
	for _, e := range entries {
		p, err := parsePattern(e)
		if err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	return list, nil
}

// names reports whether an entry names h at a port, or with port 0 at every
// port.
func (l patterns) names(h host, port int) bool {
	for _, p := range l {
		if p.names(h, port) {
			return true
		}
	}
	return false
}

// allows is names, but with port 0 for some port.
func (l patterns) allows(h host, port int) bool {
	if port != 0 {
		return l.names(h, port)
	}
	for _, p := range l {
		if p.first = 0; p.names(h, 0) {
			return true
		}
	}
	return false
}

func (l patterns) contains(a netip.Addr, port int) bool {
	for _, p := range l {
		if p.port(port) && p.contains(a) {
			return true
		}
	}
	return false
}

// CheckPolicy refuses a policy with an entry that could never match anything.
// Its errors are Invalid and name the entry.
func CheckPolicy(p sandbox.Policy) error {
	if _, err := parsePatterns(p.Allow); err != nil {
		return err
	}
	_, err := parsePatterns(p.Deny)
	return err
}
