package tenants

import (
	"context"
	"errors"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/storage"
	"github.com/cubbyhq/cubby/internal/store"
)

// DefaultDisk is the size of the disk that the sandboxes of a tenant
// share.
const DefaultDisk = 10 << 30

// disk gives the disk of a tenant, which is made when there is none; of no
// tenant, "". Until unlock it is not removed; who holds this lock asks for none
// of a sandbox.
func (s *Tenants) disk(ctx context.Context, tenant string) (uid sandbox.UID, unlock func(), err error) {
	if tenant == "" {
		return "", func() {}, nil
	}
	if unlock, err = s.locks.Lock(ctx, tenant); err != nil {
		return "", nil, err
	}
	if uid, err = s.makeDisk(ctx, tenant); err != nil {
		unlock()
		return "", nil, err
	}
	return uid, unlock, nil
}

func (s *Tenants) makeDisk(ctx context.Context, tenant string) (sandbox.UID, error) {
	t, err := s.cfg.Store.MakeTenant(ctx, tenant)
	if err != nil || t.Ready {
		return t.DiskUID, err
	}
	err = s.cfg.Disks.Create(ctx, t.DiskUID, storage.Shared, s.cfg.DiskBytes)
	if err != nil && !errors.Is(err, errs.Conflict) { // made, and then the daemon was killed
		return "", err
	}
	return t.DiskUID, s.cfg.Store.ReadyTenant(ctx, tenant)
}

// shareable turns the loss of a tenant's disk into what people can do about it.
func (s *Tenants) shareable(ctx context.Context, shared sandbox.UID, err error) error {
	if shared == "" || !errors.Is(err, errs.NotFound) {
		return err
	}
	if _, gone := s.cfg.Disks.Usage(ctx, shared); !errors.Is(gone, errs.NotFound) {
		return err
	}
	return errs.E(errs.Unavailable, "the disk of the tenant is gone").
		Hint("bring the file %s back below the data directory's disks, or remove the tenant", shared).Because(err)
}

// Attach mounts the disks of a sandbox that is about to run, or runs: its
// own, and the one that it shares.
func (s *Tenants) Attach(ctx context.Context, b sandbox.Sandbox) (storage.Mounts, error) {
	shared, unlock, err := s.disk(ctx, b.FilesTenant())
	if err != nil {
		return storage.Mounts{}, err
	}
	defer unlock()
	m, err := s.cfg.Disks.Attach(ctx, storage.Use{User: b.UID, Own: b.DiskUID, Shared: shared})
	return m, s.shareable(ctx, shared, err)
}

// Files gives the files of a sandbox that does not run until done.
func (s *Tenants) Files(ctx context.Context, b sandbox.Sandbox) (tree storage.Tree, done func(), err error) {
	shared, unlock, err := s.disk(ctx, b.FilesTenant())
	if err != nil {
		return nil, nil, err
	}
	defer unlock()
	tree, done, err = s.cfg.Disks.Files(ctx, storage.Use{User: b.UID, Own: b.DiskUID, Shared: shared})
	return tree, done, s.shareable(ctx, shared, err)
}

// All returns all.
func (s *Tenants) All(ctx context.Context) (all []store.Tenant, err error) {
	const page = 1000
	for after := ""; ; {
		rows, err := s.cfg.Store.Tenants(ctx, after, page)
		if err != nil {
			return nil, err
		}
		all = append(all, rows...)
		if len(rows) < page {
			return all, nil
		}
		after = rows[len(rows)-1].Name
	}
}
