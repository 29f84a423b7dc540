// Package daemon assembles cubby: it is the one place where all packages meet.
// It holds no behaviour of its own beyond order: what starts before what, and
// what stops after what.
package daemon

import (
	"context"
	"errors"
	"net"

	"github.com/cubbyhq/cubby/internal/config"
)

// Daemon is one assembled cubby.
type Daemon struct {
	listener net.Listener
}

// New opens everything and starts nothing: the data directory is locked, the
// store migrated, the address bound (so that Addr is known) and not served.
func New(ctx context.Context, cfg config.Config) (*Daemon, error) {
	return nil, errors.New("daemon: not written")
}

// Addr is the address that is bound, with the real port.
func (d *Daemon) Addr() net.Addr { return d.listener.Addr() }

// Run serves until ctx ends and returns when everything has stopped. Nil is a
// clean stop. Sandboxes go on running.
func (d *Daemon) Run(ctx context.Context) error { return nil }
