// Package tenants knows the names that sandboxes belong to, and mounts the disks of
// sandboxes: each one's own, and the one that its tenant's sandboxes share if it is
// to have that. It makes a shared disk when it is first used, keeps a tenant's
// uploads on it, and removes it on request. What sandboxes there are, and when they
// run, is lifecycle's matter.
package tenants

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/cubbyhq/cubby/internal/auth"
	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/core/scope"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/keylock"
	"github.com/cubbyhq/cubby/internal/storage"
	"github.com/cubbyhq/cubby/internal/store"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// A tenant is a name that sandboxes belong to. They share a disk, with one
// /workspace and one /mnt/user-data for all of them. It begins with its first
// sandbox or upload and stays until it is removed.

// Tenant is a tenant and what it takes.
type Tenant struct {
	Name      string
	CreatedAt time.Time
	Sandboxes int // that are not failed or destroyed
	Running   int
	Disk      storage.Usage // that its sandboxes share
}

// Config is what tenants are kept with. All fields are required.
type Config struct {
	Store     *store.Store
	Disks     storage.Storage
	Scope     *scope.Scope
	Gate      *gate.Gate
	Log       *slog.Logger
	DiskBytes int64 // of the disk that a tenant's sandboxes share; 0: [DefaultDisk]
	// Left hears that the disk of a tenant that is gone could not be removed.
	Left func()
}

// Tenants is the tenants that callers see. Methods may be called from any
// goroutine.
type Tenants struct {
	cfg Config
	// By tenant; held while its disk is made, used for the first time, or removed.
	locks keylock.Locks
}

// New returns the tenants of the store.
func New(cfg Config) *Tenants {
	if cfg.DiskBytes == 0 {
		cfg.DiskBytes = DefaultDisk
	}
	return &Tenants{cfg: cfg}
}

// Get describes a tenant. NotFound when it never had a sandbox or an upload.
func (s *Tenants) Get(ctx context.Context, name string) (Tenant, error) {
	t, err := s.cfg.Scope.Tenant(ctx, name)
	if err != nil {
		return Tenant{}, err
	}
	return s.describe(ctx, t)
}

func (s *Tenants) describe(ctx context.Context, t store.Tenant) (Tenant, error) {
	use, err := s.cfg.Store.TenantUse(ctx, t.Name)
	if err != nil {
		return Tenant{}, err
	}
	d := Tenant{Name: t.Name, CreatedAt: t.CreatedAt, Sandboxes: use.Sandboxes, Running: use.Running}
	d.Disk, err = s.cfg.Disks.Usage(ctx, t.DiskUID)
	if errors.Is(err, errs.NotFound) && !t.Ready {
		err = nil // it is just being made
	}
	return d, err
}

// List returns the tenants whose names come after one, by name, at most
// limit (0: 100; never more than 1000), and what to give as after for the next
// page, "" on the last.
func (s *Tenants) List(ctx context.Context, after string, limit int) (page []Tenant, next string, err error) {
	var rows []store.Tenant
	if own := auth.From(ctx).Tenant; own == "" {
		rows, err = s.cfg.Store.Tenants(ctx, after, limit)
	} else if own > after {
		var t store.Tenant
		if t, err = s.cfg.Store.Tenant(ctx, own); err == nil {
			return s.describeAll(ctx, []store.Tenant{t}, "")
		}
		if errors.Is(err, errs.NotFound) {
			err = nil
		}
	}
	if err != nil {
		return nil, "", err
	}
	if n := len(rows); n > 0 && n >= min(cmp.Or(limit, 100), 1000) {
		next = rows[n-1].Name
	}
	return s.describeAll(ctx, rows, next)
}

func (s *Tenants) describeAll(ctx context.Context, rows []store.Tenant, next string) ([]Tenant, string, error) {
	page := make([]Tenant, 0, len(rows))
	for _, t := range rows {
		d, err := s.describe(ctx, t)
		if err != nil {
			return nil, "", err
		}
		page = append(page, d)
	}
	return page, next, nil
}

// Remove deletes what the sandboxes of a tenant shared, and its uploads.
// Conflict while it has sandboxes, also stopped ones; NotFound when there is no
// such tenant.
func (s *Tenants) Remove(ctx context.Context, name string) error {
	leave, err := s.cfg.Gate.Enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if _, err := s.cfg.Scope.Tenant(ctx, name); err != nil {
		return err
	}
	unlock, err := s.locks.Lock(ctx, name)
	if err != nil {
		return err
	}
	defer unlock()
	t, err := s.cfg.Store.Tenant(ctx, name)
	if err != nil {
		return err
	}
	if s.cfg.Disks.InUse(t.DiskUID) {
		return errs.E(errs.Conflict, "the tenant has sandboxes, or its files are being read").Hint("destroy its sandboxes first")
	}
	t, err = s.cfg.Store.DropTenant(ctx, name)
	if err != nil {
		return err
	}
	undo, cancel := gate.Detached(ctx)
	defer cancel()
	if _, err := s.cfg.Disks.Remove(undo, t.DiskUID); err != nil {
		s.cfg.Log.Error("remove the disk of a tenant", telemetry.KeyUID, t.DiskUID, telemetry.KeyErr, err)
		s.cfg.Left() // it belongs to nobody now
	}
	return nil
}
