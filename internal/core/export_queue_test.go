package core

import "github.com/cubbyhq/cubby/internal/sandbox"

// FillPlaces takes all places for running commands of a sandbox until free.
func (s *Service) FillPlaces(box sandbox.UID) (free func()) {
	r := s.runOf(box)
	add := func(n int) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.starting += n
	}
	add(maxExecs)
	return func() { add(-maxExecs) }
}
