package egress

import (
	"net/netip"
	"testing"

	"github.com/cubbyhq/cubby/internal/address"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// What is lent is reached in every mode that has a network, on its port alone, also
// on a local network, which only the operator can name; what is denied stays so.
func TestLentHosts(t *testing.T) {
	o, err := ParseOperator("", "blocked.example")
	if err != nil {
		t.Fatal(err)
	}
	e := NewEvaluator(o)
	lent := []string{"api.example.com:443", "10.0.0.7:8000", "denied.example:443", "blocked.example:443"}
	for _, c := range []struct {
		mode  sandbox.NetworkMode
		host  string
		port  int
		allow bool
		rule  Rule
	}{
		{sandbox.NetworkAllowlist, "api.example.com", 443, true, RuleTask},
		{sandbox.NetworkAllowlist, "API.example.com.", 443, true, RuleTask},
		{sandbox.NetworkAllowlist, "api.example.com", 80, false, RuleAllowlist},
		{sandbox.NetworkAllowlist, "x.api.example.com", 443, false, RuleAllowlist},
		{sandbox.NetworkAllowlist, "10.0.0.7", 8000, true, RuleTask},
		{sandbox.NetworkAllowlist, "10.0.0.7", 22, false, RuleAllowlist},
		{sandbox.NetworkAllowlist, "denied.example", 443, false, RuleDeny},
		{sandbox.NetworkAllowlist, "blocked.example", 443, false, RuleDeny},
		{sandbox.NetworkOpen, "10.0.0.7", 8000, true, RuleTask},
		{sandbox.NetworkOpen, "10.0.0.8", 8000, false, RuleAddress},
		{sandbox.NetworkNone, "api.example.com", 443, false, RuleNone},
	} {
		policy := sandbox.Policy{Mode: c.mode, Allow: []string{"other.example"}, Deny: []string{"denied.example"}, Lent: lent}
		if c.mode == sandbox.NetworkNone {
			policy.Allow, policy.Deny = nil, nil
		}
		d := e.Decide(policy, c.host, c.port)
		if d.Allow {
			if a, err := netip.ParseAddr(c.host); err == nil {
				d = e.decideAddress(policy, d, a, address.Public)
			}
		}
		if d.Allow != c.allow || d.Rule != c.rule {
			t.Errorf("%s %s:%d = %t by %s, want %t by %s", c.mode, c.host, c.port, d.Allow, d.Rule, c.allow, c.rule)
		}
	}
	if d := e.Decide(sandbox.Policy{Mode: sandbox.NetworkAllowlist, Lent: lent}, "pypi.org", 443); !d.Allow || d.Rule != RuleAllowlist {
		t.Errorf("the default list beside what is lent: %+v", d)
	}
}
