package lifecycle

import (
	"context"
	"math"

	"github.com/cubbyhq/cubby/internal/core/diskrepair"
	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

func newRepairer(s *acts) *diskrepair.Repairer {
	return &diskrepair.Repairer{Store: s.cfg.Store, Disks: s.cfg.Disks, Log: s.cfg.Log, Acts: diskrepair.Acts{
		TryLock: s.ids.TryLock,
		Stop: func(ctx context.Context, b sandbox.Sandbox) (sandbox.Sandbox, error) {
			if r := s.cfg.Live.Of(b.UID); r != nil {
				r.End(live.Ending{Reason: sandbox.EndStopped, Message: diskrepair.Reason})
			}
			return s.halt(ctx, b, DefaultGrace, sandbox.Why{Cause: sandbox.CauseDisk, Reason: diskrepair.Reason})
		},
		Start: func(ctx context.Context, b sandbox.Sandbox) error {
			_, err := s.rouse(ctx, b)
			return err
		},
		Unmount: s.unmount,
		Unowned: func() { s.pool.GiveUp(math.MaxInt) }, // one that is kept ready
	}}
}

// repairDisks has the disks repaired for which that is due.
func (s *reaper) repairDisks(start starter) {
	for _, f := range s.repairer.Due(s.cfg.Uptime()) {
		start(f.Disk, "its disk cannot be written to", func(ctx context.Context) error { return s.repairer.Repair(ctx, f) })
	}
}
