package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"github.com/cubbyhq/cubby/internal/auth"
	"github.com/cubbyhq/cubby/internal/core/diskrepair"
	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/core/scope"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// Destroy removes the sandbox and all that belongs to it; its history stays
// for the retention time. With keepDisk the disk waits for the next sandbox
// that the same owner creates with this id. NotFound when there is no such
// sandbox.
func (s *Sandboxes) Destroy(ctx context.Context, id string, keepDisk bool) error {
	stop := s.cutInstallationIn(ctx, id)
	b, unlock, err := s.change(ctx, id)
	stop()
	if err != nil {
		return err
	}
	defer unlock()
	_, err = s.destroy(ctx, b, destruction{keepDisk: keepDisk, why: requested()})
	return err
}

// Purge destroys the sandbox that has the id, if there is one, and deletes the
// disk that was kept for it. It returns the bytes that the host got back.
// NotFound when there was neither.
func (s *Sandboxes) Purge(ctx context.Context, id string) (freed int64, err error) {
	parsed, err := sandbox.ParseID(id)
	if err != nil {
		return 0, err
	}
	leave, err := s.cfg.Gate.Enter(ctx)
	if err != nil {
		return 0, err
	}
	defer leave()
	// Who sees neither the sandbox nor a disk does not wait for the lock.
	if _, err := s.cfg.Scope.Find(ctx, id); errors.Is(err, errs.NotFound) {
		if _, kept, keptErr := s.keptDisk(ctx, parsed); keptErr != nil || !kept {
			return 0, cmp.Or(keptErr, err)
		}
	}
	stop := s.cutInstallationIn(ctx, id)
	unlock, err := s.ids.Lock(ctx, parsed.Key())
	stop()
	if err != nil {
		return 0, err
	}
	defer unlock()

	b, findErr := s.cfg.Scope.Find(ctx, id)
	there := findErr == nil
	if !there && !errors.Is(findErr, errs.NotFound) {
		return 0, findErr
	}
	if there {
		if freed, err = s.destroy(ctx, b, destruction{why: requested()}); err != nil {
			return freed, err
		}
	}
	disk, kept, err := s.keptDisk(ctx, parsed)
	if err != nil {
		return freed, err
	}
	if !kept {
		if !there {
			return 0, findErr
		}
		return freed, nil
	}
	if _, _, err := s.cfg.Store.DropKeptDisk(ctx, parsed.Key()); err != nil {
		return freed, err
	}
	undo, cancel := gate.Detached(ctx)
	defer cancel()
	n, err := s.cfg.Disks.Remove(undo, disk.DiskUID)
	if err != nil {
		s.debts.reconcileSoon()
		return freed, err
	}
	freed += n
	s.cfg.Recorder.Note(undo, event.New(disk.DiskUID, scope.Actor(ctx), event.Purged{FreedBytes: freed}))
	return freed, nil
}

// keptDisk returns the disk that is kept under an id, if the caller sees it.
func (s *acts) keptDisk(ctx context.Context, id sandbox.ID) (store.KeptDisk, bool, error) {
	disks, err := s.cfg.Store.KeptDisks(ctx)
	if err != nil {
		return store.KeptDisk{}, false, err
	}
	for _, d := range disks {
		if d.IDKey == id.Key() && auth.From(ctx).Sees(d.Tenant) {
			return d, true, nil
		}
	}
	return store.KeptDisk{}, false, nil
}

// destruction is how a sandbox is destroyed.
type destruction struct {
	keepDisk bool
	why      sandbox.Why
	within   context.Context // ends it early; nil: as long as an undo may take
}

// destroy ends a sandbox whose lock is held. It is carried out even if the
// caller goes away.
//
// Without keepDisk the move comes first: from then on the sandbox does not
// exist, and what a crash leaves of it is an orphan that the next
// reconciliation removes. A disk that is kept must not be found by the next
// sandbox while this one still writes to it, so there the move comes last.
func (s *acts) destroy(ctx context.Context, b sandbox.Sandbox, how destruction) (freed int64, err error) {
	if b.State.Live() {
		if err := driver.Serves(s.cfg.Driver, b.Driver); err != nil {
			return 0, err
		}
	}
	by := scope.Actor(ctx)
	keepDisk := how.keepDisk
	if keepDisk {
		if err := diskrepair.Held(s.cfg.Disks, b); err != nil {
			return 0, err
		}
	}
	ctx, cancel := gate.Detached(ctx)
	defer cancel()
	if how.within != nil {
		defer context.AfterFunc(how.within, cancel)()
	}
	move := func() error {
		_, err := s.cfg.Store.Move(ctx, b.UID, sandbox.Destroyed, store.Change{
			Why: how.why, KeepDisk: keepDisk,
			Events: []sandbox.Event{event.New(b.UID, by, event.Destroyed{DiskKept: keepDisk, Reason: how.why.Reason})},
		})
		if err == nil {
			s.lifetimes.forget(b.UID)
		}
		return err
	}
	// A create that failed has given back all it had.
	if b.State == sandbox.Failed {
		keepDisk = false
		return 0, move()
	}
	r := s.cfg.Live.Of(b.UID)
	if r != nil {
		r.End(live.Ending{Reason: sandbox.EndDestroyed, Message: "the sandbox was destroyed"})
		r.HangUp() // before the last event of its history
	}
	if !keepDisk {
		if err := move(); err != nil {
			if r != nil {
				r.GoOn()
			}
			return 0, err
		}
	}
	severed := func() {}
	if !keepDisk {
		severed = s.cfg.Disks.Sever(b.UID, b.DiskUID)
	}
	clean := s.tearDown(ctx, b)
	severed()
	if keepDisk && !clean {
		if r != nil {
			s.halfDestroyed(ctx, b, r)
		}
		return 0, errs.E(errs.Unavailable, "the sandbox could not be ended").Hint("try again")
	}
	if r != nil {
		r.Finish()
	}
	if err := s.cfg.Live.EndExecs(ctx, b.UID, live.Ending{Reason: sandbox.EndDestroyed, Message: "the sandbox was destroyed"}); err != nil {
		s.cfg.Log.Error("end the execs of a destroyed sandbox", telemetry.KeyUID, b.UID, telemetry.KeyErr, err)
		s.debts.lookAtAll()
	}
	ctx, cancelRest := gate.Detached(ctx)
	defer cancelRest()
	s.admission.Give(b.UID)
	if keepDisk {
		if err := move(); err != nil {
			s.debts.owe(b.UID, interrupted("the end of the sandbox could not be noted; its disk is kept: destroy it again"))
			return 0, err
		}
		s.debts.told(b.UID)
		if err := s.unmount(ctx, b); err != nil {
			s.cfg.Log.Warn("unmount a kept disk", telemetry.KeyUID, b.DiskUID, telemetry.KeyErr, err)
		}
		return 0, nil
	}
	freed, err = s.removeDisk(ctx, b)
	if err != nil {
		s.cfg.Log.Error("remove the disk of a destroyed sandbox", telemetry.KeyUID, b.UID, telemetry.KeyErr, err)
		clean = false
	}
	if !clean {
		s.debts.reconcileSoon()
	}
	return freed, nil
}

// halfDestroyed is for a sandbox that ran and whose destroy failed: one that
// still runs goes on, and one that does not was stopped by it.
func (s *acts) halfDestroyed(ctx context.Context, b sandbox.Sandbox, r *live.Run) {
	st, err := s.cfg.Driver.Inspect(ctx, b.Handle)
	if err != nil && !errors.Is(err, errs.NotFound) || err == nil && st.Phase == driver.PhaseRunning {
		r.GoOn()
		return
	}
	why := interrupted("it was to be destroyed and only ended: destroy it again")
	if _, err := s.stopped(ctx, b, why, event.Stopped{Reason: why.Reason}); err != nil {
		s.debts.owe(b.UID, why)
	}
}

// cutInstallation ends the installation of a sandbox that is being made, for an
// act that waits for its lock until stop. The create is undone then. One that has not
// begun its installation yet is looked at again until it has.
func (s *acts) cutInstallation(ctx context.Context, b sandbox.Sandbox) (stop func()) {
	if b.State != sandbox.Creating {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var cutting sync.WaitGroup
	cutting.Go(func() {
		for pauses := gate.NewPauses(); ctx.Err() == nil; gate.Pause(ctx, pauses) {
			r := s.cfg.Live.Of(b.UID)
			if now, err := s.cfg.Store.SandboxByUID(ctx, b.UID); err == nil && now.State != sandbox.Creating {
				return
			}
			if r != nil {
				r.KillAll()
			}
		}
	})
	return func() {
		cancel()
		cutting.Wait()
	}
}

// cutInstallationIn is [acts.cutInstallation] for the sandbox that has an id, if one does.
func (s *acts) cutInstallationIn(ctx context.Context, id string) (stop func()) {
	b, err := s.cfg.Scope.Find(ctx, id)
	if err != nil {
		return func() {}
	}
	return s.cutInstallation(ctx, b)
}

// lend has work done in a sandbox that was made for it and whose lock is held,
// and destroys it.
func (s *creator) lend(ctx context.Context, b sandbox.Sandbox, work func(context.Context, *live.Run, sandbox.Sandbox) error) error {
	err := work(ctx, s.attach(b), b)
	_, destroyed := s.destroy(ctx, b, destruction{why: requested()})
	return errors.Join(err, destroyed)
}
