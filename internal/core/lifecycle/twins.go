package lifecycle

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/cubbyhq/cubby/internal/core/admission"
	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/core/scope"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/image"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store"
)

// CreateAll makes sandboxes of one tenant, thread and image that begin from one
// origin: all of them or, after an error or a crash, none. They have their UIDs,
// IDs, specs and image digests. Origin.Files is called for one after the other in
// their order, and the first does not run before all have theirs. Each counts as
// one that is created by itself. Kinds as for Create.
func (s *Sandboxes) CreateAll(ctx context.Context, all []sandbox.Sandbox, parent sandbox.ID, o Origin) ([]sandbox.Sandbox, error) {
	c := s.creator
	img, err := s.cfg.Images.Resolve(ctx, all[0].ImageDigest)
	if err != nil {
		return nil, err
	}
	unlock, err := c.lockVacant(ctx, all)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := c.store(ctx, all, parent); err != nil {
		return nil, err
	}
	made, err := c.bringAllUp(ctx, all, img, o)
	if err != nil {
		undo, cancel := gate.Detached(ctx)
		defer cancel()
		for _, b := range all {
			s.abandon(undo, b, undone(errs.Public(err).Message))
		}
		return nil, err
	}
	for i, b := range made {
		s.lifetimes.note(b, s.cfg.Now(), s.cfg.Uptime())
		s.attach(b)
		made[i] = s.upToDate(b)
	}
	return made, nil
}

// MayCreateAll is the error that a CreateAll of copies of a sleeper would have now,
// beside the place that it needs itself: so that nobody wakes it for nothing.
func (s *Sandboxes) MayCreateAll(ctx context.Context, sleeper sandbox.UID, all []sandbox.Sandbox) error {
	unlock, err := s.creator.lockVacant(ctx, all)
	if err != nil {
		return err
	}
	defer unlock()
	leave, err := s.creator.tenantSeat(ctx, all...)
	if err != nil {
		return err
	}
	defer leave()
	return s.admission.CheckAll(sleeper, all[0], len(all))
}

// lockVacant locks ids that nobody uses. Always in the same order: of two that
// want the same ids none waits for the other.
func (s *creator) lockVacant(ctx context.Context, all []sandbox.Sandbox) (_ func(), err error) {
	sorted := slices.Clone(all)
	slices.SortFunc(sorted, func(a, b sandbox.Sandbox) int { return strings.Compare(a.ID.Key(), b.ID.Key()) })
	var held []func()
	unlock := func() {
		for _, release := range held {
			release()
		}
	}
	defer func() {
		if err != nil {
			unlock()
		}
	}()
	for i, b := range sorted {
		if i > 0 && sorted[i-1].ID.Key() == b.ID.Key() {
			return nil, errs.E(errs.Invalid, "ids: %q is there twice", b.ID).Hint("ids that differ only in case count as the same")
		}
		// A live one is not waited for: whoever is at it may want this one's.
		if err := s.vacant(ctx, b); err != nil {
			return nil, err
		}
		release, err := s.ids.Lock(ctx, b.ID.Key())
		if err != nil {
			return nil, err
		}
		held = append(held, release)
		if err := s.vacant(ctx, b); err != nil {
			return nil, err
		}
		if _, kept, err := s.cfg.Store.TakeKeptDisk(ctx, b.ID.Key(), b.Tenant, b.Spec.External); err != nil {
			return nil, err
		} else if kept {
			return nil, diskIsKept("ids")
		}
	}
	return unlock, nil
}

// store gives sandboxes their places and writes their rows.
func (s *creator) store(ctx context.Context, all []sandbox.Sandbox, parent sandbox.ID) (err error) {
	leave, err := s.seat(ctx, all...)
	if err != nil {
		return err
	}
	defer leave()
	defer func() {
		if err != nil {
			for _, b := range all {
				s.admission.Give(b.UID)
			}
		}
	}()
	for i := range all {
		all[i].Driver = s.cfg.Driver.Name()
		all[i].DiskUID = all[i].UID
		booted, err := s.admission.Reserve(all[i], admission.BootMemory)
		if err != nil {
			return err
		}
		// Until all have their places; then each waits for its turn.
		defer booted()
	}
	for i, b := range all {
		if err := s.cfg.Store.CreateSandbox(ctx, b, event.New(b.UID, scope.Actor(ctx), event.Created{
			ID: b.ID, Image: b.Spec.Image, Isolation: b.Spec.Isolation, ForkedFrom: parent,
		})); err != nil {
			undo, cancel := gate.Detached(ctx)
			defer cancel()
			for _, b := range all[:i] {
				s.abandon(undo, b, undone(errs.Public(err).Message))
			}
			return err
		}
	}
	return nil
}

// bringAllUp takes the steps from rows to sandboxes that run. Handles are in all
// as soon as there are any.
func (s *creator) bringAllUp(ctx context.Context, all []sandbox.Sandbox, img image.Image, o Origin) ([]sandbox.Sandbox, error) {
	group, within := errgroup.WithContext(ctx)
	// One for each processor, and one more for when another waits for the disk or its agent.
	group.SetLimit(max(2, runtime.GOMAXPROCS(0)) + 1)
	bringUp := func(i int) {
		group.Go(func() error {
			if err := within.Err(); err != nil {
				return err
			}
			booted, err := s.admission.Turn(within)
			if err != nil {
				return err
			}
			defer booted()
			if err := s.beginFrom(within, &all[i], img, o); err != nil {
				return fmt.Errorf("create sandbox %s: %w", all[i].ID, err)
			}
			return nil
		})
	}
	var err error
	for i, b := range all {
		if err = o.Files(within, b.DiskUID); err != nil {
			break
		}
		if i > 0 {
			bringUp(i)
		}
	}
	if err == nil {
		bringUp(0) // the last: it may be where the files of the others come from
	}
	// Of two errors the first is that of a sandbox, and the other that it ended this.
	if err := cmp.Or(group.Wait(), err); err != nil {
		return nil, err
	}
	moves := make([]store.Moving, len(all))
	for i, b := range all {
		moves[i] = store.Moving{UID: b.UID, To: sandbox.Running, Change: store.Change{
			Events: []sandbox.Event{event.New(b.UID, scope.Actor(ctx), event.Started{})},
		}}
	}
	made, err := s.cfg.Store.MoveAll(ctx, moves)
	for i := range made {
		made[i].Warnings = all[i].Warnings
	}
	return made, err
}

// beginFrom makes a sandbox run whose files are in place.
func (s *acts) beginFrom(ctx context.Context, b *sandbox.Sandbox, img image.Image, o Origin) error {
	if err := s.cfg.Images.Pin(ctx, img.Digest, b.UID); err != nil {
		return err
	}
	disks, err := s.tenants.Attach(ctx, *b)
	if err != nil {
		return err
	}
	spec := s.driverSpec(*b, img, disks)
	if o.Run == nil {
		return s.beginCold(ctx, b, spec)
	}
	is, err := o.Run(ctx, spec)
	if err != nil {
		return err
	}
	b.Handle, b.Warnings = is.Handle, is.Warnings
	return s.cfg.Store.SetHandle(ctx, b.UID, is.Handle)
}
