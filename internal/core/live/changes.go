package live

import (
	"context"
	"sync"

	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// changes tell those who wait for a sandbox without a run that it has one, or
// that its commands have ended. Nobody who waits takes nothing.
type changes struct {
	mu   sync.Mutex
	next map[sandbox.UID]chan struct{} // closed by the next change; guarded by mu
}

// of returns a channel that is closed by the next change. What is waited for has
// to be looked at after this call.
func (c *changes) of(box sandbox.UID) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := c.next[box]
	if next == nil {
		if c.next == nil {
			c.next = make(map[sandbox.UID]chan struct{})
		}
		next = make(chan struct{})
		c.next[box] = next
	}
	return next
}

// tell wakes those who wait.
func (c *changes) tell(box sandbox.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if next := c.next[box]; next != nil {
		close(next)
		delete(c.next, box)
	}
}

// awaitChange waits for a change of a sandbox.
func (s *Sandboxes) awaitChange(ctx context.Context, change <-chan struct{}) error {
	select {
	case <-change:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.cfg.Gate.Ended():
		return gate.ErrShuttingDown()
	}
}
