package lifecycle

import (
	"context"
	"errors"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/storage"
	"github.com/cubbyhq/cubby/internal/store"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// DefaultTenantDisk is the size of the disk that the sandboxes of a tenant
// share.
const DefaultTenantDisk = 10 << 30

// tenantDisk gives the disk of a tenant, which is made when there is none; of no
// tenant, "". Until unlock it is not removed; who holds this lock asks for none
// of a sandbox.
func (s *acts) tenantDisk(ctx context.Context, tenant string) (uid sandbox.UID, unlock func(), err error) {
	if tenant == "" {
		return "", func() {}, nil
	}
	if unlock, err = s.tenantLocks.Lock(ctx, tenant); err != nil {
		return "", nil, err
	}
	if uid, err = s.makeTenantDisk(ctx, tenant); err != nil {
		unlock()
		return "", nil, err
	}
	return uid, unlock, nil
}

func (s *acts) makeTenantDisk(ctx context.Context, tenant string) (sandbox.UID, error) {
	t, err := s.cfg.Store.MakeTenant(ctx, tenant)
	if err != nil || t.Ready {
		return t.DiskUID, err
	}
	err = s.cfg.Disks.Create(ctx, t.DiskUID, storage.Shared, s.cfg.Settings.TenantDiskBytes)
	if err != nil && !errors.Is(err, errs.Conflict) { // made, and then the daemon was killed
		return "", err
	}
	return t.DiskUID, s.cfg.Store.ReadyTenant(ctx, tenant)
}

// shareable turns the loss of a tenant's disk into what people can do about it.
func (s *acts) shareable(ctx context.Context, shared sandbox.UID, err error) error {
	if shared == "" || !errors.Is(err, errs.NotFound) {
		return err
	}
	if _, gone := s.cfg.Disks.Usage(ctx, shared); !errors.Is(gone, errs.NotFound) {
		return err
	}
	return errs.E(errs.Unavailable, "the disk of the tenant is gone").
		Hint("bring the file %s back below the data directory's disks, or remove the tenant", shared).Because(err)
}

// attachDisks mounts the disks of a sandbox that is about to run, or runs: its
// own, and its tenant's.
func (s *acts) attachDisks(ctx context.Context, b sandbox.Sandbox) (storage.Mounts, error) {
	shared, unlock, err := s.tenantDisk(ctx, b.Tenant)
	if err != nil {
		return storage.Mounts{}, err
	}
	defer unlock()
	m, err := s.cfg.Disks.Attach(ctx, storage.Use{User: b.UID, Own: b.DiskUID, Shared: shared})
	return m, s.shareable(ctx, shared, err)
}

// unmount takes down the disks that a sandbox had: its own, and its tenant's
// when no other uses it. What stays mounted is looked at again.
func (s *acts) unmount(ctx context.Context, b sandbox.Sandbox) error {
	err := s.cfg.Disks.Detach(ctx, b.UID, b.DiskUID)
	if err != nil {
		s.debts.lookAtAll()
	}
	return err
}

// removeDisk deletes a sandbox's own disk and lets go of its tenant's.
func (s *acts) removeDisk(ctx context.Context, b sandbox.Sandbox) (freed int64, err error) {
	freed, err = s.cfg.Disks.Remove(ctx, b.DiskUID)
	if err := s.unmount(ctx, b); err != nil {
		s.cfg.Log.Warn("let go of the disks of a sandbox", telemetry.KeyUID, b.UID, telemetry.KeyErr, err)
	}
	return freed, err
}

// tree gives the files of a sandbox that does not run until done.
func (s *acts) tree(ctx context.Context, b sandbox.Sandbox) (tree storage.Tree, done func(), err error) {
	shared, unlock, err := s.tenantDisk(ctx, b.Tenant)
	if err != nil {
		return nil, nil, err
	}
	defer unlock()
	tree, done, err = s.cfg.Disks.Files(ctx, storage.Use{User: b.UID, Own: b.DiskUID, Shared: shared})
	return tree, done, s.shareable(ctx, shared, err)
}

// tenants returns all.
func (s *acts) tenants(ctx context.Context) (all []store.Tenant, err error) {
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

// releaseDisks unmounts the disks that nobody uses, as an earlier daemon left
// them. One that a sandbox may use is left.
func (s *Reconciler) releaseDisks(ctx context.Context, rows []sandbox.Sandbox, faults *faultList) {
	running, mayRun := make(map[string]bool), make(map[sandbox.UID]bool)
	for _, b := range rows {
		// A memory that is asleep has files of its disks open.
		if b.State == sandbox.Running || b.State == sandbox.Creating || b.State == sandbox.Sleeping {
			running[b.Tenant], mayRun[b.DiskUID] = true, true
		}
	}
	tenants, err := s.tenants(ctx)
	if err != nil {
		faults.add("store", err)
		return
	}
	for _, t := range tenants {
		if running[t.Name] {
			mayRun[t.DiskUID] = true
		}
	}
	if err := s.cfg.Disks.Release(ctx, func(uid sandbox.UID) bool { return mayRun[uid] || s.pool.Holds(uid) }); err != nil {
		faults.add("disks", err)
	}
}

// restDisks unmounts the disks of stopped sandboxes whose files nobody uses any
// more.
func (s *reaper) restDisks(ctx context.Context) {
	if err := s.cfg.Disks.Rest(ctx); err != nil && ctx.Err() == nil {
		s.cfg.Log.Warn("unmount disks that nobody uses", telemetry.KeyErr, err)
	}
}

// OpenStopped gives the files of a sandbox that rests until done. Its lock keeps a
// start or destroy from coming between the look at its state and the mount.
func (s *Sandboxes) OpenStopped(ctx context.Context, b sandbox.Sandbox) (tree storage.Tree, done func(), err error) {
	unlock, err := s.ids.Lock(ctx, b.ID.Key())
	if err != nil {
		return nil, nil, err
	}
	defer unlock()
	now, err := s.cfg.Store.SandboxByUID(ctx, b.UID)
	if err != nil {
		return nil, nil, err
	}
	if now.State != b.State {
		return nil, nil, errs.E(errs.Unavailable, "the sandbox was just %s", now.State).Hint("try again")
	}
	return s.tree(ctx, b)
}
