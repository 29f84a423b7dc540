// Package backoff spaces attempts to reach a daemon again. What is worth another
// attempt is the caller's to know.
package backoff

import (
	"context"
	"time"
)

// Backoff is the pauses between attempts in a row.
type Backoff struct {
	limit time.Duration
	since time.Time // of the first failure in a row; zero: none
	wait  time.Duration
}

// New returns a Backoff that gives up after limit.
func New(limit time.Duration) *Backoff { return &Backoff{limit: limit} }

// Reset says that an attempt got further: the next failure is the first one.
func (b *Backoff) Reset() { b.since, b.wait = time.Time{}, 0 }

// Again waits before the next attempt and reports whether there should be one: ctx
// lives, and the time for it is not used up.
func (b *Backoff) Again(ctx context.Context) bool {
	now := time.Now()
	if b.since.IsZero() {
		b.since, b.wait = now, 50*time.Millisecond
	}
	if now.Sub(b.since) >= b.limit {
		return false
	}
	wait := b.wait
	b.wait = min(2*b.wait, 2*time.Second)
	return Pause(ctx, wait)
}

// Pause waits and reports whether ctx lived on.
func Pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
