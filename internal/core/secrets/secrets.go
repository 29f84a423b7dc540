// Package secrets keeps the secrets that the operator sets for the tasks of
// tenants, such as the keys of model providers. Doors set, list and remove them
// and never read a value; other rooms of core take values for the environment of
// what they start. What they do with them is their matter.
package secrets

import (
	"context"
	"log/slog"

	"github.com/cubbyhq/cubby/internal/auth"
	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// Secrets is the secrets of all tenants. It holds no state; methods may be called
// from any goroutine. The tenant "" is that of sandboxes of none.
type Secrets struct {
	store *store.Store
	gate  *gate.Gate
	log   *slog.Logger
}

// New returns the secrets of a store.
func New(st *store.Store, g *gate.Gate, log *slog.Logger) *Secrets {
	return &Secrets{store: st, gate: g, log: log}
}

// Set stores a secret, in place of the one that there was. Invalid and TooLarge
// are about its name and value, OverQuota says that the tenant has all it may
// have; Forbidden when the caller is a tenant.
func (s *Secrets) Set(ctx context.Context, tenant, name, value string) (store.Secret, error) {
	leave, err := s.enter(ctx, tenant)
	if err != nil {
		return store.Secret{}, err
	}
	defer leave()
	if err := sandbox.ValidateSecretName(name); err != nil {
		return store.Secret{}, err
	}
	if err := sandbox.ValidateSecretValue(value); err != nil {
		return store.Secret{}, err
	}
	set, err := s.store.SetSecret(ctx, tenant, name, value, sandbox.MaxSecrets)
	if err == nil {
		s.note(ctx, "a secret was set", tenant, name)
	}
	return set, err
}

// Remove forgets a secret; NotFound when it is not set, Forbidden when the
// caller is a tenant.
func (s *Secrets) Remove(ctx context.Context, tenant, name string) error {
	leave, err := s.enter(ctx, tenant)
	if err != nil {
		return err
	}
	defer leave()
	if err := sandbox.ValidateSecretName(name); err != nil {
		return err
	}
	err = s.store.RemoveSecret(ctx, tenant, name)
	if err == nil {
		s.note(ctx, "a secret was removed", tenant, name)
	}
	return err
}

// List returns the secrets of a tenant, by name. Internal when one of them
// cannot be opened, which names it; Forbidden when the caller is a tenant.
func (s *Secrets) List(ctx context.Context, tenant string) ([]store.Secret, error) {
	leave, err := s.enter(ctx, tenant)
	if err != nil {
		return nil, err
	}
	defer leave()
	return s.store.Secrets(ctx, tenant)
}

// Values returns the values of some secrets of a tenant, by their names; those
// that are not set are left out. It is for what core starts for the tenant, and
// not for doors: it does not look at the caller.
func (s *Secrets) Values(ctx context.Context, tenant string, names []string) (map[string]string, error) {
	return s.store.SecretValues(ctx, tenant, names)
}

// enter lets the operator in, once a tenant is well named.
func (s *Secrets) enter(ctx context.Context, tenant string) (leave func(), err error) {
	if auth.From(ctx).Tenant != "" {
		return nil, errs.E(errs.Forbidden, "secrets are the operator's").Hint("use a token that belongs to no tenant")
	}
	if tenant != "" {
		if err := sandbox.ValidateTenant(tenant); err != nil {
			return nil, err
		}
	}
	return s.gate.Enter(ctx)
}

// note logs who changed what, and not the value.
func (s *Secrets) note(ctx context.Context, what, tenant, name string) {
	s.log.Info(what, telemetry.KeyPrincipal, auth.From(ctx).Name, "tenant", tenant, "name", name)
}
