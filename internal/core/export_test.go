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
	const most = 100
	ends := make(chan end, most)
	all := make(map[sandbox.UID]error)
	for range s.sandboxes.Reap(func(uid sandbox.UID, err error) { ends <- end{uid, err} }) {
		e := <-ends
		all[e.uid] = e.err
	}
	return all
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
