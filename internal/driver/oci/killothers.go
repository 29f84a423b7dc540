package oci

import (
	"context"
	"errors"
	"time"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/driver/oci/proctree"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/poll"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

var _ driver.TreeKiller = (*Driver)(nil)

// KillOthers implements driver.TreeKiller.
func (d *Driver) KillOthers(ctx context.Context, h driver.Handle, spare []int64) error {
	n, err := d.places.parse(h)
	if err != nil {
		return err
	}
	if n.Isolation != sandbox.Container {
		return errs.E(errs.Unsupported, "the sandbox has a kernel of its own")
	}
	r, err := d.held(h)
	if err != nil {
		return err
	}
	r.forks.Lock()
	defer r.forks.Unlock()
	if err := context.Cause(ctx); err != nil {
		return err // spare may not hold good any more
	}
	group := d.cgroups.Group(n.UID)
	left := 0
	err = poll.Until(ctx, time.Millisecond, 20*time.Millisecond, func() (_ bool, err error) {
		if !r.ended() {
			left, err = proctree.KillOthers(group, r.process.PID, spare, n.Limits.PIDs)
		}
		return r.ended() || left == 0, err
	})
	if err != nil && errors.Is(err, context.Cause(ctx)) {
		return errs.E(errs.Unavailable, "%d processes of the sandbox do not end", left).Because(err)
	}
	return err
}
