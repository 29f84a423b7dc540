package snapshot

import (
	"context"
	"errors"
	"slices"
	"sync"
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
// instant; it goes on, and one that sleeps is woken first. The first of them have
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
	parent, release, err := s.hold(ctx, id, true)
	if err != nil {
		return Forked{}, err
	}
	defer release()
	k, err := s.keeper(parent)
	if err != nil {
		return Forked{}, err
	}
	all := make([]sandbox.Sandbox, count)
	for i := range all {
		all[i] = sandbox.Sandbox{UID: sandbox.NewUID(), ID: sandbox.NewID(), Tenant: parent.Tenant, Spec: parent.Spec, ImageDigest: parent.ImageDigest, Services: sandbox.CopiedServices(parent.Services)}
		all[i].Spec.KeptUntil = time.Time{}
		if i < len(ids) {
			if all[i].ID, err = sandbox.ParseID(ids[i]); err != nil {
				return Forked{}, err
			}
		}
	}
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
	slices.Sort(f.warnings)
	return Forked{Sandboxes: made, Paused: f.paused, Warnings: slices.Compact(f.warnings)}, nil
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

	mu       sync.Mutex
	warnings []string // guarded by mu
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

func (f *fork) run(ctx context.Context, spec driver.Spec) (driver.Handle, error) {
	h, warnings, err := f.s.restore(ctx, f.keeper, f.first, spec)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.warnings = append(f.warnings, warnings...)
	return h, err
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
func (s *Snapshots) restore(ctx context.Context, k driver.Snapshotter, name sandbox.UID, spec driver.Spec) (driver.Handle, []string, error) {
	h, err := k.Restore(ctx, name, spec)
	if err != nil {
		return nil, nil, err
	}
	is, warnings, err := s.become(ctx, h, spec.Identity)
	if err != nil {
		undo, cancel := gate.Detached(ctx)
		defer cancel()
		return nil, nil, errors.Join(err, s.cfg.Driver.Destroy(undo, h))
	}
	return is, warnings, nil
}

// become tells a restored sandbox who it is from now on.
func (s *Snapshots) become(ctx context.Context, h driver.Handle, is driver.Identity) (driver.Handle, []string, error) {
	got, err := s.cfg.Driver.Identify(ctx, h, is)
	return got.Handle, got.Warnings, err
}
