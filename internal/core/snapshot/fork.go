package snapshot

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/core/lifecycle"
	"github.com/cubbyhq/cubby/internal/core/scope"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/storage"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// MaxForks bounds one fork.
const MaxForks = 100

// Forked is what came of a fork.
type Forked struct {
	Sandboxes []sandbox.Sandbox // in the order of the ids
	Paused    time.Duration     // how long the parent stood still
	Warnings  []string          // what the new ones have in common with it and should not
}

// Fork makes sandboxes with the memory and the files that a running one has at one
// instant; it goes on, and one that sleeps is woken first, as for Create. The first of them have
// the ids that are given, the others generated ones. All or none: kinds are those
// of Create, and of a create for each of them.
func (s *Snapshots) Fork(ctx context.Context, id string, count int, ids []string) (Forked, error) {
	if count == 0 {
		count = max(1, len(ids))
	}
	if count < 1 || count > MaxForks {
		return Forked{}, errs.E(errs.Invalid, "count: %d is not between 1 and %d", count, MaxForks)
	}
	if len(ids) > count {
		return Forked{}, errs.E(errs.Invalid, "ids: %d for %d sandboxes", len(ids), count)
	}
	all := make([]sandbox.Sandbox, count)
	for i := range all {
		all[i] = sandbox.Sandbox{UID: sandbox.NewUID(), ID: sandbox.NewID()}
		if i < len(ids) {
			var err error
			if all[i].ID, err = sandbox.ParseID(ids[i]); err != nil {
				return Forked{}, err
			}
		}
	}
	parent, k, release, err := s.holdAwake(ctx, id, func(parent sandbox.Sandbox) error {
		return s.cfg.Sandboxes.MayCreateAll(ctx, parent.UID, copiesOf(parent, all, nil))
	})
	if err != nil {
		return Forked{}, err
	}
	defer release()
	all = copiesOf(parent, all, s.cfg.Services(parent))
	f := &fork{s: s, keeper: k, parent: parent, first: all[0].UID}
	defer f.forget(ctx)
	made, err := s.cfg.Sandboxes.CreateAll(ctx, all, parent.ID, lifecycle.Origin{Files: f.files, Run: f.run})
	if err != nil {
		return Forked{}, err
	}
	names := make([]string, len(made))
	for i, b := range made {
		names[i] = string(b.ID)
	}
	s.cfg.Recorder.Note(context.WithoutCancel(ctx), event.New(parent.UID, scope.Actor(ctx), event.Fork{Forks: names, Paused: f.paused.Milliseconds()}))
	return Forked{Sandboxes: made, Paused: f.paused, Warnings: gathered(made)}, nil
}

// copiesOf are the sandboxes with the uids and ids of all that are as their parent.
func copiesOf(parent sandbox.Sandbox, all []sandbox.Sandbox, services map[string]sandbox.ServiceState) []sandbox.Sandbox {
	copies := slices.Clone(all)
	for i, b := range all {
		copies[i] = sandbox.Sandbox{UID: b.UID, ID: b.ID, Tenant: parent.Tenant, Spec: parent.Spec, ImageDigest: parent.ImageDigest, Services: sandbox.CopiedServices(services)}
		copies[i].Spec.KeptUntil = time.Time{}
	}
	return copies
}

// fork is one of them under way. The memory is kept under the uid of the first new
// sandbox, whose row says that it is being made: so nobody else's is taken for it,
// and what a crash leaves is nobody's.
type fork struct {
	s      *Snapshots
	keeper driver.Snapshotter
	parent sandbox.Sandbox
	first  sandbox.UID
	paused time.Duration
}

// files makes the disk of one. That of the first is copied while the parent stands
// still, and the others from it.
func (f *fork) files(ctx context.Context, disk sandbox.UID) error {
	disks := f.s.cfg.Disks
	if disk != f.first {
		_, err := disks.Clone(ctx, storage.Source{UID: f.first}, disk)
		return err
	}
	kept, err := f.s.remember(ctx, f.keeper, f.parent, f.first, disk)
	f.paused = kept.Paused
	return err
}

func (f *fork) run(ctx context.Context, spec driver.Spec) (driver.Identified, error) {
	return f.s.restore(ctx, f.keeper, f.first, spec)
}

// gathered takes the warnings of sandboxes, each once: those of copies are alike.
func gathered(made []sandbox.Sandbox) (warnings []string) {
	for i := range made {
		warnings = append(warnings, made[i].Warnings...)
		made[i].Warnings = nil
	}
	slices.Sort(warnings)
	return slices.Compact(warnings)
}

// forget deletes the memory that all have begun from.
func (f *fork) forget(ctx context.Context) {
	ctx, cancel := gate.Detached(ctx)
	defer cancel()
	if err := f.keeper.RemoveSnapshot(ctx, f.first); err != nil {
		f.s.cfg.Log.Error("delete the memory of a fork", telemetry.KeyUID, f.first, telemetry.KeyErr, err)
	}
}

// restore makes a sandbox of a spec run from a kept memory, with the spec's
// identity, before anybody else reaches it.
func (s *Snapshots) restore(ctx context.Context, k driver.Snapshotter, name sandbox.UID, spec driver.Spec) (driver.Identified, error) {
	h, err := k.Restore(ctx, name, spec)
	if err != nil {
		return driver.Identified{}, err
	}
	is, err := s.cfg.Driver.Identify(ctx, h, spec.Identity)
	if err != nil {
		undo, cancel := gate.Detached(ctx)
		defer cancel()
		return driver.Identified{}, errors.Join(err, s.cfg.Driver.Destroy(undo, h))
	}
	return is, nil
}
