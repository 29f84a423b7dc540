package history

import (
	"context"
	"log/slog"
	"time"

	"github.com/cubbyhq/cubby/internal/journal"
	"github.com/cubbyhq/cubby/internal/store"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// Retention bounds histories, output included, by their age and by what they take
// of a tenant. All fields but the bounds are required.
type Retention struct {
	Store    *store.Store
	Journals *journal.Journals
	Log      *slog.Logger
	Now      func() time.Time
	// Steady is the wall clock of the service's start plus what has passed since.
	Steady func() time.Time

	Bounds
}

// Bounds are how much is kept.
type Bounds struct {
	// Age is how long events and output outlive a sandbox; 0 is for ever.
	Age time.Duration
	// Bytes are what a tenant may have, and the sandboxes of no tenant together;
	// 0 is no bound.
	Bytes int64
}

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

// Prune forgets history that is older than its retention. What fails is logged:
// the next turn tries again.
func (r *Retention) Prune(ctx context.Context) {
	before, ok := decidePrune(r.Age, r.Now(), r.Steady())
	if !ok {
		return
	}
	forgotten, err := r.Store.Prune(ctx, before)
	for _, uid := range forgotten {
		if err := r.Journals.Remove(uid); err != nil {
			r.Log.Error("remove a journal", telemetry.KeyUID, uid, telemetry.KeyErr, err)
		}
	}
	if err == nil {
		err = r.Journals.Prune(before)
	}
	if err != nil && ctx.Err() == nil {
		r.Log.Error("prune history", telemetry.KeyErr, err)
	}
}
