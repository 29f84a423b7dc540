package lifecycle

import (
	"context"

	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// undone is why a sandbox failed.
func undone(why string) sandbox.Why {
	return sandbox.Why{Cause: sandbox.CauseUndone, Reason: "create: " + why}
}

// abandon undoes a create, as far as it came, and moves the row to failed. It
// is for a create whose step failed and for one that a crash cut off. What it
// cannot remove is an orphan then, which the reconciler removes.
func (s *acts) abandon(ctx context.Context, b sandbox.Sandbox, why sandbox.Why) {
	log := s.cfg.Log.With(telemetry.KeySandbox, b.ID, telemetry.KeyUID, b.UID)
	end := live.Ending{Reason: sandbox.EndDestroyed, Message: "the create of the sandbox was undone"}
	r := s.cfg.Live.Of(b.UID) // while packages are being installed
	if r != nil {
		r.End(end)
	}
	clean := s.tearDown(ctx, b)
	if r != nil {
		r.Finish()
	}
	tookOver := b.DiskUID != "" && b.DiskUID != b.UID
	if tookOver && !clean {
		// The disk must not be found by the next sandbox while something may
		// still write to it: the reconciler tries again.
		s.debts.owe(b.UID, why)
		return
	}
	_, err := s.cfg.Store.Move(ctx, b.UID, sandbox.Failed, store.Change{
		// A disk that was taken over goes back to its owner.
		Why: why, KeepDisk: tookOver, ImageDigest: b.ImageDigest,
		Events: []sandbox.Event{event.New(b.UID, "", event.Failed{Reason: why.Reason})},
	})
	if err != nil {
		log.Error("move an undone create to failed", telemetry.KeyErr, err)
		s.debts.owe(b.UID, why)
		return
	}
	s.debts.told(b.UID)
	if err := s.cfg.Live.EndExecs(ctx, b.UID, end); err != nil {
		log.Error("end the execs of an undone create", telemetry.KeyErr, err)
		s.debts.lookAtAll()
	}
	if !tookOver {
		if _, err := s.removeDisk(ctx, b); err != nil {
			log.Error("remove the disk of an undone create", telemetry.KeyErr, err)
			clean = false
		}
	} else if err := s.unmount(ctx, b); err != nil {
		log.Warn("unmount a kept disk", telemetry.KeyErr, err)
	}
	s.admission.Give(b.UID)
	if !clean {
		s.debts.reconcileSoon()
	}
}

// tearDown removes all that the driver has of a sandbox and lets its image go.
// It reports whether the driver has nothing left, and logs what failed.
func (s *acts) tearDown(ctx context.Context, b sandbox.Sandbox) bool {
	log := s.cfg.Log.With(telemetry.KeySandbox, b.ID, telemetry.KeyUID, b.UID)
	var err error
	if b.Handle != nil {
		err = s.cfg.Driver.Destroy(ctx, b.Handle)
	} else {
		err = s.cfg.Driver.Sweep(ctx, b.UID)
	}
	if err != nil {
		log.Error("tear a sandbox down", telemetry.KeyErr, err)
		return false
	}
	if b.ImageDigest != "" {
		if err := s.cfg.Images.Unpin(ctx, b.ImageDigest, b.UID); err != nil {
			log.Warn("unpin an image", telemetry.KeyErr, err)
			s.debts.reconcileSoon()
		}
	}
	return true
}
