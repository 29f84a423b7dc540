package gate

import (
	"context"
	"time"
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

// Pause waits for delay or the end of ctx and returns the next delay.
func Pause(ctx context.Context, delay time.Duration) time.Duration {
	Sleep(ctx, delay)
	return min(2*delay, RetryLast)
}

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
