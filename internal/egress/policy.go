package egress

import (
	"net/netip"
	"strings"

	"github.com/cubbyhq/cubby/internal/address"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Operator is the operator's own lists of hosts. What it allows adds to every
// policy except "none", and only what it names may lie on a private network;
// what it denies nobody reaches.
type Operator struct{ allow, deny patterns }

// ParseOperator reads two lists of patterns, separated by commas. Errors are
// Invalid and name the entry.
func ParseOperator(allow, deny string) (Operator, error) {
	var o Operator
	for _, list := range []struct {
		text string
		to   *patterns
	}{{allow, &o.allow}, {deny, &o.deny}} {
		for entry := range strings.SplitSeq(list.text, ",") {
			if entry = strings.TrimSpace(entry); entry == "" {
				continue
			}
			p, err := parsePattern(entry)
			if err != nil {
				return Operator{}, err
			}
			*list.to = append(*list.to, p)
		}
	}
	return o, nil
}

// Evaluator decides. It does no I/O and is safe for concurrent use.
type Evaluator struct {
	operator Operator
	read     lists
}

// NewEvaluator returns an Evaluator with the operator's list.
func NewEvaluator(o Operator) *Evaluator { return &Evaluator{operator: o} }

// Decide answers whether a sandbox with policy may talk to host:port. For a
// name an allowing answer is only the first half: [Proxy] checks every address
// that it resolves to before dialling it. Port 0 asks for the name itself: it is
// allowed when some port may be, and denied when no port can be.
func (e *Evaluator) Decide(policy sandbox.Policy, hostname string, port int) Decision {
	d := Decision{Host: hostname, Port: port}
	h, err := parseHost(hostname)
	if err != nil {
		d.Host = printable(hostname, 80)
		return d.denied(RuleName, "the host name is malformed", "")
	}
	d.Host = h.name
	if policy.Mode == sandbox.NetworkNone {
		return d.denied(RuleNone, "this sandbox has no network", `create the sandbox with network mode "allowlist" or "open"`)
	}
	own, err := e.read.patterns(policy.Deny)
	switch {
	case err != nil: // refused before it was stored
		return d.denied(RuleDeny, "this sandbox's deny list cannot be read", "")
	case e.operator.deny.names(h, port):
		return d.denied(RuleDeny, "the operator denies "+h.name+" to every sandbox", "")
	case own.names(h, port):
		return d.denied(RuleDeny, h.name+" is on this sandbox's deny list", "it is in the sandbox's network.deny")
	}
	if e.operator.allow.allows(h, port) {
		return d.allowed(RuleOperator)
	}
	if lent, err := e.read.patterns(policy.Lent); err == nil && lent.allows(h, port) {
		return d.allowed(RuleTask)
	}
	switch policy.Mode {
	case sandbox.NetworkOpen:
		d = d.allowed(RuleOpen)
	case sandbox.NetworkAllowlist:
		if !e.allows(policy, h, port) {
			return d.denied(RuleAllowlist, h.name+" is not on this sandbox's allowlist",
				"ask the operator to add "+h.name+" to CUBBY_EGRESS_ALLOW, or name it in the sandbox's network.allow")
		}
		d = d.allowed(RuleAllowlist)
	case sandbox.NetworkNone:
	default:
		return d.denied(RuleNone, "this sandbox's network mode is unknown", "")
	}
	if h.addr.IsValid() {
		return e.decideAddress(policy, d, h.addr, address.Public)
	}
	if localName(h.name) {
		return d.denied(RuleName, h.name+" is a name of a local network", operatorHint(h.name))
	}
	return d
}

// named reports whether the operator can allow a class by listing a name. For
// the others the address itself must be listed: whoever answers for a name
// must not be able to point it at the metadata service.
func named(c address.Class) bool {
	switch c {
	case address.Public, address.Loopback, address.Private, address.Reserved, address.OwnHost:
		return true
	case address.LinkLocal, address.Metadata, address.Multicast:
	}
	return false
}

// decideAddress completes an allowing decision about a name with one of the
// addresses that the name has. own is address.OwnHost when the address is one of the
// host's, whatever network it lies in.
func (e *Evaluator) decideAddress(policy sandbox.Policy, d Decision, a netip.Addr, own address.Class) Decision {
	a = a.WithZone("").Unmap()
	if !d.Allow {
		return d
	}
	deny, err := e.read.patterns(policy.Deny)
	// Behind a gateway an IPv6 address leads to the IPv4 one that it carries.
	denied := func(a netip.Addr) bool { return deny.contains(a, d.Port) || e.operator.deny.contains(a, d.Port) }
	if err != nil || denied(a) || denied(address.Carried(a)) {
		return d.denied(RuleDeny, d.Host+" leads to a denied address", "")
	}
	c := address.Of(a)
	if c == address.Public {
		c = own
	}
	switch {
	case c == address.Public,
		e.operator.allow.contains(a, d.Port),
		(d.Rule == RuleOperator || d.Rule == RuleTask) && named(c):
		return d
	}
	what := d.Host + " leads to a " + string(c) + " address"
	if d.Host == a.String() {
		what = d.Host + " is a " + string(c) + " address"
	}
	return d.denied(RuleAddress, what, operatorHint(d.Host))
}

func operatorHint(name string) string {
	return "addresses of local networks are refused in every mode; only the operator can allow one, by CUBBY_EGRESS_ALLOW=" + name + ":PORT"
}

func (e *Evaluator) allows(p sandbox.Policy, h host, port int) bool {
	entries := p.Allow
	if len(entries) == 0 {
		entries = defaultAllow
	}
	list, err := e.read.patterns(entries)
	return err == nil && list.allows(h, port)
}

// localName reports whether a name can only mean something on a local network.
// Such names are not even looked up, so that a sandbox cannot ask the host's
// resolver what is there.
func localName(name string) bool {
	if !strings.Contains(name, ".") {
		return true
	}
	for _, suffix := range []string{".localhost", ".local", ".localdomain", ".internal", ".intranet", ".lan", ".home", ".corp", ".home.arpa", ".in-addr.arpa", ".ip6.arpa"} {
		if strings.HasSuffix(name, suffix) {
			return true
		}
	}
	return false
}

// printable makes a guest's text fit for a log line and a status line.
func printable(s string, limit int) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
	if len(s) > limit {
		s = s[:limit] + "..."
	}
	return s
}
