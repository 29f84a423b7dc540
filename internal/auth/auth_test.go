package auth

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/internal/errs"
)

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		list string
		want []Token // nil with ok: no tokens
		ok   bool
	}{
		{"", nil, true},
		{"  ", nil, true},
		{"a:s3cret", []Token{{Name: "a", Secret: "s3cret"}}, true},
		{"a=s3cret", []Token{{Name: "a", Secret: "s3cret"}}, true},
		{"a:s", []Token{{Name: "a", Secret: "s"}}, true},
		{" a:x , b=y ", []Token{{Name: "a", Secret: "x"}, {Name: "b", Secret: "y"}}, true},
		{"a:x=y:z", []Token{{Name: "a", Secret: "x=y:z"}}, true},
		{"a=x:y", []Token{{Name: "a", Secret: "x:y"}}, true},
		{"ci.bot_1-b:dGVzdA==", []Token{{Name: "ci.bot_1-b", Secret: "dGVzdA=="}}, true},
		{"a@acme:x, b@Ac.me-1=y,c:z", []Token{{Name: "a", Tenant: "acme", Secret: "x"}, {Name: "b", Tenant: "Ac.me-1", Secret: "y"}, {Name: "c", Secret: "z"}}, true},
		{"a:x@acme", []Token{{Name: "a", Secret: "x@acme"}}, true},
		{"s3cret", nil, false},
		{"a@:s3cret", nil, false},
		{"@acme:s3cret", nil, false},
		{"a@../b:s3cret", nil, false},
		{"a@b@c:s3cret", nil, false},
		{"a@acme:s3cret,a@other:x", nil, false},
		{":s3cret", nil, false},
		{"a:", nil, false},
		{"a= ", nil, false},
		{"a:x,", nil, false},
		{",", nil, false},
		{"a:x,,b:y", nil, false},
		{"a b:s3cret", nil, false},
		{"ä:s3cret", nil, false},
		{strings.Repeat("a", 65) + ":s3cret", nil, false},
		{"a:s3 cret", nil, false},
		{"a:s3cret\x00", nil, false},
		{"a:s3crét", nil, false},
		{"a:x,a:s3cret", nil, false},
		{"a:s3cret,b:s3cret", nil, false},
	} {
		got, err := Parse(tt.list)
		if tt.ok != (err == nil) || !tt.ok && !errors.Is(err, errs.Invalid) {
			t.Errorf("Parse(%q) = %v, want ok = %v", tt.list, err, tt.ok)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("Parse(%q) (-want +got):\n%s", tt.list, diff)
		}
		if err != nil && (strings.Contains(err.Error(), "s3c") || strings.Contains(errs.Public(err).Hint, "s3c")) {
			t.Errorf("Parse(%q) shows the secret: %v", tt.list, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("a:b,c=d")
	f.Fuzz(func(t *testing.T, list string) {
		tokens, err := Parse(list)
		if err != nil {
			return
		}
		a, err := New(tokens)
		if err != nil {
			t.Fatalf("Parse takes %q and New does not: %v", list, err)
		}
		for _, token := range tokens {
			if p, ok := a.Authenticate(token.Secret); !ok || p.Name != token.Name {
				t.Fatalf("%q: the secret of %s is %v, %v", list, token.Name, p, ok)
			}
		}
	})
}

func TestAuthenticate(t *testing.T) {
	a, err := New([]Token{{Name: "one", Secret: "first"}, {Name: "two", Secret: "second"}, {Name: "three", Secret: "x"}})
	if err != nil {
		t.Fatal(err)
	}
	none, err := New(nil)
	if err != nil {
		t.Fatal(err)
	}
	if !a.Enabled() || none.Enabled() {
		t.Errorf("Enabled = %v with tokens, %v without", a.Enabled(), none.Enabled())
	}
	for _, tt := range []struct {
		secret, want string
	}{
		{"first", "one"}, {"second", "two"}, {"x", "three"},
		{"", ""}, {"firs", ""}, {"first ", ""}, {"FIRST", ""}, {"one:first", ""}, {"\x00", ""},
	} {
		p, ok := a.Authenticate(tt.secret)
		if ok != (tt.want != "") || p.Name != tt.want {
			t.Errorf("Authenticate(%q) = %+v, %v, want %q", tt.secret, p, ok, tt.want)
		}
		if _, ok := none.Authenticate(tt.secret); ok {
			t.Errorf("Authenticate(%q) succeeds without tokens", tt.secret)
		}
	}
	for _, bad := range [][]Token{{{Name: "", Secret: "x"}}, {{Name: "a", Secret: ""}}, {{Name: "a", Secret: "x"}, {Name: "a", Secret: "y"}}, {{Name: "a", Secret: "x"}, {Name: "b", Secret: "x"}}} {
		if _, err := New(bad); !errors.Is(err, errs.Invalid) {
			t.Errorf("New(%v) = %v, want invalid", bad, err)
		}
	}
}

func TestTokensDoNotPrintSecrets(t *testing.T) {
	tokens := []Token{{Name: "one", Secret: "s3cret"}}
	a, err := New(tokens)
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		if text := fmt.Sprintf(format+format, tokens, a); strings.Contains(text, "s3cret") {
			t.Errorf("%s prints %s", format, text)
		}
	}
}

func TestTokensOfTenants(t *testing.T) {
	tokens, err := Parse("all:x,one@acme:y")
	if err != nil {
		t.Fatal(err)
	}
	a, err := New(tokens)
	if err != nil {
		t.Fatal(err)
	}
	all, _ := a.Authenticate("x")
	one, _ := a.Authenticate("y")
	if one != (Principal{Name: "one", Tenant: "acme"}) {
		t.Fatalf("Authenticate = %+v", one)
	}
	for tenant, want := range map[string]bool{"acme": true, "Acme": false, "other": false, "": false} {
		if one.Sees(tenant) != want {
			t.Errorf("a token of acme sees what belongs to %q = %v", tenant, !want)
		}
		if !all.Sees(tenant) {
			t.Errorf("a token of no tenant does not see what belongs to %q", tenant)
		}
	}
	if _, err := New([]Token{{Name: "a", Tenant: "../b", Secret: "x"}}); !errors.Is(err, errs.Invalid) {
		t.Errorf("New with a malformed tenant = %v, want invalid", err)
	}
}

func TestContext(t *testing.T) {
	if p := From(t.Context()); p != (Principal{}) {
		t.Errorf("From of an empty context = %+v", p)
	}
	want := Principal{Name: "one", Tenant: "acme"}
	if p := From(WithPrincipal(t.Context(), want)); p != want {
		t.Errorf("From = %+v, want %+v", p, want)
	}
}
