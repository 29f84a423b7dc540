package drivertest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// fakeSnapshot is what a Fake keeps of a sandbox.
type fakeSnapshot struct {
	spec    driver.Spec // with the identity of the instant
	half    bool
	damaged bool
}

// DamageSnapshot makes a snapshot one that cannot be restored.
func (f *Fake) DamageSnapshot(name sandbox.UID) {
	f.host.mu.Lock()
	defer f.host.mu.Unlock()
	if s, ok := f.host.snapshots[name]; ok {
		s.damaged = true
		f.host.snapshots[name] = s
	}
}

// Snapshot implements driver.Snapshotter.
func (f *Fake) Snapshot(ctx context.Context, h driver.Handle, name sandbox.UID, copyFiles func(context.Context) error) (driver.Snapshot, error) {
	b, err := f.in(ctx, h)
	if err != nil {
		return driver.Snapshot{}, err
	}
	_, is, err := parse(h)
	if err == nil {
		_, err = sandbox.ParseUID(string(name))
	}
	if err != nil {
		return driver.Snapshot{}, err
	}
	if b.status().Phase != driver.PhaseRunning {
		return driver.Snapshot{}, errs.E(errs.WrongState, "sandbox is not running")
	}
	spec := b.spec
	spec.Identity = is
	if err := f.host.begin(name, fakeSnapshot{spec: spec, half: true}); err != nil {
		return driver.Snapshot{}, err
	}
	began := time.Now()
	f.drop(spec.UID) // its streams break
	err = copyFiles(ctx)
	paused := time.Since(began)
	if l, listenErr := f.listen(b); listenErr == nil {
		err = errors.Join(err, l.Wait(context.WithoutCancel(ctx)))
	} else {
		err = errors.Join(err, listenErr)
	}
	f.host.mu.Lock()
	defer f.host.mu.Unlock()
	if err != nil {
		delete(f.host.snapshots, name)
		return driver.Snapshot{}, err
	}
	f.host.snapshots[name] = fakeSnapshot{spec: spec}
	return driver.Snapshot{Paused: paused, Bytes: 1 << 20}, nil
}

func (h *host) begin(name sandbox.UID, s fakeSnapshot) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.snapshots[name]; ok {
		return errs.E(errs.Conflict, "snapshot exists already")
	}
	h.snapshots[name] = s
	return nil
}

// Restore implements driver.Snapshotter.
func (f *Fake) Restore(ctx context.Context, name sandbox.UID, spec driver.Spec) (driver.Handle, error) {
	if err := errors.Join(ctx.Err(), spec.Validate()); err != nil {
		return nil, err
	}
	h, err := f.host.restore(name, spec)
	if err != nil {
		return nil, err
	}
	if err := f.Start(ctx, h); err != nil {
		return nil, errors.Join(err, f.Sweep(context.WithoutCancel(ctx), spec.UID))
	}
	return h, nil
}

func (h *host) restore(name sandbox.UID, spec driver.Spec) (driver.Handle, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s, ok := h.snapshots[name]
	switch {
	case !ok || s.half:
		return nil, errs.E(errs.NotFound, "no such snapshot")
	case s.damaged:
		return nil, errs.E(errs.NotFound, "the snapshot is damaged")
	case spec.Isolation != s.spec.Isolation || spec.Limits != s.spec.Limits || spec.Image != s.spec.Image || !sameRoles(spec, s.spec):
		return nil, errs.E(errs.Invalid, "the sandbox is not as the snapshot's was")
	case h.boxes[spec.UID] != nil:
		return nil, errs.E(errs.Conflict, "sandbox exists already")
	}
	spec.Identity = s.spec.Identity
	return h.add(spec)
}

func sameRoles(a, b driver.Spec) bool {
	if len(a.Volumes) != len(b.Volumes) {
		return false
	}
	for _, v := range a.Volumes {
		if !slices.ContainsFunc(b.Volumes, func(w driver.Volume) bool { return w.Role == v.Role && w.ReadOnly == v.ReadOnly }) {
			return false
		}
	}
	return true
}

// RemoveSnapshot implements driver.Snapshotter.
func (f *Fake) RemoveSnapshot(ctx context.Context, name sandbox.UID) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	f.host.mu.Lock()
	defer f.host.mu.Unlock()
	delete(f.host.snapshots, name)
	return nil
}

// Snapshots implements driver.Snapshotter.
func (f *Fake) Snapshots(ctx context.Context) ([]sandbox.UID, error) {
	f.host.mu.Lock()
	defer f.host.mu.Unlock()
	return slices.Sorted(maps.Keys(f.host.snapshots)), ctx.Err()
}
