// Package oci runs sandboxes through OCI runtimes: runsc (gVisor), which cubby
// carries along, and crun or runc of the host.
package oci

import (
	"context"
	"log/slog"
	"net"
	"time"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Config says where a driver keeps things.
type Config struct {
	StateDir    string // notes and channels of sandboxes, DATA/run/oci
	RuntimesDir string // unpacked embedded programs, DATA/runtimes
	Log         *slog.Logger
}

// Driver implements driver.Driver.
type Driver struct{ cfg Config }

var _ driver.Driver = (*Driver)(nil)

// New opens the driver. It starts nothing and touches no sandbox.
func New(cfg Config) (*Driver, error) { return &Driver{cfg: cfg}, nil }

func (d *Driver) Capabilities() driver.Capabilities { return driver.Capabilities{} }
func (d *Driver) Create(ctx context.Context, spec driver.Spec) (driver.Handle, error) {
	return nil, errs.E(errs.Unsupported, "not yet")
}
func (d *Driver) Start(ctx context.Context, h driver.Handle) error                     { return nil }
func (d *Driver) Stop(ctx context.Context, h driver.Handle, grace time.Duration) error { return nil }
func (d *Driver) Destroy(ctx context.Context, h driver.Handle) error                   { return nil }
func (d *Driver) Inspect(ctx context.Context, h driver.Handle) (driver.Status, error) {
	return driver.Status{}, nil
}
func (d *Driver) Wait(ctx context.Context, h driver.Handle) (driver.Death, error) {
	return driver.Death{}, nil
}
func (d *Driver) Adopt(ctx context.Context, h driver.Handle) error { return nil }
func (d *Driver) List(ctx context.Context) ([]sandbox.UID, error)  { return nil, nil }
func (d *Driver) Sweep(ctx context.Context, uid sandbox.UID) error { return nil }
func (d *Driver) DialGuest(ctx context.Context, h driver.Handle) (net.Conn, error) {
	return nil, errs.E(errs.Unavailable, "not yet")
}
func (d *Driver) AcceptEgress(ctx context.Context, h driver.Handle) (net.Conn, error) {
	return nil, errs.E(errs.Unavailable, "not yet")
}
func (d *Driver) Stats(ctx context.Context, h driver.Handle) (driver.Stats, error) {
	return driver.Stats{}, nil
}
func (d *Driver) Close() error { return nil }
