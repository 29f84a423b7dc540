package drivertest

import (
	"context"
	"errors"

	"github.com/cubbyhq/cubby/internal/driver"
)

// CanSleep implements driver.Sleeper.
func (f *Fake) CanSleep(context.Context, driver.Handle) error { return nil }

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
