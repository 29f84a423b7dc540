package gate

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// DetachedTime is what work may take that is done although its caller has gone
// away.
const DetachedTime = time.Minute

// Detached returns a context for work that has to be done although the caller
// has gone away, as an undo.
func Detached(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), DetachedTime)
}

// The first and the longest pause between two attempts.
const (
	RetryFirst = 10 * time.Millisecond
	RetryLast  = time.Second
)

// NewPauses are the pauses between attempts, each twice as long as the one before.
// There is no limit to them: what is tried again is what the service has to do.
func NewPauses() *backoff.ExponentialBackOff {
	return &backoff.ExponentialBackOff{InitialInterval: RetryFirst, Multiplier: 2, MaxInterval: RetryLast}
}

// Pause waits for the next of the pauses or the end of ctx.
func Pause(ctx context.Context, pauses *backoff.ExponentialBackOff) { Sleep(ctx, pauses.NextBackOff()) }

// Sleep waits for d. It reports false when ctx ended first.
func Sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
