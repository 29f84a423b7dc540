package store

import (
	"errors"
	"testing"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

func TestTenants(t *testing.T) {
	s, _ := fresh(t)
	ctx := t.Context()
	if _, err := s.Tenant(ctx, "acme"); !errors.Is(err, errs.NotFound) {
		t.Fatalf("Tenant before it was made: %v", err)
	}
	first, err := s.MakeTenant(ctx, "acme")
	if err != nil || first.Name != "acme" || first.DiskUID == "" || first.Ready || first.CreatedAt.IsZero() {
		t.Fatalf("MakeTenant = %+v, %v", first, err)
	}
	if err := s.ReadyTenant(ctx, "acme"); err != nil {
		t.Fatal(err)
	}
	again, err := s.MakeTenant(ctx, "acme")
	first.Ready = true
	if err != nil || again != first {
		t.Fatalf("MakeTenant again = %+v, %v, want %+v", again, err, first)
	}
	// Names that differ in case are different tenants.
	for _, name := range []string{"Acme", "beta"} {
		if other, err := s.MakeTenant(ctx, name); err != nil || other.DiskUID == first.DiskUID {
			t.Fatalf("MakeTenant(%s) = %+v, %v", name, other, err)
		}
	}
	page, err := s.Tenants(ctx, "", 2)
	if err != nil || len(page) != 2 || page[0].Name != "Acme" || page[1].Name != "acme" {
		t.Fatalf("Tenants = %+v, %v", page, err)
	}
	if page, err = s.Tenants(ctx, page[1].Name, 2); err != nil || len(page) != 1 || page[0].Name != "beta" {
		t.Fatalf("Tenants, second page = %+v, %v", page, err)
	}
}

func TestTenantWithSandboxesIsNotDropped(t *testing.T) {
	s, _ := fresh(t)
	ctx := t.Context()
	if _, err := s.MakeTenant(ctx, "acme"); err != nil {
		t.Fatal(err)
	}
	b := box("b")
	b.Tenant = "acme"
	if err := s.CreateSandbox(ctx, b); err != nil {
		t.Fatal(err)
	}
	if use, err := s.TenantUse(ctx, "acme"); err != nil || use != (TenantUse{1, 1}) {
		t.Errorf("TenantUse = %+v, %v", use, err)
	}
	if use, err := s.TenantUse(ctx, "other"); err != nil || use != (TenantUse{}) {
		t.Errorf("TenantUse of another = %+v, %v", use, err)
	}
	if _, err := s.DropTenant(ctx, "acme"); !errors.Is(err, errs.Conflict) {
		t.Fatalf("DropTenant with a sandbox: %v", err)
	}
	if _, err := s.Move(ctx, b.UID, sandbox.Failed, Change{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.DropTenant(ctx, "acme"); err != nil {
		t.Fatalf("DropTenant: %v", err)
	}
	if _, err := s.DropTenant(ctx, "acme"); !errors.Is(err, errs.NotFound) {
		t.Fatalf("DropTenant of none: %v", err)
	}
}
