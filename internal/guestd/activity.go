package guestd

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// activity knows which connections have a request under way, and which of those
// the host must get an answer on before the agent ends. (An http.Server knows the
// first too, but its Shutdown waits for connections that never had a request, and
// those are what a pool is made of.)
type activity struct {
	mu      sync.Mutex
	active  map[net.Conn]bool // whether the answer is owed
	changed chan struct{}     // closed when one leaves active; nil: nobody waits
}

// note is an http.Server's ConnState. A connection is idle when the whole answer
// was written.
func (a *activity) note(c net.Conn, state http.ConnState) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch state {
	case http.StateActive:
		if a.active == nil {
			a.active = make(map[net.Conn]bool)
		}
		a.active[c] = false
	case http.StateIdle, http.StateHijacked, http.StateClosed:
		delete(a.active, c)
		if a.changed != nil {
			close(a.changed)
			a.changed = nil
		}
	}
}

type connKey struct{}

// withConn is an http.Server's ConnContext.
func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// owe says that the request of ctx is to be answered before the agent ends.
func (a *activity) owe(ctx context.Context) {
	c, ok := ctx.Value(connKey{}).(net.Conn)
	if !ok {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.active[c]; ok {
		a.active[c] = true
	}
}

// deliver returns when every answer that is owed was written, or after limit.
func (a *activity) deliver(ctx context.Context, limit time.Duration) {
	a.await(ctx, limit, func() bool {
		for _, owed := range a.active {
			if owed {
				return false
			}
		}
		return true
	})
}

// rest returns when no request is under way, or after limit.
func (a *activity) rest(ctx context.Context, limit time.Duration) {
	a.await(ctx, limit, func() bool { return len(a.active) == 0 })
}

// await returns when over says true, which is asked with a.mu held, or after limit.
func (a *activity) await(ctx context.Context, limit time.Duration, over func() bool) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		a.mu.Lock()
		if over() {
			a.mu.Unlock()
			return
		}
		if a.changed == nil {
			a.changed = make(chan struct{})
		}
		changed := a.changed
		a.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}
