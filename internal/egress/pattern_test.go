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

// refusedPatterns are entries that are none.
func refusedPatterns() []string {
	return []string{
		"http://a.example", "a.example/", "a.example/24", "a.example:0", "a.example:70000", "a.example:x", "a.example:", "a.example:9-8",
		"a.example:1-", "a.example:-1", "a.example:1-2-3", "a b", "*", "*.", "**.example", "a.*.example", "*a.example", "*.10.0.0.1",
		"*.10.0.0.0/8", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/x", "10.0.0.1/8", "10.0.0.0/8/8", "fd00::/129", "::ffff:10.0.0.0/8",
		"[::1", "[::1]x", "[::1]:", "[a.example]:80", "[10.0.0.1]:80", "::1%eth0", "fe80::%eth0/64", "a\x00.example",
	}
}

func TestPatterns(t *testing.T) {
	tests := []struct {
		pattern, host string
		port          int
		want          bool
	}{
		{"example.com", "example.com", 443, true},
		{"example.com", "EXAMPLE.com.", 443, true},
		{"example.com", "a.example.com", 443, false},
		{"*.example.com", "example.com", 443, true},
		{"*.example.com", "a.b.example.com", 443, true},
		{"*.example.com", "notexample.com", 443, false},
		{"*.example.com", "example.com.evil.example", 443, false},
		{"*.B\u00fccher.example", "www.xn--bcher-kva.example", 443, true},
		{"*.example.com:443", "a.example.com", 443, true},
		{"*.example.com:443", "a.example.com", 80, false},
		{"example.com:8000-8010", "example.com", 8000, true},
		{"example.com:8000-8010", "example.com", 8010, true},
		{"example.com:8000-8010", "example.com", 8011, false},
		{"192.0.2.5", "192.0.2.5", 1, true},
		{"192.0.2.5", "0xc0000205", 1, true},
		{"192.0.2.5", "[::ffff:192.0.2.5]", 1, true},
		{"192.0.2.5", "192.0.2.6", 1, false},
		{"192.0.2.0/24", "192.0.2.255", 1, true},
		{"192.0.2.0/24", "192.0.3.0", 1, false},
		{"192.0.2.0/24:80", "192.0.2.1", 81, false},
		{"::ffff:192.0.2.0/120", "192.0.2.7", 1, true},
		{"2001:db8::/32", "[2001:db8:1::2]", 1, true},
		{"[2001:db8::/32]:443", "[2001:db8:1::2]", 443, true},
		{"[2001:db8::/32]:443", "[2001:db8:1::2]", 80, false},
		{"2001:db8::1", "[2001:db8::1]", 1, true},
		// A network says nothing about names.
		{"0.0.0.0/0", "example.com", 443, false},
	}
	for _, tt := range tests {
		p, err := parsePattern(tt.pattern)
		if err != nil {
			t.Errorf("parsePattern(%q) = %v", tt.pattern, err)
			continue
		}
		h, err := parseHost(tt.host)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.names(h, tt.port); got != tt.want {
			t.Errorf("%q names %s:%d = %v, want %v", tt.pattern, tt.host, tt.port, got, tt.want)
		}
	}
}

func TestCheckPolicyRefuses(t *testing.T) {
	for _, entry := range refusedPatterns() {
		for _, p := range []sandbox.Policy{{Allow: []string{"ok.example", entry}}, {Deny: []string{entry}}} {
			if err := CheckPolicy(p); !errors.Is(err, errs.Invalid) {
				t.Errorf("CheckPolicy(%+v) = %v, want invalid", p, err)
			}
		}
	}
	ok := sandbox.Policy{Mode: sandbox.NetworkAllowlist, Allow: sandbox.DefaultAllow(), Deny: []string{"*.example.com:80", "10.0.0.0/8"}}
	if err := CheckPolicy(ok); err != nil {
		t.Errorf("CheckPolicy(%+v) = %v", ok, err)
	}
}

// What denies comes before what allows, whoever says it.
func TestDenyComesFirst(t *testing.T) {
	op, err := ParseOperator("*.corp.example,10.1.0.0/16:8080", "bad.corp.example,*.tracker.example,203.0.113.0/24")
	if err != nil {
		t.Fatal(err)
	}
	e := NewEvaluator(op)
	open := sandbox.Policy{Mode: sandbox.NetworkOpen, Deny: []string{"*.evil.example", "good.corp.example:80", "198.51.100.0/24"}}
	list := sandbox.Policy{Mode: sandbox.NetworkAllowlist, Allow: []string{"*.evil.example", "x.tracker.example", "192.0.2.0/24"}, Deny: []string{"deep.evil.example"}}
	tests := []struct {
		policy sandbox.Policy
		host   string
		port   int
		at     string // an address that the name resolves to
		allow  bool
		rule   Rule
	}{
		{open, "a.evil.example", 443, "", false, RuleDeny},
		{open, "evil.example", 443, "", false, RuleDeny},
		{open, "fine.example", 443, "8.8.8.8", true, RuleOpen},
		{open, "fine.example", 443, "198.51.100.9", false, RuleDeny},
		{open, "fine.example", 443, "203.0.113.9", false, RuleDeny},
		{open, "198.51.100.9", 443, "", false, RuleDeny},
		{open, "good.corp.example", 80, "", false, RuleDeny},
		{open, "good.corp.example", 443, "10.1.2.3", true, RuleOperator},
		{open, "bad.corp.example", 443, "", false, RuleDeny},
		{open, "fine.example", 8080, "10.1.2.3", true, RuleOpen},
		{open, "fine.example", 8081, "10.1.2.3", false, RuleAddress},
		{list, "a.evil.example", 443, "8.8.8.8", true, RuleAllowlist},
		{list, "deep.evil.example", 443, "", false, RuleDeny},
		{list, "x.tracker.example", 443, "", false, RuleDeny},
		{list, "192.0.2.200", 443, "192.0.2.200", true, RuleAllowlist},
		{list, "pypi.org", 443, "", false, RuleAllowlist},
	}
	for _, tt := range tests {
		d := e.Decide(tt.policy, tt.host, tt.port)
		if tt.at != "" {
			d = e.decideAddress(tt.policy, d, netip.MustParseAddr(tt.at), address.Public)
		}
		if d.Allow != tt.allow || d.Rule != tt.rule {
			t.Errorf("%s:%d at %q: allow %v by %q (%s), want %v by %q", tt.host, tt.port, tt.at, d.Allow, d.Rule, d.Reason, tt.allow, tt.rule)
		}
		if !d.Allow && tt.at != "" && strings.Contains(d.Reason+d.Hint, tt.at) {
			t.Errorf("%s at %s: %q tells the address", tt.host, tt.at, d.Reason)
		}
	}
}

// FuzzPattern: what is read names what it says, and nothing is read twice as
// something else.
func FuzzPattern(f *testing.F) {
	for _, s := range append(refusedPatterns(), "example.com", "*.example.com:80-90", "10.0.0.0/8", "[2001:db8::/32]:443", "127.1:80") {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := parsePattern(s)
		if err != nil {
			if !errors.Is(err, errs.Invalid) {
				t.Fatalf("parsePattern(%q) = %v", s, err)
			}
			return
		}
		if (p.name == "") == !p.prefix.IsValid() || p.first > p.last {
			t.Fatalf("parsePattern(%q) = %+v", s, p)
		}
		port := max(p.first, 1)
		h := host{name: p.name}
		if p.prefix.IsValid() {
			h = addressHost(p.prefix.Addr())
		}
		if !p.names(h, port) {
			t.Fatalf("%q does not name %v", s, h)
		}
	})
}
