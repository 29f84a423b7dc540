package core

import (
	"context"
	"time"

	"github.com/cubbyhq/cubby/internal/telemetry"
)

const pruneEvery = time.Hour

// pruneLoop forgets what is too old: history, images that have lost their name
// and uploads.
func (s *Service) pruneLoop(ctx context.Context) {
	t := time.NewTicker(pruneEvery)
	defer t.Stop()
	for {
		s.retention.Prune(ctx)
		s.sweepImages(ctx)
		s.sweepUploads(ctx)
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// sweepImages deletes images that lost their name and that no sandbox was made
// from. Sandboxes pin theirs; their rows are asked as well, and when these
// cannot be read nothing is deleted.
func (s *Service) sweepImages(ctx context.Context) {
	rows, err := s.liveRows(ctx)
	if err == nil {
		used := make(map[string]bool, len(rows))
		for _, b := range rows {
			used[b.ImageDigest] = true
		}
		var freed int64
		freed, err = s.cfg.Images.Sweep(ctx, func(digest string) bool { return used[digest] })
		if freed > 0 {
			s.log.Info("deleted images without a name", "freed", freed)
		}
	}
	if err != nil && ctx.Err() == nil {
		s.log.Error("sweep images", telemetry.KeyErr, err)
	}
}
