package lifecycle

import (
	"context"
	"errors"
	"time"

	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Origin is what a sandbox begins from in the place of an empty disk and a cold
// start.
type Origin struct {
	// Snapshot is what it is a copy of, as far as that has rows; its spec says what
	// a sandbox of this origin is.
	Snapshot sandbox.Snapshot
	// Files puts the files on the disk: of a new sandbox it makes that disk.
	Files func(ctx context.Context, disk sandbox.UID) error
	// Run makes a sandbox of the spec run, with the identity of the spec. Nil: it
	// starts cold. After an error nothing of it is left.
	Run func(ctx context.Context, spec driver.Spec) (driver.Identified, error)
	// Done lets its snapshot be removed. Only that of a create has it.
	Done func()
}

// services are the states of those that go on with its memory.
func (o Origin) services() map[string]sandbox.ServiceState {
	if o.Run == nil {
		return nil
	}
	return sandbox.CopiedServices(o.Snapshot.Services)
}

// Hold finds a sandbox for an act of the caller, and keeps everybody else from
// acting on it until release.
func (s *Sandboxes) Hold(ctx context.Context, id string) (b sandbox.Sandbox, release func(), err error) {
	return s.change(ctx, id)
}

// Aside does something to a running sandbox that the caller holds and that breaks
// all streams to it. To its users the sandbox sleeps meanwhile: commands, cells and
// terminals go on afterwards, transfers break.
func (s *Sandboxes) Aside(ctx context.Context, b sandbox.Sandbox, act func() error) error {
	r := s.cfg.Live.Of(b.UID)
	if r == nil {
		return errs.E(errs.Unavailable, "the sandbox cannot be reached yet").RetryAfter(time.Second)
	}
	if err := r.Suspend(true); err != nil {
		return err
	}
	acted := act()
	undo, cancel := gate.Detached(ctx)
	defer cancel()
	// The time limits of commands stood still, and it is as unused as before.
	b.StartedAt, b.LastActiveAt = s.cfg.Now(), r.LastActive()
	_, err := s.readopt(undo, b)
	return errors.Join(acted, err)
}
