package egress

import (
	"context"
	"errors"
	"testing"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

func TestExplain(t *testing.T) {
	r := newRig(t, "index.corp:8443,10.1.0.0/16")
	r.names.answers["fine.example.com"] = answers("93.184.215.14")
	r.names.answers["mixed.example.com"] = answers("10.0.0.1", "93.184.215.14")
	r.names.answers["inside.example.com"] = answers("10.0.0.1")
	r.names.answers["allowed.example.com"] = answers("10.1.2.3")
	policy := sandbox.Policy{Mode: sandbox.NetworkAllowlist, Allow: []string{"*.example.com"}, Deny: []string{"no.example.com"}}
	for _, tt := range []struct {
		target string
		allow  bool
		rule   Rule
	}{
		{"fine.example.com", true, RuleAllowlist},
		{"mixed.example.com:80", true, RuleAllowlist},
		{"allowed.example.com", true, RuleAllowlist},
		{"inside.example.com", false, RuleAddress},
		{"no.example.com", false, RuleDeny},
		{"pypi.org", false, RuleAllowlist},
		{"127.0.0.1:80", false, RuleAllowlist},
	} {
		host, port, err := Target(tt.target)
		if err != nil {
			t.Fatal(err)
		}
		d, err := r.proxy.Explain(context.Background(), Guest{}, policy, host, port)
		if err != nil || d.Allow != tt.allow || d.Rule != tt.rule || d.Reason == "" {
			t.Errorf("Explain(%s) = %+v, %v, want allow %v by %q", tt.target, d, err, tt.allow, tt.rule)
		}
	}
	if _, err := r.proxy.Explain(context.Background(), Guest{}, policy, "gone.example.com", 443); !errors.Is(err, errs.Unavailable) {
		t.Errorf("a name that nobody knows: %v, want unavailable", err)
	}
	if len(r.dialled) > 0 || len(r.seen()) > 0 {
		t.Errorf("explaining dialled %v and decided %v", r.dialled, r.seen())
	}
	for _, bad := range []string{"host:x", "host:70000"} {
		if _, _, err := Target(bad); !errors.Is(err, errs.Invalid) {
			t.Errorf("Target(%q) = %v, want invalid", bad, err)
		}
	}
}
