package core

import (
	"context"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Reap is one turn of the reaper, and what came of it.
func (s *Service) Reap() map[sandbox.UID]error {
	type end struct {
		uid sandbox.UID
		err error
	}
	ends := make(chan end, reapAtOnce)
	all := make(map[sandbox.UID]error)
	for range s.reap(func(uid sandbox.UID, err error) { ends <- end{uid, err} }) {
		e := <-ends
		all[e.uid] = e.err
	}
	return all
}

// Reaping reports that a sandbox is being ended.
func (s *Service) Reaping() bool {
	s.reaper.mu.Lock()
	defer s.reaper.mu.Unlock()
	return len(s.reaper.busy) > 0
}

// Prune is one turn of the prune loop.
func (s *Service) Prune(ctx context.Context) { s.retention.Prune(ctx) }

// BoundHistory is one turn of the loop that bounds the history of tenants.
func (s *Service) BoundHistory(ctx context.Context) error {
	return s.retention.Bound(ctx)
}

// Released reports that a sandbox's agent has forgotten all finished execs.
func (s *Service) Released(uid sandbox.UID) bool {
	r := s.live.Of(uid)
	return r != nil && r.Released()
}

// SweepImages is the other half of a turn of the prune loop.
func (s *Service) SweepImages(ctx context.Context) { s.sweepImages(ctx) }

// Waiters is how many callers of EnsureRunning wait for a sandbox.
func (s *Service) Waiters(box sandbox.UID) (n int) {
	s.wakes.mu.Lock()
	defer s.wakes.mu.Unlock()
	for key, f := range s.wakes.now {
		if key.box == box {
			n += f.waiters
		}
	}
	return n
}

// Ensure makes the sandbox of a row run, as [Service.EnsureRunning] does once it
// has found the row.
func (s *Service) Ensure(ctx context.Context, b sandbox.Sandbox, wake Wake) (sandbox.Sandbox, Ensured, error) {
	return s.ensure(ctx, b, wake)
}
