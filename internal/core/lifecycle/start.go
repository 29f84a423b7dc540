package lifecycle

import (
	"context"
	"errors"
	"fmt"

	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/core/scope"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/storage"
	"github.com/cubbyhq/cubby/internal/store"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// Start runs a stopped sandbox again, and wakes a sleeping one. Starting a running
// one does nothing. When it fails the sandbox rests, as before. Kinds as for Create, and
// WrongState.
func (s *Sandboxes) Start(ctx context.Context, id string) (sandbox.Sandbox, error) {
	b, unlock, err := s.change(ctx, id)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	defer unlock()
	switch b.State {
	case sandbox.Running:
		return s.upToDate(b), nil
	case sandbox.Stopped, sandbox.Sleeping:
		started, err := s.rouse(ctx, b)
		scope.NoteLoss(ctx, started)
		return started, err
	default:
		return sandbox.Sandbox{}, s.cfg.Scope.NotRunning(b)
	}
}

// rouse runs a sandbox that rests and whose lock is held. After an error it rests as
// before, and has no place.
func (s *acts) rouse(ctx context.Context, b sandbox.Sandbox) (sandbox.Sandbox, error) {
	if err := driver.Serves(s.cfg.Driver, b.Driver); err != nil {
		return sandbox.Sandbox{}, err
	}
	yielding{s}.freePlace(ctx, b)
	booted, err := s.admission.Take(ctx, b)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	defer booted()
	disks, err := s.tenants.Attach(ctx, b)
	switch {
	case err != nil:
	case b.State == sandbox.Sleeping:
		if err = wake(ctx, s.cfg.Driver, b); err == nil {
			return s.awake(ctx, b)
		}
	default:
		var started sandbox.Sandbox
		if started, err = s.bringUp(ctx, b, disks); err == nil {
			s.attach(started)
			return s.upToDate(started), nil
		}
	}
	booted()
	s.takeDown(ctx, b)
	if lost, ok := errors.AsType[*lostMemory](err); ok {
		if b, err = s.lose(ctx, b, lost); err == nil {
			return s.rouse(ctx, b)
		}
	}
	return sandbox.Sandbox{}, fmt.Errorf("run sandbox %s: %w", b.ID, err)
}

// bringUp takes the steps from a stopped sandbox whose disks are there to a running
// one.
func (s *acts) bringUp(ctx context.Context, b sandbox.Sandbox, disks storage.Mounts) (sandbox.Sandbox, error) {
	handle := driver.Handle(b.Handle)
	err := error(errs.E(errs.NotFound, "the sandbox has no handle"))
	if handle != nil {
		err = s.cfg.Driver.Start(ctx, handle)
	}
	if errors.Is(err, errs.NotFound) {
		// What the driver kept of it is gone, but its disk and its spec are
		// enough to make it anew.
		handle, err = s.recreate(ctx, b, disks)
	}
	if err != nil {
		return b, err
	}
	change := store.Change{Handle: handle}
	var told event.Payload = event.Started{}
	if b.Cause == sandbox.CauseMemoryLost {
		// Whoever asks while it runs learns what it has lost.
		change.Why = b.Why()
		told = event.Woken{RestoreIncomplete: true, Reason: b.Reason}
	}
	change.Events = []sandbox.Event{event.New(b.UID, scope.Actor(ctx), told)}
	return s.cfg.Store.Move(ctx, b.UID, sandbox.Running, change)
}

func (s *acts) recreate(ctx context.Context, b sandbox.Sandbox, disks storage.Mounts) (driver.Handle, error) {
	img, err := s.cfg.Images.Resolve(ctx, b.ImageDigest)
	if err != nil {
		return nil, err
	}
	if err := s.cfg.Driver.Sweep(ctx, b.UID); err != nil {
		return nil, err
	}
	if err := s.cfg.Images.Pin(ctx, img.Digest, b.UID); err != nil {
		return nil, err
	}
	handle, err := s.cfg.Driver.Create(ctx, s.driverSpec(b, img, disks))
	if err != nil {
		return nil, err
	}
	if err := s.cfg.Store.SetHandle(ctx, b.UID, handle); err != nil {
		undo, cancel := gate.Detached(ctx)
		defer cancel()
		// What nobody has the handle of must not stay.
		return nil, errors.Join(err, s.cfg.Driver.Destroy(undo, handle))
	}
	return handle, s.cfg.Driver.Start(ctx, handle)
}

// takeDown undoes a start. What sleeps has only its place to give back.
func (s *acts) takeDown(ctx context.Context, b sandbox.Sandbox) {
	if b.State == sandbox.Sleeping {
		s.admission.Give(b.UID)
		return
	}
	undo, cancel := gate.Detached(ctx)
	defer cancel()
	log := s.cfg.Log.With(telemetry.KeySandbox, b.ID, telemetry.KeyUID, b.UID)
	if now, err := s.cfg.Store.SandboxByUID(undo, b.UID); err == nil {
		b = now // the handle may be a new one
	}
	if b.Handle != nil {
		if err := s.cfg.Driver.Stop(undo, b.Handle, 0); err != nil && !errors.Is(err, errs.NotFound) {
			// Its place and its disk stay taken while it may run.
			log.Error("stop a sandbox whose start failed", telemetry.KeyErr, err)
			s.debts.lookAtAll()
			return
		}
	}
	if err := s.unmount(undo, b); err != nil {
		log.Warn("unmount the disk of a sandbox whose start failed", telemetry.KeyErr, err)
	}
	s.admission.Give(b.UID)
}
