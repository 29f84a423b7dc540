// Package egress decides which hosts a sandbox may reach and carries what is
// allowed. [Evaluator] is the pure policy; [Proxy] is the HTTP proxy that
// enforces it on the streams that sandboxes open.
//
// The guest is hostile: it chooses every byte that the proxy reads. Names are
// decided in one normal form, an address is dialled only after it was checked,
// and what is checked is what is dialled, so a name cannot change its mind in
// between. Of TLS the proxy reads each ClientHello, whose server name must be the
// host that was allowed, and nothing more; it buffers no bodies, follows no
// redirects and shares no upstream connection between two guest streams.
package egress

import (
	"net"
	"net/netip"
	"strconv"
)

// Rule names what decided a request.
type Rule string

const (
	// RuleNone: the sandbox has no network.
	RuleNone Rule = "none"
	// RuleAllowlist: the sandbox's list of hosts, or its absence from it.
	RuleAllowlist Rule = "allowlist"
	// RuleOpen: every public host.
	RuleOpen Rule = "open"
	// RuleOperator: the operator's list.
	RuleOperator Rule = "operator"
	// RuleTask: a coding agent's provider, while its task runs.
	RuleTask Rule = "task"
	// RuleDeny: the sandbox's or the operator's list of what is denied.
	RuleDeny Rule = "deny"
	// RuleAddress: the host is, or resolves to, an address of the host's own
	// networks.
	RuleAddress Rule = "address"
	// RuleServerName: a TLS connection that asks for another host than it was
	// allowed for.
	RuleServerName Rule = "server_name"
	// RuleToken: a request to a proxy that runs alone, without a good token.
	RuleToken Rule = "token"
	// RuleName: the host is not a name of the public Internet.
	RuleName Rule = "name"
)

// Decision is the answer to one request of a sandbox.
type Decision struct {
	Allow bool
	Host  string // in normal form; as sent when it has none
	Port  int    // 0: the name itself was asked for
	Rule  Rule
	// Protocol is how it was asked for.
	Protocol Protocol
	// Reason and Hint are for people: why, and how to allow what was denied.
	// Neither holds an address that the guest did not name itself.
	Reason string
	Hint   string
	// Address is what was dialled; invalid when nothing was.
	Address netip.AddrPort
}

// HostPort is the decided target.
func (d Decision) HostPort() string { return net.JoinHostPort(d.Host, strconv.Itoa(d.Port)) }

func (d Decision) denied(rule Rule, reason, hint string) Decision {
	d.Allow, d.Rule, d.Reason, d.Hint = false, rule, reason, hint
	return d
}

func (d Decision) allowed(rule Rule) Decision {
	d.Allow, d.Rule, d.Reason, d.Hint = true, rule, "allowed by rule "+string(rule), ""
	return d
}
