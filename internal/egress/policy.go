package egress

import (
	"net/netip"
	"strings"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Operator is the operator's own list of hosts. It adds to every policy except
// "none", and only what it names may lie on a private network.
type Operator struct {
	hosts map[string][]int // normal form to ports; no ports: any
}

// ParseOperator reads "host[:port],…"; a host is an exact name or an IP
// address. Errors are Invalid and name the entry.
func ParseOperator(s string) (Operator, error) {
	o := Operator{hosts: map[string][]int{}}
	for entry := range strings.SplitSeq(s, ",") {
		entry = strings.TrimSpace(entry)
		if entry == "" {
			continue
		}
		h, port, err := splitHostPort(entry)
		if err != nil {
			return Operator{}, errs.E(errs.Invalid, "%q is not host or host:port", entry).
				Hint("entries are exact host names or IP addresses, with or without a port: example.com, 10.0.0.5:8080, [fd00::1]:443")
		}
		o.add(h, port)
	}
	return o, nil
}

func (o Operator) add(h host, port int) {
	ports, ok := o.hosts[h.name]
	switch {
	case port == 0:
		o.hosts[h.name] = nil
	case !ok || ports != nil:
		o.hosts[h.name] = append(ports, port)
	}
}

func (o Operator) lists(name string, port int) bool {
	ports, ok := o.hosts[name]
	if !ok {
		return false
	}
	for _, p := range ports {
		if p == port {
			return true
		}
	}
	return ports == nil
}

// Evaluator decides. It does no I/O and is safe for concurrent use.
type Evaluator struct{ operator Operator }

// NewEvaluator returns an Evaluator with the operator's list.
func NewEvaluator(o Operator) *Evaluator { return &Evaluator{operator: o} }

// Decide answers whether a sandbox with policy may talk to host:port. For a
// name an allowing answer is only the first half: [Proxy] checks every address
// that it resolves to before dialling it.
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
	if e.operator.lists(h.name, port) {
		return d.allowed(RuleOperator)
	}
	switch policy.Mode {
	case sandbox.NetworkOpen:
		d = d.allowed(RuleOpen)
	case sandbox.NetworkAllowlist:
		if !allows(policy, h.name, port) {
			return d.denied(RuleAllowlist, h.name+" is not on this sandbox's allowlist",
				"ask the operator to add "+h.name+" to CUBBY_EGRESS_ALLOW, or name it in the sandbox's network.allow")
		}
		d = d.allowed(RuleAllowlist)
	case sandbox.NetworkNone:
	default:
		return d.denied(RuleNone, "this sandbox's network mode is unknown", "")
	}
	if h.addr.IsValid() {
		return e.decideAddress(d, h.addr, public)
	}
	if localName(h.name) {
		return d.denied(RuleName, h.name+" is a name of a local network", operatorHint(h.name))
	}
	return d
}

// decideAddress completes an allowing decision about a name with one of the
// addresses that the name has. own is ownHost when the address is one of the
// host's, whatever network it lies in.
func (e *Evaluator) decideAddress(d Decision, a netip.Addr, own class) Decision {
	a = a.WithZone("").Unmap()
	if !d.Allow {
		return d
	}
	c := classify(a)
	if c == public {
		c = own
	}
	switch {
	case c == public,
		e.operator.lists(a.String(), d.Port),
		d.Rule == RuleOperator && c.named():
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

func allows(p sandbox.Policy, name string, port int) bool {
	list := p.Allow
	if len(list) == 0 {
		list = sandbox.DefaultAllow()
	}
	for _, entry := range list {
		h, only, err := splitHostPort(entry)
		if err == nil && h.name == name && (only == 0 || only == port) {
			return true
		}
	}
	return false
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
