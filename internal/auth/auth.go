// Package auth knows who may talk to the daemon: it parses the operator's
// token list and turns a presented secret into a [Principal]. It refuses to
// keep secrets (only their SHA-256 stays in memory), to log them, and to know
// transports: which header a secret came from is the doors' matter.
package auth

import (
	"context"

	"github.com/cubbyhq/cubby/internal/errs"
)

var errStub = errs.E(errs.Internal, "not built yet")

// Principal is who makes a request. The zero value is the local user of a
// daemon without tokens.
type Principal struct {
	Name   string
	Tenant string // "": the daemon has no tenants
}

// Token names one secret.
type Token struct {
	Name   string
	Secret string
}

func Parse(list string) ([]Token, error) { return nil, errStub }

type Authenticator struct{}

func New(tokens []Token) (*Authenticator, error) { return nil, errStub }

// Enabled is false when there are no tokens.
func (a *Authenticator) Enabled() bool { return false }

func (a *Authenticator) Authenticate(secret string) (Principal, bool) { return Principal{}, false }

type contextKey struct{}

func WithPrincipal(ctx context.Context, p Principal) context.Context {
	return context.WithValue(ctx, contextKey{}, p)
}

// From returns the zero Principal when ctx has none.
func From(ctx context.Context) Principal {
	p, _ := ctx.Value(contextKey{}).(Principal)
	return p
}
