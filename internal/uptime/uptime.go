// Package uptime is a clock that stands still while the sandbox sleeps. The
// monotonic clock of a machine whose memory is kept jumps over that time at the
// wake, and every timer that was due in it fires at once.
//
// It serves timers that give something up: the time limits of commands and
// cells, the grace of what was asked to end, the patience with what is about to
// answer. Timers that only look or try again sooner when they fire early need
// no such clock, and neither does what bounds a connection to the host: no
// connection outlives a sleep.
package uptime

import (
	"context"
	"sync"
	"time"
)

// Clock counts the time in which it is not paused. Its methods are safe for
// concurrent use.
type Clock struct {
	mu     sync.Mutex
	paused bool
	before time.Duration // counted until the last Resume, or Pause
	since  time.Time     // the last Resume; meaningless while paused
	timers map[*Timer]struct{}
}

// New returns a Clock that runs.
func New() *Clock {
	return &Clock{since: time.Now(), timers: make(map[*Timer]struct{})}
}

// Pause makes the clock stand still, with all its timers. Pausing a paused
// clock does nothing.
func (c *Clock) Pause() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.paused {
		return
	}
	c.before, c.paused = c.now(), true
	for t := range c.timers {
		t.stop()
	}
}

// Resume lets the clock go on from where it was paused. Timers whose time was
// over before that, and that had not fired, fire now. Resuming a clock that runs
// does nothing.
func (c *Clock) Resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.paused {
		return
	}
	c.since, c.paused = time.Now(), false
	for t := range c.timers {
		t.run()
	}
}

// Now is how long the clock has run.
func (c *Clock) Now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now()
}

// now is Now; c.mu is held.
func (c *Clock) now() time.Duration {
	if c.paused {
		return c.before
	}
	return c.before + time.Since(c.since)
}

// Timer fires once.
type Timer struct {
	clock *Clock
	at    time.Duration // when it fires, by the clock
	fire  func()
	timer *time.Timer // nil while the clock is paused; guarded by clock.mu
}

// AfterFunc calls f in a goroutine of its own when the clock has run for d,
// unless the Timer is stopped before.
func (c *Clock) AfterFunc(d time.Duration, f func()) *Timer {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &Timer{clock: c, at: c.now() + d, fire: f}
	c.timers[t] = struct{}{}
	if !c.paused {
		t.run()
	}
	return t
}

// After returns a channel that is closed when the clock has run for d, and the
// Timer that closes it.
func (c *Clock) After(d time.Duration) (<-chan struct{}, *Timer) {
	over := make(chan struct{})
	return over, c.AfterFunc(d, func() { close(over) })
}

// WithTimeout is [context.WithTimeoutCause] by this clock. The context has no
// Deadline.
func (c *Clock) WithTimeout(parent context.Context, d time.Duration, cause error) (context.Context, context.CancelFunc) {
	if cause == nil {
		cause = context.DeadlineExceeded
	}
	ctx, cancel := context.WithCancelCause(parent)
	t := c.AfterFunc(d, func() { cancel(cause) })
	return ctx, func() {
		t.Stop()
		cancel(nil)
	}
}

// Stop keeps the Timer from firing. It reports whether it did: false when the
// Timer has fired or was stopped before.
func (t *Timer) Stop() bool {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	_, waits := t.clock.timers[t]
	delete(t.clock.timers, t)
	t.stop()
	return waits
}

// run begins to wait for what is left. clock.mu is held, and the clock runs.
func (t *Timer) run() {
	t.timer = time.AfterFunc(t.at-t.clock.now(), t.due)
}

// stop ends the wait. clock.mu is held.
func (t *Timer) stop() {
	if t.timer != nil {
		t.timer.Stop()
		t.timer = nil
	}
}

// due fires, unless the clock was paused or the Timer stopped in this moment.
func (t *Timer) due() {
	t.clock.mu.Lock()
	_, waits := t.clock.timers[t]
	if waits = waits && !t.clock.paused; waits {
		delete(t.clock.timers, t)
	}
	t.clock.mu.Unlock()
	if waits {
		t.fire()
	}
}
