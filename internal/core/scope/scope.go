// Package scope resolves what a caller names to what the caller sees: an id to
// one of its sandboxes, a tenant to itself or to nothing. What belongs to another
// tenant does not exist for the caller ([auth.From]). It also says in words what
// became of a sandbox that does not run or is gone. It changes nothing.
package scope

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/cubbyhq/cubby/internal/auth"
	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store"
)

// Scope finds the sandboxes and tenants of callers in the store.
type Scope struct {
	store *store.Store
	gate  *gate.Gate
	now   func() time.Time
}

// New returns a Scope whose finds wait until the gate is open.
func New(st *store.Store, g *gate.Gate, now func() time.Time) *Scope {
	return &Scope{store: st, gate: g, now: now}
}

// Find returns the caller's sandbox with an id, once what an earlier daemon left
// is reconciled: until then a row may say what is no longer so. NotFound says
// what became of the last one that had the id.
func (s *Scope) Find(ctx context.Context, id string) (sandbox.Sandbox, error) {
	if err := s.gate.Wait(ctx); err != nil {
		return sandbox.Sandbox{}, err
	}
	parsed, err := sandbox.ParseID(id)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	b, err := s.store.Sandbox(ctx, parsed)
	if errors.Is(err, errs.NotFound) || err == nil && !auth.From(ctx).Sees(b.Tenant) {
		err = s.NoSuch(ctx, parsed)
	}
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	return b, nil
}

// FindHistory returns the sandbox that has an id or, when the caller has none,
// the newest that had it and was destroyed: its history is kept for a while.
func (s *Scope) FindHistory(ctx context.Context, id string) (sandbox.Sandbox, error) {
	b, err := s.Find(ctx, id)
	if !errors.Is(err, errs.NotFound) {
		return b, err
	}
	parsed, err := sandbox.ParseID(id)
	if err != nil {
		return b, err
	}
	return s.store.DestroyedSandbox(ctx, parsed, Whose(ctx, ""))
}

// NoSuch is the error for an id that no sandbox of the caller's has: it says
// when and why the last one of this id ended, as long as its history is kept.
func (s *Scope) NoSuch(ctx context.Context, id sandbox.ID) error {
	b, err := s.store.DestroyedSandbox(ctx, id, Whose(ctx, ""))
	if errors.Is(err, errs.NotFound) {
		return NoSuchSandbox()
	}
	if err != nil {
		return err
	}
	f := &formerly{ago: s.now().Sub(b.DestroyedAt), reason: b.Reason}
	e := errs.E(errs.NotFound, "no such sandbox: %s", f.String()).Because(f)
	if b.Cause == sandbox.CauseIdle {
		return e.Hint("create a new one; idle_policy and idle_timeout decide how long it stays unused")
	}
	return e
}

// NotRunning is the WrongState of a sandbox that does not run. It says what to
// do.
func (s *Scope) NotRunning(b sandbox.Sandbox) error {
	e := errs.E(errs.WrongState, "the sandbox is %s%s", b.State, rested(b, s.now()))
	switch b.State {
	case sandbox.Creating:
		return e.Hint("wait until it is running").RetryAfter(time.Second)
	case sandbox.Stopped, sandbox.Sleeping:
		if b.Cause.Died() {
			return e.Hint("%s", b.Reason)
		}
		if b.State == sandbox.Sleeping {
			return e.Hint("wake it first; with auto_wake idle or always it wakes when it is used")
		}
		return e.Hint("start it first; its files are there")
	case sandbox.Failed:
		return e.Hint("%s; create a new one", b.Reason)
	}
	return e
}

// Tenant finds a tenant that the caller sees.
func (s *Scope) Tenant(ctx context.Context, name string) (store.Tenant, error) {
	if err := sandbox.ValidateTenant(name); err != nil {
		return store.Tenant{}, err
	}
	if !auth.From(ctx).Sees(name) {
		return store.Tenant{}, NoSuchTenant()
	}
	return s.store.Tenant(ctx, name)
}

// NoSuchSandbox is the error for a sandbox that the caller does not see.
func NoSuchSandbox() error { return errs.E(errs.NotFound, "no such sandbox") }

// NoSuchTenant is the error for a tenant that the caller does not see.
func NoSuchTenant() error { return errs.E(errs.NotFound, "no such tenant") }

// Actor is the name of the caller, for histories.
func Actor(ctx context.Context) string { return auth.From(ctx).Name }

// MayName refuses a tenant that the caller may not name. "" names none.
func MayName(ctx context.Context, tenant string) error {
	if tenant == "" {
		return nil
	}
	if err := sandbox.ValidateTenant(tenant); err != nil {
		return err
	}
	if !auth.From(ctx).Sees(tenant) {
		return errs.E(errs.Forbidden, "tenant_id: the token belongs to another tenant").Hint("leave it out")
	}
	return nil
}

// Whose is the tenant that the store is asked for, nil being any.
func Whose(ctx context.Context, tenant string) *string {
	if tenant = cmp.Or(auth.From(ctx).Tenant, tenant); tenant == "" {
		return nil
	}
	return &tenant
}
