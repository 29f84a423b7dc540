package lifecycle

import (
	"context"
	"errors"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// shutdownReason says in a sandbox's reason and its event why it was
// destroyed.
const shutdownReason = "the daemon was stopped, and on-shutdown is destroy"

// DestroyAll destroys the sandboxes of all tenants, whether they run or not,
// until ctx ends. Stayed are those that were not reached by then and those of
// which something is left on the host, which the next daemon removes; the error
// says why. Disks that were kept stay as well.
func (s *Sandboxes) DestroyAll(ctx context.Context) (destroyed int, stayed []sandbox.ID, err error) {
	leave, err := s.cfg.Gate.Enter(ctx)
	if err != nil {
		return 0, nil, err
	}
	defer leave()
	rows, err := s.rows(ctx, liveRows)
	if err != nil {
		return 0, nil, err
	}
	left := make(map[sandbox.UID]error, len(rows))
	var mu sync.Mutex // guards left
	var g errgroup.Group
	g.SetLimit(reapAtOnce)
	for _, b := range rows {
		g.Go(func() error {
			if err := s.destroyNow(ctx, b.UID); err != nil {
				mu.Lock()
				defer mu.Unlock()
				left[b.UID] = err
			}
			return nil
		})
	}
	_ = g.Wait() // they return nil
	look, cancel := gate.Detached(ctx)
	defer cancel()
	traces, err := s.cfg.Driver.List(look)
	if err != nil {
		return 0, nil, err
	}
	for _, b := range rows {
		if slices.ContainsFunc(traces, func(t driver.Found) bool { return t.UID == b.UID }) && left[b.UID] == nil {
			left[b.UID] = errs.E(errs.Unavailable, "the sandbox could not be ended")
		}
		if left[b.UID] != nil {
			stayed, err = append(stayed, b.ID), left[b.UID]
		}
	}
	return len(rows) - len(stayed), stayed, err
}

// destroyNow destroys a sandbox unless ctx is over before it begins.
func (s *Sandboxes) destroyNow(ctx context.Context, uid sandbox.UID) error {
	b, err := s.cfg.Store.SandboxByUID(ctx, uid)
	if err != nil {
		return err
	}
	unlock, err := s.ids.Lock(ctx, b.ID.Key())
	if err != nil {
		return err
	}
	defer unlock()
	b, err = s.cfg.Store.SandboxByUID(ctx, uid)
	if errors.Is(err, errs.NotFound) || err == nil && !b.State.Live() {
		return nil // somebody was faster
	}
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	_, err = s.destroy(ctx, b, destruction{why: sandbox.Why{Cause: sandbox.CauseShutdown, Reason: shutdownReason}, within: ctx})
	return err
}
