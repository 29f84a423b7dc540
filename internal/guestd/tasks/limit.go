package tasks

import (
	"context"
	"errors"
	"time"
)

// Why an agent is ended before its time.
var (
	errCancelled = errors.New("the task was cancelled")
	errTimeLimit = errors.New("the time limit is over")
)

const (
	tickEvery = 250 * time.Millisecond
	// maxTick is what one tick counts at most: the clock of a sandbox that slept
	// jumps.
	maxTick = 2 * time.Second
)

// countdown returns true when limit has passed, as far as ticks show it, and false
// when ctx ends before.
func countdown(ctx context.Context, limit time.Duration, now func() time.Time, ticks <-chan time.Time) bool {
	last := now()
	for elapsed := time.Duration(0); elapsed < limit; {
		select {
		case <-ctx.Done():
			return false
		case <-ticks:
		}
		at := now()
		elapsed += max(0, min(at.Sub(last), maxTick))
		last = at
	}
	return true
}

// within returns a context that ends, with cause, when limit has passed without
// the time in which the sandbox slept. 0 is no limit.
func within(parent context.Context, limit time.Duration, cause error) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	if limit > 0 {
		ticker := time.NewTicker(min(tickEvery, max(limit, time.Millisecond)))
		go func() {
			defer ticker.Stop()
			if countdown(ctx, limit, time.Now, ticker.C) {
				cancel(cause)
			}
		}()
	}
	return ctx, func() { cancel(nil) }
}
