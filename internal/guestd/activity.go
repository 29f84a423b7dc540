package guestd

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// activity knows which connections have a request under way. (An http.Server
// knows it too, but its Shutdown waits for connections that never had one, and
// those are what a pool is made of.)
type activity struct {
	mu     sync.Mutex
	active map[net.Conn]bool
	idle   chan struct{} // closed when active becomes empty; nil: nobody waits
}

// note is an http.Server's ConnState.
func (a *activity) note(c net.Conn, state http.ConnState) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch state {
	case http.StateActive:
		if a.active == nil {
			a.active = make(map[net.Conn]bool)
		}
		a.active[c] = true
	case http.StateIdle, http.StateHijacked, http.StateClosed:
		delete(a.active, c)
	}
	if len(a.active) == 0 && a.idle != nil {
		close(a.idle)
		a.idle = nil
	}
}

// rest returns when no request is under way, or after limit.
func (a *activity) rest(ctx context.Context, limit time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	a.mu.Lock()
	if len(a.active) == 0 {
		a.mu.Unlock()
		return
	}
	idle := make(chan struct{})
	a.idle = idle
	a.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}
