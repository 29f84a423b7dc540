package lifecycle

import (
	"context"

	"github.com/cubbyhq/cubby/internal/telemetry"
)

// SweepImages deletes images that lost their name and that no sandbox was made
// from. Sandboxes pin theirs; their rows are asked as well, and when these
// cannot be read nothing is deleted.
func (s *Sandboxes) SweepImages(ctx context.Context) {
	rows, err := s.rows(ctx, liveRows)
	if err == nil {
		used := make(map[string]bool, len(rows))
		for _, b := range rows {
			used[b.ImageDigest] = true
		}
		var freed int64
		freed, err = s.cfg.Images.Sweep(ctx, func(digest string) bool { return used[digest] })
		if freed > 0 {
			s.cfg.Log.Info("deleted images without a name", "freed", freed)
		}
	}
	if err != nil && ctx.Err() == nil {
		s.cfg.Log.Error("sweep images", telemetry.KeyErr, err)
	}
}
