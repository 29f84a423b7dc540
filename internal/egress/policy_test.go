package egress

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/address"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

func TestParseHost(t *testing.T) {
	tests := []struct{ in, want string }{
		{"example.com", "example.com"},
		{"EXAMPLE.com.", "example.com"},
		{"bücher.example", "xn--bcher-kva.example"},
		{"ＧＩＴＨＵＢ．com", "github.com"},
		{"a_b.example.com", "a_b.example.com"},
		{"127.0.0.1", "127.0.0.1"},
		{"2130706433", "127.0.0.1"},
		{"0x7f000001", "127.0.0.1"},
		{"0x7f.1", "127.0.0.1"},
		{"0177.0.0.01", "127.0.0.1"},
		{"127.1", "127.0.0.1"},
		{"10.1.257", "10.1.1.1"},
		{"0", "0.0.0.0"},
		{"１２７.0.0.1", "127.0.0.1"},
		{"127。0。0。1", "127.0.0.1"},
		{"[::1]", "::1"},
		{"::ffff:127.0.0.1", "127.0.0.1"},
		{"[::FFFF:7F00:1]", "127.0.0.1"},
		{"[fe80::1%25eth0]", ""},
		{"fe80::1%eth0", ""},
		{"256.1.1.1", ""},
		{"1.2.3.4.5", ""},
		{"08.1.1.1", ""},
		{"0x", "0.0.0.0"},
		{"example.0x7f", ""},
		{"", ""},
		{".", ""},
		{"a..b", ""},
		{"a.b..", ""},
		{"-a.example", ""},
		{"a b", ""},
		{"a\r\nb", ""},
		{"[example.com]", ""},
		{"[127.0.0.1]", ""},
		{strings.Repeat("a", 64) + ".com", ""},
		{strings.Repeat("a.", 200) + "com", ""},
	}
	for _, tt := range tests {
		h, err := parseHost(tt.in)
		if tt.want == "" {
			if !errors.Is(err, errs.Invalid) {
				t.Errorf("parseHost(%q) = %q, %v, want invalid", tt.in, h.name, err)
			}
			continue
		}
		if err != nil || h.name != tt.want {
			t.Errorf("parseHost(%q) = %q, %v, want %q", tt.in, h.name, err, tt.want)
		}
	}
}

func TestDecide(t *testing.T) {
	op, err := ParseOperator("deb.debian.org, Build.Corp.:8080 ,10.0.0.5:9000,[fd00::7]:443,169.254.1.1,two.example:1,two.example:2,any.example:1,any.example", "")
	if err != nil {
		t.Fatalf("ParseOperator = %v", err)
	}
	e := NewEvaluator(op)
	list := sandbox.Policy{Mode: sandbox.NetworkAllowlist}
	own := sandbox.Policy{Mode: sandbox.NetworkAllowlist, Allow: []string{"Example.COM.", "port.example:8443", "10.9.9.9"}}
	open := sandbox.Policy{Mode: sandbox.NetworkOpen}
	none := sandbox.Policy{Mode: sandbox.NetworkNone, Allow: []string{"pypi.org"}}
	tests := []struct {
		name   string
		policy sandbox.Policy
		host   string
		port   int
		allow  bool
		rule   Rule
	}{
		{"default list", list, "pypi.org", 443, true, RuleAllowlist},
		{"default list, spelled otherwise", list, "PyPI.org.", 443, true, RuleAllowlist},
		{"no subdomains", list, "evil.pypi.org", 443, false, RuleAllowlist},
		{"no suffixes", list, "notpypi.org", 443, false, RuleAllowlist},
		{"no prefixes", list, "pypi.org.evil.example", 443, false, RuleAllowlist},
		{"address", list, "8.8.8.8", 443, false, RuleAllowlist},
		{"own list", own, "example.com", 80, true, RuleAllowlist},
		{"own list replaces the default", own, "pypi.org", 443, false, RuleAllowlist},
		{"own list with port", own, "port.example", 8443, true, RuleAllowlist},
		{"own list with another port", own, "port.example", 443, false, RuleAllowlist},
		{"own list cannot name private addresses", own, "10.9.9.9", 80, false, RuleAddress},
		{"operator adds", list, "deb.debian.org", 80, true, RuleOperator},
		{"operator with port", list, "build.corp", 8080, true, RuleOperator},
		{"operator with another port", list, "build.corp", 80, false, RuleAllowlist},
		{"operator with two ports", list, "two.example", 2, true, RuleOperator},
		{"operator with two other ports", list, "two.example", 3, false, RuleAllowlist},
		{"operator with and without port", list, "any.example", 77, true, RuleOperator},
		{"operator's address", list, "10.0.0.5", 9000, true, RuleOperator},
		{"operator's address in decimal", list, "167772165", 9000, true, RuleOperator},
		{"operator's IPv6 address", open, "[fd00::7]", 443, true, RuleOperator},
		{"operator's link-local address", open, "169.254.1.1", 80, true, RuleOperator},
		{"open", open, "example.org", 8443, true, RuleOpen},
		{"open, public address", open, "8.8.8.8", 53, true, RuleOpen},
		{"open, private address", open, "10.0.0.5", 80, false, RuleAddress},
		{"open, loopback", open, "127.0.0.1", 9090, false, RuleAddress},
		{"open, loopback in decimal", open, "2130706433", 9090, false, RuleAddress},
		{"open, loopback mapped", open, "[::ffff:127.0.0.1]", 9090, false, RuleAddress},
		{"open, metadata", open, "169.254.169.254", 80, false, RuleAddress},
		{"open, localhost", open, "localhost", 80, false, RuleName},
		{"open, single label", open, "db", 5432, false, RuleName},
		{"open, metadata by name", open, "metadata.google.internal", 80, false, RuleName},
		{"open, printer", open, "printer.local", 80, false, RuleName},
		{"none", none, "pypi.org", 443, false, RuleNone},
		{"none beats the operator", none, "deb.debian.org", 80, false, RuleNone},
		{"zero policy", sandbox.Policy{}, "pypi.org", 443, false, RuleNone},
		{"malformed", open, "a b", 80, false, RuleName},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := e.Decide(tt.policy, tt.host, tt.port)
			if d.Allow != tt.allow || d.Rule != tt.rule {
				t.Errorf("Decide(%s, %s:%d) = %v by %q (%s), want %v by %q", tt.policy.Mode, tt.host, tt.port, d.Allow, d.Rule, d.Reason, tt.allow, tt.rule)
			}
			if d.Reason == "" {
				t.Errorf("Decide(%s, %s:%d) gives no reason", tt.policy.Mode, tt.host, tt.port)
			}
		})
	}
}

func TestDecideAddress(t *testing.T) {
	op, err := ParseOperator("build.corp,10.0.0.5:9000", "")
	if err != nil {
		t.Fatal(err)
	}
	e := NewEvaluator(op)
	open := sandbox.Policy{Mode: sandbox.NetworkOpen}
	tests := []struct {
		host  string
		port  int
		addr  string
		own   address.Class
		allow bool
	}{
		{"example.org", 80, "93.184.215.14", address.Public, true},
		{"example.org", 80, "93.184.215.14", address.OwnHost, false},
		{"example.org", 80, "10.0.0.5", address.Public, false},
		{"example.org", 9000, "10.0.0.5", address.Public, true},
		{"example.org", 9000, "::ffff:10.0.0.5", address.Public, true},
		{"example.org", 80, "::ffff:127.0.0.1", address.Public, false},
		{"example.org", 80, "fd00:ec2::254", address.Public, false},
		{"build.corp", 80, "10.2.3.4", address.Public, true},
		{"build.corp", 80, "127.0.0.1", address.Public, true},
		{"build.corp", 80, "169.254.169.254", address.Public, false},
		{"build.corp", 80, "224.0.0.1", address.Public, false},
	}
	for _, tt := range tests {
		d := e.decideAddress(open, e.Decide(open, tt.host, tt.port), netip.MustParseAddr(tt.addr), tt.own)
		if d.Allow != tt.allow {
			t.Errorf("%s:%d at %s: allow = %v (%s), want %v", tt.host, tt.port, tt.addr, d.Allow, d.Reason, tt.allow)
		}
		if !d.Allow && (d.Rule != RuleAddress || strings.Contains(d.Reason+d.Hint, tt.addr)) {
			t.Errorf("%s:%d at %s: rule %q, reason %q: want rule %q and no address", tt.host, tt.port, tt.addr, d.Rule, d.Reason, RuleAddress)
		}
	}
}

// Behind a gateway an IPv6 address leads to the IPv4 one that it carries.
func TestDenyFollowsGateways(t *testing.T) {
	op, err := ParseOperator("", "198.51.100.0/24")
	if err != nil {
		t.Fatal(err)
	}
	e := NewEvaluator(op)
	open := sandbox.Policy{Mode: sandbox.NetworkOpen, Deny: []string{"203.0.113.7"}}
	for host, allow := range map[string]bool{
		"64:ff9b::198.51.100.5": false, "2002:c633:6405::1": false, "64:ff9b::203.0.113.7": false, "2002:cb00:7107::": false,
		"64:ff9b::203.0.113.8": true, "64:ff9b::10.0.0.1": false,
	} {
		if d := e.Decide(open, host, 443); d.Allow != allow {
			t.Errorf("%s: allow = %v (%s), want %v", host, d.Allow, d.Reason, allow)
		}
		if d := e.decideAddress(open, e.Decide(open, "example.org", 443), netip.MustParseAddr(host), address.Public); d.Allow != allow {
			t.Errorf("a name at %s: allow = %v (%s), want %v", host, d.Allow, d.Reason, allow)
		}
	}
}

func TestParseOperatorRefuses(t *testing.T) {
	for _, entry := range refusedPatterns() {
		for _, lists := range [][2]string{{entry, ""}, {"", entry}} {
			if _, err := ParseOperator(lists[0], lists[1]); !errors.Is(err, errs.Invalid) {
				t.Errorf("ParseOperator(%q, %q) = %v, want invalid", lists[0], lists[1], err)
			}
		}
	}
}

// FuzzDecide proves what no spelling may break: the normal form is stable, and
// nothing but a public address or a dotted public name is allowed.
func FuzzDecide(f *testing.F) {
	for _, s := range []string{"example.com", "127.1", "0x7f000001", "[::ffff:10.0.0.1]", "ＬＯＣＡＬＨＯＳＴ", "a.b.", "0177.1", "xn--a.com", "::1%lo"} {
		f.Add(s)
	}
	e := NewEvaluator(Operator{})
	f.Fuzz(func(t *testing.T, s string) {
		d := e.Decide(sandbox.Policy{Mode: sandbox.NetworkOpen}, s, 80)
		if strings.ContainsFunc(d.Host, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Fatalf("Decide(%q).Host = %q is not printable ASCII", s, d.Host)
		}
		if !d.Allow {
			return
		}
		again := e.Decide(sandbox.Policy{Mode: sandbox.NetworkOpen}, d.Host, 80)
		if again != d {
			t.Fatalf("Decide(%q) = %+v, but of its own host %+v", s, d, again)
		}
		if a, err := netip.ParseAddr(d.Host); err == nil {
			if address.Of(a) != address.Public {
				t.Fatalf("Decide(%q) allows %s", s, a)
			}
			return
		}
		if localName(d.Host) || lastLabelNumeric(d.Host) {
			t.Fatalf("Decide(%q) allows %q", s, d.Host)
		}
	})
}
