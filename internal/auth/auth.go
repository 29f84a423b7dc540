// Package auth knows who may talk to the daemon: it reads the operator's token
// list and turns a presented secret into a [Principal]. It refuses to keep
// secrets (their SHA-256 is all that stays in memory), to log them or show
// them in errors, and to know transports: which header a secret came from is
// the doors' matter.
package auth

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"strings"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Principal is who makes a request. The zero value is the local user of a
// daemon without tokens.
type Principal struct {
	Name   string
	Tenant string // "": it belongs to none, and sees those of all
}

// Sees reports whether p may know of what belongs to a tenant.
func (p Principal) Sees(tenant string) bool { return p.Tenant == "" || p.Tenant == tenant }

// Key names p among the principals of all times: a name that an operator gives
// to another tenant's token is somebody else. Names have no "@".
func (p Principal) Key() string {
	if p.Tenant == "" {
		return p.Name
	}
	return p.Name + "@" + p.Tenant
}

// Token gives a secret a name. Several names let the operator withdraw one.
type Token struct {
	Name   string
	Tenant string // that it belongs to; "" is none
	Secret string
}

// String keeps the secret out of logs that print a Token.
func (t Token) String() string { return t.Name + ":…" }

// GoString is String, for %#v.
func (t Token) GoString() string { return t.String() }

const maxNameLength = 64

// Parse reads a comma-separated token list; each entry is name:secret or
// name=secret, and what follows the first of these marks is the secret. A token
// of a tenant is name@tenant:secret. Spaces around entries do not count, an
// empty list has no tokens. It is errs.Invalid for empty entries, names or
// secrets, for names of other characters than A-Z a-z 0-9 . _ -, for tenants
// that [sandbox.ValidateTenant] refuses, for secrets with spaces or control
// characters, which no header could carry, and for names or secrets that occur
// twice. The error names the entry by its place and never shows it.
func Parse(list string) ([]Token, error) {
	if strings.TrimSpace(list) == "" {
		return nil, nil
	}
	var tokens []Token
	for i, entry := range strings.Split(list, ",") {
		at := strings.IndexAny(entry, ":=")
		if at < 0 {
			return nil, malformed(i, "has no secret")
		}
		name, tenant, owned := strings.Cut(strings.TrimSpace(entry[:at]), "@")
		if owned && tenant == "" {
			return nil, malformed(i, "has an empty tenant")
		}
		tokens = append(tokens, Token{Name: name, Tenant: tenant, Secret: strings.TrimSpace(entry[at+1:])})
	}
	if err := check(tokens); err != nil {
		return nil, err
	}
	return tokens, nil
}

func malformed(i int, what string) error {
	return errs.E(errs.Invalid, "token %d of the list %s", i+1, what).
		Hint("tokens are name:secret or name@tenant:secret, separated by commas")
}

func check(tokens []Token) error {
	names := make(map[string]bool, len(tokens))
	secrets := make(map[string]bool, len(tokens))
	for i, t := range tokens {
		switch {
		case t.Name == "":
			return malformed(i, "has no name")
		case len(t.Name) > maxNameLength || strings.ContainsFunc(t.Name, func(c rune) bool { return !nameChar(c) }):
			return malformed(i, "has a malformed name")
		case t.Tenant != "" && sandbox.ValidateTenant(t.Tenant) != nil:
			return malformed(i, "has a malformed tenant")
		case t.Secret == "":
			return malformed(i, "has an empty secret")
		case strings.ContainsFunc(t.Secret, func(c rune) bool { return c <= ' ' || c >= 0x7f }):
			return malformed(i, "has a secret that is not plain ASCII without spaces")
		case names[t.Name]:
			return malformed(i, "has the name of another one")
		case secrets[t.Secret]:
			return malformed(i, "has the secret of another one")
		}
		names[t.Name], secrets[t.Secret] = true, true
	}
	return nil
}

func nameChar(c rune) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-'
}

// Authenticator knows the tokens. It does not change and may be used from any
// goroutine.
type Authenticator struct {
	entries []entry
}

type entry struct {
	who Principal
	sum [sha256.Size]byte
}

// New returns an Authenticator for tokens; errs.Invalid where [Parse] would
// refuse them.
func New(tokens []Token) (*Authenticator, error) {
	if err := check(tokens); err != nil {
		return nil, err
	}
	a := new(Authenticator)
	for _, t := range tokens {
		a.entries = append(a.entries, entry{Principal{t.Name, t.Tenant}, sha256.Sum256([]byte(t.Secret))})
	}
	return a, nil
}

// Enabled reports whether there are any tokens. Without them nobody can
// authenticate, and a door may only serve the local user.
func (a *Authenticator) Enabled() bool { return len(a.entries) > 0 }

// Authenticate finds whose secret it is. It takes the same time for every
// secret of a length: the sum is compared with those of all tokens, in
// constant time.
func (a *Authenticator) Authenticate(secret string) (Principal, bool) {
	sum := sha256.Sum256([]byte(secret))
	found := -1
	for i := range a.entries {
		equal := subtle.ConstantTimeCompare(sum[:], a.entries[i].sum[:])
		found = subtle.ConstantTimeSelect(equal, i, found)
	}
	if found < 0 || secret == "" {
		return Principal{}, false
	}
	return a.entries[found].who, true
}

type contextKey struct{}

// WithPrincipal returns a context whose requests are made by p. Doors call it
// once, after they authenticated the request.
func WithPrincipal(ctx context.Context, p Principal) context.Context {
	return context.WithValue(ctx, contextKey{}, p)
}

// From returns who makes the request, the zero Principal when ctx names
// nobody.
func From(ctx context.Context) Principal {
	p, _ := ctx.Value(contextKey{}).(Principal)
	return p
}
