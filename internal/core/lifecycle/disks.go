package lifecycle

import (
	"context"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/storage"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// unmount takes down the disks that a sandbox had: its own, and the one that it
// shared when no other uses it. What stays mounted is looked at again.
func (s *acts) unmount(ctx context.Context, b sandbox.Sandbox) error {
	err := s.cfg.Disks.Detach(ctx, b.UID, b.DiskUID)
	if err != nil {
		s.debts.lookAtAll()
	}
	return err
}

// removeDisk deletes a sandbox's own disk and lets go of the one that it shared.
func (s *acts) removeDisk(ctx context.Context, b sandbox.Sandbox) (freed int64, err error) {
	freed, err = s.cfg.Disks.Remove(ctx, b.DiskUID)
	if err := s.unmount(ctx, b); err != nil {
		s.cfg.Log.Warn("let go of the disks of a sandbox", telemetry.KeyUID, b.UID, telemetry.KeyErr, err)
	}
	return freed, err
}

// releaseDisks unmounts the disks that nobody uses, as an earlier daemon left
// them. One that a sandbox may use is left.
func (s *Reconciler) releaseDisks(ctx context.Context, rows []sandbox.Sandbox, faults *faultList) {
	running, mayRun := make(map[string]bool), make(map[sandbox.UID]bool)
	for _, b := range rows {
		// A memory that is asleep has files of its disks open.
		if b.State == sandbox.Running || b.State == sandbox.Creating || b.State == sandbox.Sleeping {
			running[b.FilesTenant()], mayRun[b.DiskUID] = true, true
		}
	}
	tenants, err := s.tenants.All(ctx)
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
	if err := s.cfg.Disks.Rest(ctx); ctx.Err() == nil {
		s.troubles.Note("unmount disks that nobody uses", "", err)
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
	return s.tenants.Files(ctx, b)
}
