package lifecycle

import (
	"context"
	"errors"

	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Work is done in a sandbox that exists only for it. Its context ends with the
// caller's.
type Work func(ctx context.Context, r *live.Run, b sandbox.Sandbox) error

// Borrow creates a sandbox, does work in it and destroys it, whatever came of
// the work. The sandbox is in the state creating all that time, so one whose
// daemon was killed is undone by the next one like every create that was cut
// off. It has a disk of its own and is never one of the pool. Errors are those
// of [Sandboxes.Create] and of work.
func (s *Sandboxes) Borrow(ctx context.Context, r CreateRequest, work Work) error {
	r.work = work
	_, err := s.creator.createOnce(ctx, r)
	return err
}

// lend does work in a sandbox that was made for it and whose lock is held.
func (s *creator) lend(ctx context.Context, b sandbox.Sandbox, work Work) error {
	err := work(ctx, s.attach(b), b)
	_, destroyed := s.destroy(ctx, b, destruction{why: requested()})
	return errors.Join(err, destroyed)
}
