// Package coalesce lets callers who want the same thing at the same time wait for
// one call. Unlike singleflight it gives the call up when nobody waits for it any
// more. It caches nothing: who comes after the end begins another call.
package coalesce

import (
	"context"
	"sync"
)

// Calls are those that are under way, by key. The zero value has none.
type Calls[K comparable, V any] struct {
	mu  sync.Mutex
	now map[K]*Call[K, V] // guarded by mu
}

// Call is one of them.
type Call[K comparable, V any] struct {
	of      *Calls[K, V]
	key     K
	cancel  context.CancelFunc
	waiters int // guarded by of.mu

	done  chan struct{} // closed when what follows is known
	value V
	err   error
}

// Join takes part in the call of a key, which begins when there is none: do runs in
// a goroutine of its own, with the values of the first caller's context, and that
// context ends when all who joined have left. Do must not panic. Whoever joined
// calls Leave once.
func (c *Calls[K, V]) Join(ctx context.Context, key K, do func(context.Context) (V, error)) *Call[K, V] {
	c.mu.Lock()
	defer c.mu.Unlock()
	if call := c.now[key]; call != nil {
		call.waiters++
		return call
	}
	call := &Call[K, V]{of: c, key: key, waiters: 1, done: make(chan struct{})}
	ctx, call.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if c.now == nil {
		c.now = make(map[K]*Call[K, V])
	}
	c.now[key] = call
	go func() {
		defer close(call.done)
		defer call.end()
		call.value, call.err = do(ctx)
	}()
	return call
}

// Waiting is how many callers wait for calls with a key that matches.
func (c *Calls[K, V]) Waiting(match func(K) bool) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, call := range c.now {
		if match(key) {
			n += call.waiters
		}
	}
	return n
}

// Done is closed when the call has ended.
func (c *Call[K, V]) Done() <-chan struct{} { return c.done }

// Result is how the call ended, once Done is closed.
func (c *Call[K, V]) Result() (V, error) { return c.value, c.err }

// Leave gives the call up when nobody waits for it any more.
func (c *Call[K, V]) Leave() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if c.waiters--; c.waiters == 0 {
		c.forget() // before another can join it
	}
}

// end lets the next who asks begin another call.
func (c *Call[K, V]) end() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.forget()
}

// forget takes the call out and ends its context. The caller holds of.mu.
func (c *Call[K, V]) forget() {
	if c.of.now[c.key] == c {
		delete(c.of.now, c.key)
	}
	c.cancel()
}
