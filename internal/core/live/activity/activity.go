// Package activity says how much a running sandbox is used: when it was used last,
// how many use it now, and how long its lease is. It knows no store and no commands.
package activity

import (
	"sync"
	"time"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

const (
	// touchEvery is how often the store hears that a sandbox is used.
	touchEvery = 15 * time.Second
	// returnTime is what users get to come back after the daemon was away: its own
	// absence is not theirs.
	returnTime = time.Minute
)

// Attention is how much a running sandbox is used, in times that steps of the
// clock do not change.
type Attention struct {
	Unused time.Duration // since it was used last
	Lease  time.Duration // left of its lease
	InUse  bool          // a command, a transfer or a viewer is there now
}

// Activity is when a sandbox was used last, and how many use it now.
type Activity struct {
	now    func() time.Time
	uptime func() time.Duration

	mu        sync.Mutex
	at        time.Time     // of the last use, for people; guarded by mu
	up        time.Duration // uptime then; guarded by mu
	touched   time.Duration // uptime of what the store knows; guarded by mu
	leaseEnds time.Duration // uptime at which the spec's lease is over; guarded by mu
	streams   int           // Open files, dials and watches; guarded by mu
	conns     int           // connections to ports; guarded by mu
	leaving   bool          // no stream is opened any more; guarded by mu
}

// New is the activity of a sandbox whose run begins.
func New(now func() time.Time, uptime func() time.Duration, b sandbox.Sandbox) *Activity {
	a := &Activity{now: now, uptime: uptime, at: b.LastActiveAt}
	a.up = uptime() - unusedAtReturn(b.Spec, now(), b.LastActiveAt)
	a.touched = a.up
	return a
}

// unusedAtReturn is how long a sandbox counts as unused when a run begins that
// was last used at a time of the wall clock. After an absence of the daemon
// enough is left for its users to come back.
func unusedAtReturn(spec sandbox.Spec, now, lastActive time.Time) time.Duration {
	unused := max(0, now.Sub(lastActive)) // the clock may have stepped back
	if spec.IdleTimeout > 0 {
		unused = min(unused, spec.IdleTimeout-min(spec.IdleTimeout, returnTime))
	}
	return unused
}

// SetSpec takes over the lease of a spec; was is the one before, nil for none.
func (a *Activity) SetSpec(was, is *sandbox.Spec) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if was != nil && is.KeptUntil.Equal(was.KeptUntil) {
		return // its end is where it was, wherever the wall clock is now
	}
	a.leaseEnds = 0
	if !is.KeptUntil.IsZero() {
		a.leaseEnds = a.uptime() + is.KeptUntil.Sub(a.now())
	}
}

// Touch notes a use of this moment. The store is to hear of it when it is due.
func (a *Activity) Touch() (at time.Time, due bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at, a.up = a.now(), a.uptime()
	if due = a.up-a.touched >= touchEvery; due {
		a.touched = a.up
	}
	return a.at, due
}

// Used is a Touch of which the store need not hear.
func (a *Activity) Used() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at, a.up = a.now(), a.uptime()
}

// Open counts a stream until it is closed, once. It reports false after Leave.
func (a *Activity) Open() (closed func(), ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.leaving {
		return nil, false
	}
	a.streams++
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.streams--
		a.at, a.up = a.now(), a.uptime()
	}, true
}

// MaxPortConns bounds the connections to the ports of one sandbox: the agent has
// some 250 more, and whoever visits a port is not to keep the others from them.
const MaxPortConns = 512

// Connect counts a connection to a port until it is closed. It reports false when
// there are too many.
func (a *Activity) Connect() (closed func(), ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.conns >= MaxPortConns {
		return nil, false
	}
	a.conns++
	return sync.OnceFunc(func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.conns--
	}), true
}

// Leave refuses streams from now on. It reports false, and does nothing, when
// there are some and force does not say that they may break.
func (a *Activity) Leave(force bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.streams > 0 && !force {
		return false
	}
	a.leaving = true
	return true
}

// Stay takes Leave back.
func (a *Activity) Stay() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.leaving = false
}

// Leaves reports whether streams are refused.
func (a *Activity) Leaves() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.leaving
}

// Last is when the sandbox was used last.
func (a *Activity) Last() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.at
}

// Attention is how much the sandbox is used, where inUse says that something else uses it.
func (a *Activity) Attention(inUse bool) Attention {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.uptime()
	return Attention{Unused: now - a.up, Lease: a.leaseEnds - now, InUse: inUse || a.streams > 0}
}
