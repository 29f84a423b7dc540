package core

import (
	"context"
	"errors"
	"sync"

	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/keylock"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/storage"
	"github.com/cubbyhq/cubby/internal/store"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// DefaultTenantDisk is the size of the disk that the sandboxes of a tenant
// share.
const DefaultTenantDisk = 10 << 30

// shared knows who uses the disks of tenants: they are mounted while somebody
// does.
type shared struct {
	// By tenant; held while its disk is made, mounted, unmounted or removed. Who
	// holds one asks for no lock of a sandbox.
	locks keylock.Locks

	mu    sync.Mutex
	disks map[string]*sharedDisk // by tenant; guarded by mu
}

type sharedDisk struct {
	uid   sandbox.UID
	users map[sandbox.UID]bool // sandboxes and transfers
}

func (d *shared) use(t store.Tenant, user sandbox.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	disk := d.disks[t.Name]
	if disk == nil {
		if d.disks == nil {
			d.disks = make(map[string]*sharedDisk)
		}
		disk = &sharedDisk{uid: t.DiskUID, users: make(map[sandbox.UID]bool)}
		d.disks[t.Name] = disk
	}
	disk.users[user] = true
}

func (d *shared) used(tenant string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.disks[tenant] != nil
}

// leave ends a use. It returns the disk when that was the last.
func (d *shared) leave(tenant string, user sandbox.UID) (unused sandbox.UID, last bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	disk := d.disks[tenant]
	if disk == nil || !disk.users[user] {
		return "", false
	}
	delete(disk.users, user)
	if len(disk.users) > 0 {
		return "", false
	}
	delete(d.disks, tenant)
	return disk.uid, true
}

// share gives a user the disk of a tenant, which is made or mounted when it
// has to be; of no tenant, the zero disk. The use lasts until unshare.
func (s *Service) share(ctx context.Context, tenant string, user sandbox.UID) (storage.Disk, error) {
	if tenant == "" {
		return storage.Disk{}, nil
	}
	unlock, err := s.shared.locks.Lock(ctx, tenant)
	if err != nil {
		return storage.Disk{}, err
	}
	defer unlock()
	t, err := s.cfg.Store.MakeTenant(ctx, tenant)
	if err != nil {
		return storage.Disk{}, err
	}
	disk, err := s.cfg.Disks.Mount(ctx, t.DiskUID)
	if errors.Is(err, errs.NotFound) && t.Ready {
		return disk, errs.E(errs.Unavailable, "the disk of the tenant is gone").
			Hint("bring the file %s back below the data directory's disks, or remove the tenant", t.DiskUID).Because(err)
	}
	if errors.Is(err, errs.NotFound) {
		disk, err = s.cfg.Disks.CreateShared(ctx, t.DiskUID, s.cfg.TenantDiskBytes)
	}
	if err == nil && !t.Ready {
		err = s.cfg.Store.ReadyTenant(ctx, tenant)
	}
	if err != nil {
		return disk, err
	}
	s.shared.use(t, user)
	return disk, nil
}

// unshare ends a use of a tenant's disk, which is unmounted when nobody else
// has it. Ending none does nothing.
func (s *Service) unshare(ctx context.Context, tenant string, user sandbox.UID) {
	if tenant == "" {
		return
	}
	ctx, cancel := gate.Detached(ctx)
	defer cancel()
	unlock, err := s.shared.locks.Lock(ctx, tenant)
	if err != nil {
		s.log.Warn("let go of the disk of a tenant", telemetry.KeyUID, user, telemetry.KeyErr, err)
		return
	}
	defer unlock()
	uid, last := s.shared.leave(tenant, user)
	if !last {
		return
	}
	if err := s.cfg.Disks.Unmount(ctx, uid); err != nil {
		s.log.Warn("unmount the disk of a tenant", telemetry.KeyUID, uid, telemetry.KeyErr, err)
		s.lookAtAll()
	}
}

// unmount takes down the disks that a sandbox had: its own, and its tenant's
// when no other uses it. It fails for its own only.
func (s *Service) unmount(ctx context.Context, b sandbox.Sandbox) error {
	s.unshare(ctx, b.Tenant, b.UID)
	return s.cfg.Disks.Unmount(ctx, b.DiskUID)
}

// removeDisk deletes a sandbox's own disk and lets go of its tenant's.
func (s *Service) removeDisk(ctx context.Context, b sandbox.Sandbox) (freed int64, err error) {
	s.unshare(ctx, b.Tenant, b.UID)
	return s.cfg.Disks.Remove(ctx, b.DiskUID)
}

// tenants returns all.
func (s *Service) tenants(ctx context.Context) (all []store.Tenant, err error) {
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

// closeShared unmounts the disks of tenants that nobody uses, as an earlier
// daemon left them. A disk that a sandbox may use is left.
func (s *Service) closeShared(ctx context.Context, rows []sandbox.Sandbox, faults *faultList) {
	running := make(map[string]bool)
	for _, b := range rows {
		if b.State == sandbox.Running || b.State == sandbox.Creating {
			running[b.Tenant] = true
		}
	}
	tenants, err := s.tenants(ctx)
	if err != nil {
		faults.add("store", err)
		return
	}
	for _, t := range tenants {
		unlock, free := s.shared.locks.TryLock(t.Name)
		if !free {
			continue
		}
		if !running[t.Name] && !s.shared.used(t.Name) {
			if err := s.cfg.Disks.Unmount(ctx, t.DiskUID); err != nil {
				faults.add("disks", err)
			}
		}
		unlock()
	}
}

// tree gives the files of a sandbox that does not run. They are used until
// unshare.
func (s *Service) tree(ctx context.Context, b sandbox.Sandbox) (storage.Tree, error) {
	common, err := s.share(ctx, b.Tenant, b.UID)
	if err != nil {
		return nil, err
	}
	if b.Tenant == "" {
		return s.cfg.Disks.Tree(ctx, b.DiskUID)
	}
	return s.cfg.Disks.SharedTree(ctx, b.DiskUID, common.UID)
}
