package lifecycle

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/cubbyhq/cubby/internal/core/repair"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/image"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// removeOrphans removes what exists and belongs to no sandbox.
func (s *Reconciler) removeOrphans(ctx context.Context, f findings, rows []sandbox.Sandbox, faults *faultList) {
	live := make(map[sandbox.UID]bool, len(rows))
	wanted := make(map[sandbox.UID]bool, len(rows)) // disks
	for _, b := range rows {
		live[b.UID], wanted[b.DiskUID] = true, true
	}
	for _, uid := range orphans(slices.Collect(maps.Keys(f.traces)), live) {
		if err := s.sweep(ctx, uid); err != nil {
			faults.add("driver", err)
		}
	}
	kept, err := s.cfg.Store.KeptDisks(ctx)
	if err != nil {
		faults.add("store", err)
		return
	}
	for _, d := range kept {
		wanted[d.DiskUID] = true
	}
	tenants, err := s.tenants.All(ctx)
	if err != nil {
		faults.add("store", err)
		return
	}
	for _, t := range tenants {
		wanted[t.DiskUID] = true
	}
	removed, err := s.cfg.Disks.Sweep(ctx, func(uid sandbox.UID) (bool, error) {
		if wanted[uid] {
			return true, nil
		}
		if wanted, err := s.diskIsWanted(ctx, uid); wanted || err != nil {
			return true, err
		}
		return false, s.unpinNobodys(ctx, uid, f.pins)
	})
	for _, uid := range removed {
		s.cfg.Log.Info("removed the disk of no sandbox", telemetry.KeyUID, uid)
	}
	if err != nil {
		faults.add("disks", err)
	}
}

// unpinOrphans ends the pins of sandboxes that have ended. Unknown owners may
// be another daemon's that shares the image directory.
func (s *Reconciler) unpinOrphans(ctx context.Context, pins []image.Pin, rows []sandbox.Sandbox, faults *faultList) {
	live := make(map[sandbox.UID]bool, len(rows))
	for _, b := range rows {
		live[b.UID] = true
	}
	for _, p := range pins {
		if live[p.Owner] {
			continue
		}
		if err := s.unpin(ctx, p); err != nil {
			faults.add("images", err)
		}
	}
}

// unpinNobodys ends the pin of a sandbox that was kept ready by a daemon that was
// killed. No row says that it was this one's; its disk does, which is about to be
// removed.
func (s *Reconciler) unpinNobodys(ctx context.Context, uid sandbox.UID, pins []image.Pin) error {
	for _, p := range pins {
		if p.Owner != uid {
			continue
		}
		if err := s.cfg.Images.Unpin(ctx, p.Digest, uid); err != nil {
			return err
		}
	}
	return nil
}

func (s *Reconciler) unpin(ctx context.Context, p image.Pin) error {
	if _, err := s.cfg.Store.SandboxByUID(ctx, p.Owner); err != nil {
		if errors.Is(err, errs.NotFound) {
			return nil
		}
		return err
	}
	unlock, free, err := s.lockEnded(ctx, p.Owner)
	if err != nil || !free {
		return err
	}
	defer unlock()
	s.cfg.Log.Info("end the pin of an image", telemetry.KeyUID, p.Owner)
	return s.cfg.Images.Unpin(ctx, p.Digest, p.Owner)
}

// removeOldJournals removes journals of sandboxes that a prune forgot, when a
// crash came in between.
func (s *Reconciler) removeOldJournals(ctx context.Context, found []sandbox.UID, rows []sandbox.Sandbox, faults *faultList) {
	live := make(map[sandbox.UID]bool, len(rows))
	for _, b := range rows {
		live[b.UID] = true
	}
	for _, uid := range orphans(found, live) {
		b, err := s.cfg.Store.SandboxByUID(ctx, uid)
		known := !errors.Is(err, errs.NotFound)
		if !repair.MayRemove(repair.Trace{Owner: b.State, Unreadable: known && err != nil, Wanted: known}) {
			continue // history within its retention, or unreadable
		}
		if err := s.cfg.Journals.Remove(uid); err != nil {
			faults.add("journals", err)
		}
	}
}

// orphans returns what was found and is not known.
func orphans(found []sandbox.UID, known map[sandbox.UID]bool) []sandbox.UID {
	return slices.DeleteFunc(slices.Clone(found), func(uid sandbox.UID) bool { return known[uid] })
}

// sweep removes the traces of a sandbox that has ended or was never known.
func (s *Reconciler) sweep(ctx context.Context, uid sandbox.UID) error {
	unlock, free, err := s.lockEnded(ctx, uid)
	if err != nil || !free {
		return err
	}
	defer unlock()
	s.cfg.Log.Info("remove the traces of a sandbox", telemetry.KeyUID, uid)
	return s.cfg.Driver.Sweep(ctx, uid)
}

// lockEnded takes the lock of a sandbox that has ended or was never known. It
// reports false when the sandbox lives after all or somebody is at it.
func (s *Reconciler) lockEnded(ctx context.Context, uid sandbox.UID) (unlock func(), free bool, err error) {
	if s.pool.Holds(uid) {
		return nil, false, nil
	}
	b, err := s.cfg.Store.SandboxByUID(ctx, uid)
	unlock = func() {}
	o := repair.Trace{Owner: b.State}
	switch {
	case errors.Is(err, errs.NotFound):
		err = nil
	case err != nil:
		o.Unreadable = true
	case !b.State.Live():
		if release, ok := s.ids.TryLock(b.ID.Key()); ok {
			unlock = release
		} else {
			o.Held = true
		}
	}
	if !repair.MayRemove(o) {
		unlock()
		return nil, false, err
	}
	return unlock, true, nil
}

// diskIsWanted asks about a disk that no sandbox seemed to have and nobody
// to keep: it may be a snapshot's, or have been made since, or changed hands. One that is not wanted
// while nobody is at its sandbox will never be.
func (s *Reconciler) diskIsWanted(ctx context.Context, uid sandbox.UID) (bool, error) {
	if s.pool.Holds(uid) {
		return true, nil
	}
	// A snapshot has its row before its disk, and until that is gone.
	if _, err := s.cfg.Store.SnapshotByUID(ctx, uid); !errors.Is(err, errs.NotFound) {
		return true, err
	}
	b, err := s.cfg.Store.SandboxByUID(ctx, uid)
	if err != nil && !errors.Is(err, errs.NotFound) {
		return true, err
	}
	if err == nil {
		unlock, free := s.ids.TryLock(b.ID.Key())
		if !free {
			return true, nil
		}
		defer unlock()
	}
	isKept := func() (bool, error) {
		kept, err := s.cfg.Store.KeptDisks(ctx)
		return slices.ContainsFunc(kept, func(d store.KeptDisk) bool { return d.DiskUID == uid }), err
	}
	hasSandbox := func() (bool, error) {
		rows, err := s.rows(ctx, liveRows)
		return slices.ContainsFunc(rows, func(b sandbox.Sandbox) bool { return b.DiskUID == uid }), err
	}
	isShared := func() (bool, error) {
		tenants, err := s.tenants.All(ctx)
		return slices.ContainsFunc(tenants, func(t store.Tenant) bool { return t.DiskUID == uid }), err
	}
	// Twice for kept disks, because a disk can go from a kept one to a sandbox's
	// and back between two questions.
	for _, ask := range []func() (bool, error){isShared, isKept, hasSandbox, isKept} {
		if yes, err := ask(); yes || err != nil {
			return yes, err
		}
	}
	return false, nil
}
