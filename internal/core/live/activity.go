package live

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

// activity is when a sandbox was used last, and how many use it now.
type activity struct {
	now    func() time.Time
	uptime func() time.Duration

	mu        sync.Mutex
	at        time.Time     // of the last use, for people; guarded by mu
	up        time.Duration // uptime then; guarded by mu
	touched   time.Duration // uptime of what the store knows; guarded by mu
	leaseEnds time.Duration // uptime at which the spec's lease is over; guarded by mu
	streams   int           // open files, dials and watches; guarded by mu
	conns     int           // connections to ports; guarded by mu
	leaving   bool          // no stream is opened any more; guarded by mu
}

func newActivity(now func() time.Time, uptime func() time.Duration, b sandbox.Sandbox) *activity {
	a := &activity{now: now, uptime: uptime, at: b.LastActiveAt}
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

// setSpec takes over the lease of a spec; was is the one before, nil for none.
func (a *activity) setSpec(was, is *sandbox.Spec) {
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

// touch notes a use of this moment. The store is to hear of it when it is due.
func (a *activity) touch() (at time.Time, due bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at, a.up = a.now(), a.uptime()
	if due = a.up-a.touched >= touchEvery; due {
		a.touched = a.up
	}
	return a.at, due
}

// used is a touch of which the store need not hear.
func (a *activity) used() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at, a.up = a.now(), a.uptime()
}

// open counts a stream until it is closed, once. It reports false after leave.
func (a *activity) open() (closed func(), ok bool) {
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

// maxPortConns bounds the connections to the ports of one sandbox: the agent has
// some 250 more, and whoever visits a port is not to keep the others from them.
const maxPortConns = 512

// connect counts a connection to a port until it is closed. It reports false when
// there are too many.
func (a *activity) connect() (closed func(), ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.conns >= maxPortConns {
		return nil, false
	}
	a.conns++
	return sync.OnceFunc(func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.conns--
	}), true
}

// leave refuses streams from now on. It reports false, and does nothing, when
// there are some and force does not say that they may break.
func (a *activity) leave(force bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.streams > 0 && !force {
		return false
	}
	a.leaving = true
	return true
}

// stay takes leave back.
func (a *activity) stay() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.leaving = false
}

func (a *activity) last() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.at
}

// attention completes what else is there.
func (a *activity) attention(inUse bool) Attention {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.uptime()
	return Attention{Unused: now - a.up, Lease: a.leaseEnds - now, InUse: inUse || a.streams > 0}
}
