package drivertest

import (
	"context"
	"errors"
	"time"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
)

// Sleep implements driver.Sleeper.
func (f *Fake) Sleep(ctx context.Context, h driver.Handle) error {
	b, err := f.in(ctx, h)
	if err != nil {
		return err
	}
	if err := b.sleep(true); err != nil {
		return err
	}
	f.drop(b.spec.UID)
	return nil
}

// Wake implements driver.Sleeper.
func (f *Fake) Wake(ctx context.Context, h driver.Handle) error {
	b, err := f.in(ctx, h)
	if err != nil {
		return err
	}
	if err := b.sleep(false); err != nil {
		return err
	}
	l, err := f.listen(b)
	if err == nil {
		err = l.Wait(ctx)
	}
	if err != nil {
		f.drop(b.spec.UID)
		err = errors.Join(err, b.sleep(true))
	}
	return err
}

// Fork implements driver.Forker.
func (f *Fake) Fork(ctx context.Context, parent driver.Handle, specs []driver.Spec, copyFiles func(context.Context) error) (_ driver.Forked, err error) {
	b, err := f.in(ctx, parent)
	if err != nil {
		return driver.Forked{}, err
	}
	_, is, err := parse(parent)
	if err != nil {
		return driver.Forked{}, err
	}
	if b.status().Phase != driver.PhaseRunning {
		return driver.Forked{}, errs.E(errs.WrongState, "sandbox is not running")
	}
	for _, spec := range specs {
		err := spec.Validate()
		if err == nil && (spec.Isolation != b.spec.Isolation || spec.Limits != b.spec.Limits || spec.Image != b.spec.Image) {
			err = errs.E(errs.Invalid, "a fork has the isolation, the limits and the image of its parent")
		}
		if err == nil && f.host.box(spec.UID) != nil {
			err = errs.E(errs.Conflict, "sandbox exists already")
		}
		if err != nil {
			return driver.Forked{}, err
		}
	}
	began := time.Now()
	if err := copyFiles(ctx); err != nil {
		return driver.Forked{}, err
	}
	forked := driver.Forked{Paused: time.Since(began)}
	var made []driver.Handle
	defer func() {
		if err != nil {
			for _, h := range made {
				err = errors.Join(err, f.Destroy(context.WithoutCancel(ctx), h))
			}
		}
	}()
	for _, spec := range specs {
		spec.Identity = is
		f.host.mu.Lock()
		h, err := f.host.add(spec)
		f.host.mu.Unlock()
		if err != nil {
			return driver.Forked{}, err
		}
		made = append(made, h)
		if err := f.Start(ctx, h); err != nil {
			return driver.Forked{}, err
		}
	}
	forked.Handles = made
	return forked, nil
}
