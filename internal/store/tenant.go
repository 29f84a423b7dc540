package store

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store/column"
	"github.com/cubbyhq/cubby/internal/store/engine"
)

// Tenant is one whose sandboxes share a disk.
type Tenant struct {
	Name    string
	DiskUID sandbox.UID
	// Ready: the disk was made. Before that it may or may not be there.
	Ready     bool
	CreatedAt time.Time
}

// TenantUse counts the sandboxes of a tenant that are not failed or destroyed.
type TenantUse struct {
	Sandboxes int
	Running   int // or being created
}

const tenantColumns = `name, disk_uid, ready, created_at`

// MakeTenant returns the tenant with a name; one that is not known is written
// down with a fresh disk uid and not ready.
func (s *Store) MakeTenant(ctx context.Context, name string) (t Tenant, err error) {
	// Most are known, and looking is no write that has to be synced.
	if t, err = s.Tenant(ctx, name); !errors.Is(err, errs.NotFound) {
		return t, err
	}
	err = s.update(ctx, durable, func(x *tx) error {
		if _, err := x.exec(`INSERT INTO tenants (`+tenantColumns+`) VALUES ($1, $2, $3, $4) ON CONFLICT (name) DO NOTHING`,
			name, sandbox.NewUID(), 0, column.Micros(s.now())); err != nil {
			return err
		}
		t, err = scanTenant(x.row(`SELECT `+tenantColumns+` FROM tenants WHERE name = $1`, name))
		return err
	})
	return t, err
}

// ReadyTenant notes that the disk of a tenant was made.
func (s *Store) ReadyTenant(ctx context.Context, name string) error {
	return s.update(ctx, durable, func(x *tx) error {
		_, err := x.exec(`UPDATE tenants SET ready = 1 WHERE name = $1`, name)
		return err
	})
}

// Tenant returns a tenant; NotFound when none has the name.
func (s *Store) Tenant(ctx context.Context, name string) (Tenant, error) {
	t, err := scanTenant(s.reads.Row(ctx, `SELECT `+tenantColumns+` FROM tenants WHERE name = $1`, name))
	if errors.Is(err, sql.ErrNoRows) {
		return t, errs.E(errs.NotFound, "no such tenant")
	}
	return t, s.fault(err)
}

// Tenants returns the tenants whose names come after one, by name, at most n
// (0: 100; never more than 1000).
func (s *Store) Tenants(ctx context.Context, after string, n int) ([]Tenant, error) {
	rows, err := s.reads.Rows(ctx, `SELECT `+tenantColumns+` FROM tenants WHERE name > $1 ORDER BY name LIMIT $2`, after, limit(n))
	tenants, err := engine.Collect(rows, err, scanTenant)
	return tenants, s.fault(err)
}

const selectTenantUse = `SELECT COUNT(*), COALESCE(SUM(CASE WHEN state IN ('running', 'creating') THEN 1 ELSE 0 END), 0)
	FROM sandboxes WHERE tenant = $1 AND state <> 'destroyed' AND state <> 'failed'`

// TenantUse counts the sandboxes of a tenant, known or not.
func (s *Store) TenantUse(ctx context.Context, name string) (TenantUse, error) {
	use, err := scanTenantUse(s.reads.Row(ctx, selectTenantUse, name))
	return use, s.fault(err)
}

// Holdings is what a tenant has, whether it runs or not.
type Holdings struct {
	Sandboxes int   // that are not failed or destroyed
	DiskBytes int64 // the limits of their disks
	KeptDisks []sandbox.UID
}

// Holdings counts what a tenant has.
func (s *Store) Holdings(ctx context.Context, tenant string) (h Holdings, err error) {
	if err := s.reads.Row(ctx, `SELECT COUNT(*), CAST(COALESCE(SUM(`+s.engine.DiskBytes+`), 0) AS BIGINT) FROM sandboxes
			WHERE tenant = $1 AND state <> 'destroyed' AND state <> 'failed'`, tenant).Scan(&h.Sandboxes, &h.DiskBytes); err != nil {
		return h, s.fault(err)
	}
	rows, err := s.reads.Rows(ctx, `SELECT disk_uid FROM kept_disks WHERE tenant = $1`, tenant)
	h.KeptDisks, err = engine.Collect(rows, err, func(r engine.Row) (uid sandbox.UID, err error) { return uid, r.Scan(&uid) })
	return h, s.fault(err)
}

// DropTenant forgets a tenant and returns it, for the caller to remove its
// disk. NotFound when there is none, and Conflict while it has sandboxes.
func (s *Store) DropTenant(ctx context.Context, name string) (t Tenant, err error) {
	err = s.update(ctx, durable, func(x *tx) error {
		use, err := scanTenantUse(x.row(selectTenantUse, name))
		if err != nil {
			return err
		}
		if use.Sandboxes > 0 {
			return errs.E(errs.Conflict, "the tenant has %d sandboxes", use.Sandboxes).Hint("destroy them first")
		}
		t, err = scanTenant(x.row(`DELETE FROM tenants WHERE name = $1 RETURNING `+tenantColumns, name))
		if errors.Is(err, sql.ErrNoRows) {
			return errs.E(errs.NotFound, "no such tenant")
		}
		return err
	})
	return t, err
}

func scanTenant(r engine.Row) (t Tenant, err error) {
	var ready, created int64
	err = r.Scan(&t.Name, &t.DiskUID, &ready, &created)
	t.Ready, t.CreatedAt = ready != 0, column.FromMicros(created)
	return t, err
}

func scanTenantUse(r engine.Row) (u TenantUse, err error) {
	return u, r.Scan(&u.Sandboxes, &u.Running)
}
