package lifecycle

import (
	"context"
	"errors"
	"fmt"

	"github.com/cubbyhq/cubby/internal/core/admission"
	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/core/pool"
	"github.com/cubbyhq/cubby/internal/core/scope"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/image"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/storage"
	"github.com/cubbyhq/cubby/internal/store"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// The default pool, and the memory of a host that has one: 4 GiB, of which the
// kernel keeps some for itself.
const (
	defaultPoolCount = 2
	defaultPoolHost  = 4 << 30 / 8 * 7
)

// defaultKind is what is kept ready when nobody says otherwise.
func defaultKind() pool.Kind {
	return pool.Kind{Image: "base", Isolation: sandbox.GVisor, Kernel: sandbox.RuntimePython, Count: defaultPoolCount, Optional: true}
}

// poolKinds completes what an operator asks to be kept ready, as a create is
// completed: limits are the ones that a create with the same would get.
func poolKinds(settings Settings) ([]pool.Kind, error) {
	kinds := settings.Pool
	if settings.DefaultPool && settings.Host.MemoryBytes >= defaultPoolHost {
		kinds = append(kinds[:len(kinds):len(kinds)], defaultKind())
	}
	all := make([]pool.Kind, 0, len(kinds))
	for _, k := range kinds {
		s := sandbox.Spec{Image: k.Image, Isolation: k.Isolation, Limits: k.Limits, User: k.User}.WithDefaults(settings.Defaults)
		if err := s.Validate(); err != nil {
			return nil, fmt.Errorf("pool of %s: %w", k, err)
		}
		if err := settings.Host.Fits(s.Limits); err != nil {
			return nil, fmt.Errorf("pool of %s: %w", k, err)
		}
		k.Image, k.Isolation, k.User = s.Image, s.Isolation, s.User
		k.Limits = settings.Host.Clamp(s.Limits, s.Isolation)
		all = append(all, k)
	}
	return all, nil
}

// newPool returns the pool of the kinds, still empty.
func (s *acts) newPool(kinds []pool.Kind) *pool.Pool {
	return pool.New(pool.Config{
		Kinds: kinds, Containers: s.cfg.Settings.Containers, Driver: s.cfg.Driver, Disks: s.cfg.Disks, Images: s.cfg.Images,
		Gate: s.cfg.Gate, Log: s.cfg.Log, Uptime: s.cfg.Uptime,
		Spec: func(k pool.Kind, uid sandbox.UID, img image.Image, disks storage.Mounts) driver.Spec {
			return s.driverSpec(sandbox.Sandbox{UID: uid, Spec: sandbox.Spec{
				Isolation: k.Isolation, Limits: k.Limits, Network: s.cfg.Settings.Defaults.Network,
			}}, img, disks)
		},
		DiskBytes: func(l sandbox.Limits) int64 { return admission.DiskBytes(l, s.cfg.Settings.JournalBytes) },
		Room:      s.admission.Room, Left: s.debts.reconcileSoon,
	})
}

// createWarm makes a sandbox out of one that is kept ready; ok is false, and nothing
// has happened, when none fits or the one that did failed. The identity comes
// before the row: a crash in between leaves a sandbox of nobody, as all are that
// wait, and after it one that is whole.
func (s *creator) createWarm(ctx context.Context, b sandbox.Sandbox, img image.Image, claim *store.Claim) (made sandbox.Sandbox, ok bool, err error) {
	if !pool.Serves(b) {
		return b, false, nil
	}
	is := s.identity(b, img)
	m := s.pool.Take(ctx, pool.WantOf(b, img, s.cfg.Settings.Defaults.Limits))
	if m == nil {
		return b, false, nil
	}
	b.UID, b.DiskUID, b.Driver = m.UID, m.UID, s.cfg.Driver.Name()
	leave, err := s.seat(ctx, b)
	if err != nil {
		s.pool.Return(m)
		return b, false, err
	}
	defer leave()
	if err := s.admission.TakeRunning(b); err != nil {
		s.pool.Return(m)
		return b, false, err
	}
	identified, err := s.cfg.Driver.Identify(ctx, m.Handle, is)
	if err != nil {
		s.admission.Give(b.UID)
		s.pool.Discard(m)
		if ctx.Err() != nil {
			return b, false, ctx.Err()
		}
		s.cfg.Log.Warn("a sandbox that was kept ready could not be used", telemetry.KeyUID, m.UID, telemetry.KeyErr, err)
		return b, false, nil
	}
	m.Handle, b.Handle = identified.Handle, identified.Handle
	if made, err = s.storeWarm(ctx, b, claim); err != nil {
		s.undoWarm(ctx, b, m)
		return b, false, fmt.Errorf("create sandbox %s: %w", b.ID, err)
	}
	s.pool.Release(m)
	s.lifetimes.note(made, s.cfg.Now(), s.cfg.Uptime())
	s.attach(made)
	return s.upToDate(made), true, nil
}

// storeWarm writes down that a sandbox is there and runs.
func (s *creator) storeWarm(ctx context.Context, b sandbox.Sandbox, claim *store.Claim) (sandbox.Sandbox, error) {
	actor := scope.Actor(ctx)
	return s.cfg.Store.CreateRunning(ctx, b, store.Change{Claim: claim, Events: []sandbox.Event{
		event.New(b.UID, actor, event.Created{ID: b.ID, Image: b.Spec.Image, Isolation: b.Spec.Isolation, Start: event.Warm}),
		event.New(b.UID, actor, event.Started{}),
	}})
}

// undoWarm removes a sandbox that could not be written down. Where the store does
// not say whether it was, the reconciler finds out: it adopts a sandbox with a row
// and removes one without.
func (s *creator) undoWarm(ctx context.Context, b sandbox.Sandbox, m *pool.Member) {
	undo, cancel := gate.Detached(ctx)
	defer cancel()
	row, err := s.cfg.Store.SandboxByUID(undo, b.UID)
	switch {
	case errors.Is(err, errs.NotFound):
		s.admission.Give(b.UID)
		s.pool.Discard(m)
	case err == nil:
		s.pool.Release(m)
		if _, err := s.destroy(undo, row, destruction{why: undone("it could not be stored")}); err != nil {
			s.debts.lookAtAll()
		}
	default:
		s.admission.Give(b.UID)
		s.pool.Release(m)
		s.debts.lookAtAll()
	}
}
