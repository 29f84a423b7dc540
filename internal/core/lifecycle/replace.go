package lifecycle

import (
	"context"
	"errors"
	"fmt"

	"github.com/cubbyhq/cubby/internal/core/admission"
	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/core/scope"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/storage"
	"github.com/cubbyhq/cubby/internal/store"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// Replacement is how a sandbox goes on in the place of its run and its files.
type Replacement struct {
	// Origin has no Files: the disk is there.
	Origin Origin
	// Prepare copies what the disk gets, while the sandbox is as before.
	Prepare func(ctx context.Context, disk sandbox.UID) (storage.Restoration, error)
	// Runs: it runs afterwards; else it is stopped, and a use starts it if it would
	// have made it run before.
	Runs bool
	// Half is why it is stopped while this is under way, and stays so when it
	// breaks off.
	Half sandbox.Why
	// End is what its commands are told, and Done what its history says at last.
	End  string
	Done event.Payload
}

// replacing is a [Sandboxes.Replace] under way.
type replacing struct {
	*acts
	how   Replacement
	rests sandbox.Why // of one that does not run afterwards
}

// Replace gives a sandbox that the caller holds other files and another run, under
// its own uid. One that rests is admitted as by a start before anything is done. When
// it returns an error, or was cut off by a crash, the sandbox either goes on as before
// or is stopped for the reason of Half, with the files of before or the new ones.
func (s *Sandboxes) Replace(ctx context.Context, b sandbox.Sandbox, how Replacement) (_ sandbox.Sandbox, err error) {
	if err := errors.Join(driver.Serves(s.cfg.Driver, b.Driver), s.cfg.Disks.Admit()); err != nil {
		return b, err
	}
	if how.Runs && b.State != sandbox.Running {
		booted, refused := s.admission.Reserve(b, admission.BootMemory)
		if refused != nil {
			return b, refused
		}
		defer booted()
		defer func() {
			if err != nil {
				s.admission.Give(b.UID)
			}
		}()
	}
	act := &replacing{s.acts, how, requested()}
	if decideUse(b.State, b.Cause, sandbox.AutoWakeIdle) {
		act.rests = sandbox.Why{Cause: sandbox.CauseSleep, Reason: how.End}
	}
	by := scope.Actor(ctx)
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(s.cfg.Gate.Context(), cancel)()
	files, err := how.Prepare(ctx, b.DiskUID)
	if err != nil {
		if s.cfg.Gate.Context().Err() != nil {
			err = gate.ErrShuttingDown()
		}
		return b, fmt.Errorf("replace sandbox %s: %w", b.ID, err)
	}
	defer files.Discard()
	r := s.cfg.Live.Of(b.UID)
	b, apart, err := act.takeApart(ctx, b, r)
	if err != nil && !apart {
		return b, err
	}
	replaced := b
	if err == nil {
		replaced, err = act.putTogether(ctx, b, files, event.New(b.UID, by, how.Done))
	}
	if err != nil {
		undo, cancel := gate.Detached(ctx)
		defer cancel()
		s.clearAway(undo, b)
		s.cfg.Recorder.Note(undo, event.New(b.UID, by, event.Stopped{Reason: how.Half.Reason}))
		return b, broke(fmt.Errorf("replace sandbox %s: %w", b.ID, err), "is stopped", how.Half.Reason)
	}
	return s.upToDate(replaced), nil
}

// broke adds to an error what the sandbox is after it, and what to do.
func broke(err error, is, hint string) error {
	info := errs.Public(err)
	return errs.E(info.Kind, "%s; the sandbox %s", info.Message, is).Hint("%s", hint).RetryAfter(info.RetryAfter).Because(err)
}

// takeApart ends a sandbox and removes all that its driver has of it. The row says
// first what the sandbox is from then on. It keeps its place when it is to run. An
// error without apart leaves it as it was.
func (s *replacing) takeApart(ctx context.Context, b sandbox.Sandbox, r *live.Run) (_ sandbox.Sandbox, apart bool, err error) {
	end := live.Ending{Reason: sandbox.EndStopped, Message: s.how.End}
	was, goOn := b, func() {}
	if r != nil {
		goOn = r.GoOn
		r.End(end)
		r.HangUp()
	}
	if b.State == sandbox.Stopped {
		b, err = s.cfg.Store.Restate(ctx, b.UID, store.Change{Why: s.how.Half})
	} else {
		b, err = s.cfg.Store.Move(ctx, b.UID, sandbox.Stopped, store.Change{Why: s.how.Half})
	}
	if err != nil {
		goOn()
		return was, false, err
	}
	if b.Handle != nil {
		err = s.cfg.Driver.Destroy(ctx, b.Handle)
	} else {
		err = s.cfg.Driver.Sweep(ctx, b.UID)
	}
	if err != nil {
		err = fmt.Errorf("end sandbox %s: %w", b.ID, err)
		if s.takeBack(ctx, was) {
			goOn()
			return was, false, broke(err, "is "+string(was.State)+" as before", "try again")
		}
	}
	if r != nil {
		r.Finish()
	}
	if s.how.Runs {
		s.admission.Adopt(b) // a run that is over has given its place up
	}
	if err := s.cfg.Live.EndExecs(ctx, b.UID, end); err != nil {
		s.cfg.Log.Error("end the execs of a sandbox that is replaced", telemetry.KeyUID, b.UID, telemetry.KeyErr, err)
		s.debts.lookAtAll()
	}
	return b, true, err
}

// takeBack takes back that a sandbox is stopped that runs or sleeps as it was.
func (s *replacing) takeBack(ctx context.Context, was sandbox.Sandbox) bool {
	ctx, cancel := gate.Detached(ctx)
	defer cancel()
	seen, err := s.inspect(ctx, was)
	if err != nil || seen.Phase != map[sandbox.State]driver.Phase{sandbox.Running: driver.PhaseRunning, sandbox.Sleeping: driver.PhaseAsleep}[was.State] {
		return false
	}
	why := was.Why()
	if !why.Explains(was.State) {
		why = sandbox.Why{Cause: sandbox.CauseSleep} // of before there were causes
	}
	_, err = s.cfg.Store.Move(ctx, was.UID, was.State, store.Change{Why: why, Services: s.cfg.On.Services(was)})
	return err == nil
}

// putTogether gives a sandbox that was taken apart its new files and its new run.
func (s *replacing) putTogether(ctx context.Context, b sandbox.Sandbox, files storage.Restoration, done sandbox.Event) (sandbox.Sandbox, error) {
	b, err := s.cfg.Store.Restate(ctx, b.UID, store.Change{Why: s.how.Half, Handle: []byte{}})
	if err != nil {
		return b, err
	}
	if err := s.unmount(ctx, b); err != nil {
		return b, err
	}
	if err := files.Restore(ctx); err != nil {
		return b, err
	}
	if !s.how.Runs {
		s.admission.Give(b.UID)
		return s.cfg.Store.Restate(ctx, b.UID, store.Change{Why: s.rests, Events: []sandbox.Event{done}})
	}
	if o := s.how.Origin; o.Run != nil {
		// A service of the memory that is as the sandbox wants it goes on.
		if b, err = s.cfg.Store.UpdateSpec(ctx, b.UID, func(spec *sandbox.Spec) error {
			spec.Services = sandbox.Revise(o.Snapshot.Spec.Services, spec.Services)
			return nil
		}); err != nil {
			return b, err
		}
	}
	booted, err := s.admission.Turn(ctx)
	if err != nil {
		return b, err
	}
	defer booted()
	img, err := s.cfg.Images.Resolve(ctx, b.ImageDigest)
	if err != nil {
		return b, err
	}
	if err := s.beginFrom(ctx, &b, img, s.how.Origin); err != nil {
		return b, err
	}
	moved, err := s.cfg.Store.Move(ctx, b.UID, sandbox.Running, store.Change{Handle: b.Handle, Services: s.how.Origin.services(), Events: []sandbox.Event{done}})
	if err != nil {
		return b, err
	}
	s.attach(moved)
	moved.Warnings = b.Warnings
	return moved, nil
}

// clearAway undoes what there is of the run of a stopped sandbox.
func (s *acts) clearAway(ctx context.Context, b sandbox.Sandbox) {
	err := s.cfg.Driver.Sweep(ctx, b.UID)
	if err == nil {
		_, err = s.cfg.Store.Restate(ctx, b.UID, store.Change{Why: b.Why(), Handle: []byte{}})
	}
	if err == nil {
		err = s.unmount(ctx, b)
	}
	if err != nil {
		s.cfg.Log.Error("clear what is left of a run", telemetry.KeyUID, b.UID, telemetry.KeyErr, err)
		s.debts.lookAtAll()
	}
	s.admission.Give(b.UID)
}
