package core

import (
	"context"
	"time"

	"github.com/cubbyhq/cubby/internal/telemetry"
)

const pruneEvery = time.Hour

// decidePrune returns the time before which history is forgotten; false is
// never. Steady is the wall clock of the service's start plus what has passed
// since: the earlier of both counts, so that a clock that steps forth takes no
// history away.
func decidePrune(retention time.Duration, now, steady time.Time) (before time.Time, ok bool) {
	if retention <= 0 {
		return time.Time{}, false
	}
	if steady.Before(now) {
		now = steady
	}
	return now.Add(-retention), true
}

// pruneLoop forgets history that is older than its retention, and images that
// nobody can ask for any more.
func (s *Service) pruneLoop(ctx context.Context) {
	t := time.NewTicker(pruneEvery)
	defer t.Stop()
	for {
		s.prune(ctx)
		s.sweepImages(ctx)
		s.sweepUploads(ctx)
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

func (s *Service) prune(ctx context.Context) {
	before, ok := decidePrune(s.cfg.HistoryRetention, s.now(), s.began.Add(s.uptime()))
	if !ok {
		return
	}
	forgotten, err := s.cfg.Store.Prune(ctx, before)
	for _, uid := range forgotten {
		if err := s.cfg.Journals.Remove(uid); err != nil {
			s.log.Error("remove a journal", telemetry.KeyUID, uid, telemetry.KeyErr, err)
		}
	}
	if err == nil {
		err = s.cfg.Journals.Prune(before)
	}
	if err != nil && ctx.Err() == nil {
		s.log.Error("prune history", telemetry.KeyErr, err)
	}
}
