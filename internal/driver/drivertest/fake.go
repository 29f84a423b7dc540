package drivertest

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Fake is a driver without isolation, for the tests of what stands above
// drivers. Its guest is a real cubby-init, so commands and files work; its
// sandboxes end with the test.
type Fake struct {
	// Fail makes a method return its error before it does anything. Keys are
	// method names: "Create", "Start", …
	Fail map[string]error
	// FailAfter makes a method do its work and then return the error, like a
	// daemon that dies between an act and its note of it.
	FailAfter map[string]error
	// Before is called at the start of each method that takes a context.
	Before func(ctx context.Context, method string, uid sandbox.UID)

	mu    sync.Mutex
	boxes map[sandbox.UID]*fakeBox // guarded by mu
}

type fakeBox struct{}

var _ driver.Driver = (*Fake)(nil)

// NewFake returns a Fake that keeps its notes below dir.
func NewFake(dir string) *Fake { return &Fake{} }

// Kill ends a sandbox behind the driver's back, as the host would.
func (f *Fake) Kill(uid sandbox.UID, death driver.Death) {}

func (f *Fake) Capabilities() driver.Capabilities { return driver.Capabilities{} }
func (f *Fake) Create(ctx context.Context, spec driver.Spec) (driver.Handle, error) {
	return nil, errs.E(errs.Unsupported, "not yet")
}
func (f *Fake) Start(ctx context.Context, h driver.Handle) error                     { return nil }
func (f *Fake) Stop(ctx context.Context, h driver.Handle, grace time.Duration) error { return nil }
func (f *Fake) Destroy(ctx context.Context, h driver.Handle) error                   { return nil }
func (f *Fake) Inspect(ctx context.Context, h driver.Handle) (driver.Status, error) {
	return driver.Status{}, nil
}
func (f *Fake) Wait(ctx context.Context, h driver.Handle) (driver.Death, error) {
	return driver.Death{}, nil
}
func (f *Fake) Adopt(ctx context.Context, h driver.Handle) error { return nil }
func (f *Fake) List(ctx context.Context) ([]sandbox.UID, error)  { return nil, nil }
func (f *Fake) Sweep(ctx context.Context, uid sandbox.UID) error { return nil }
func (f *Fake) DialGuest(ctx context.Context, h driver.Handle) (net.Conn, error) {
	return nil, errs.E(errs.Unavailable, "not yet")
}
func (f *Fake) AcceptEgress(ctx context.Context, h driver.Handle) (net.Conn, error) {
	return nil, errs.E(errs.Unavailable, "not yet")
}
func (f *Fake) Stats(ctx context.Context, h driver.Handle) (driver.Stats, error) {
	return driver.Stats{}, nil
}
func (f *Fake) Close() error { return nil }
