package core

import (
	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// FillPlaces takes all places for running commands of a sandbox until free.
func (s *Service) FillPlaces(box sandbox.UID) (free func(), err error) {
	var all []func()
	free = func() {
		for _, f := range all {
			f()
		}
	}
	for range live.MaxExecs {
		one, err := s.live.Of(box).Reserve()
		if err != nil {
			free()
			return nil, err
		}
		all = append(all, one)
	}
	return free, nil
}
