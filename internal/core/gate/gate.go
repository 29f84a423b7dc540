// Package gate decides when calls and goroutines of core may run: calls are let
// in between the end of the first reconciliation and the end of the service, and
// the service ends after all of them. It knows nothing of what they do.
package gate

import (
	"context"
	"sync"

	"github.com/cubbyhq/cubby/internal/errs"
)

// Gate lets calls in and counts the goroutines that the end of the service waits
// for. Its methods may be called from any goroutine.
type Gate struct {
	opened chan struct{} // closed when calls are let in
	ended  chan struct{} // closed when none is let in any more

	mu     sync.Mutex
	ctx    context.Context // of goroutines; guarded by mu, nil before Begin
	closed bool            // guarded by mu
	group  sync.WaitGroup  // calls and goroutines; Add only under mu while not closed
}

// New returns a gate that is closed and not yet begun.
func New() *Gate {
	return &Gate{opened: make(chan struct{}), ended: make(chan struct{})}
}

// ErrShuttingDown is what a call gets that comes too late, or whose service ends
// before it is done.
func ErrShuttingDown() error {
	return errs.E(errs.Unavailable, "cubby is shutting down").Hint("sandboxes and their commands go on; try again in a moment")
}

// Begin sets the context of goroutines. It fails when it was called before: a
// service runs once.
func (g *Gate) Begin(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ctx != nil {
		return errs.E(errs.Internal, "the service was run before")
	}
	g.ctx = ctx
	return nil
}

// Open lets calls in.
func (g *Gate) Open() { close(g.opened) }

// End refuses new calls and goroutines, stops the goroutines and waits until
// they and the calls are over.
func (g *Gate) End(stop context.CancelFunc) {
	g.mu.Lock()
	g.closed = true
	close(g.ended)
	g.mu.Unlock()
	stop()
	g.group.Wait()
}

// Context returns the context of goroutines. It is over before Begin.
func (g *Gate) Context() context.Context {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ctx == nil {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		return ctx
	}
	return g.ctx
}

// Wait returns when calls are let in. It is for reads, which hold nothing up.
func (g *Gate) Wait(ctx context.Context) error {
	select {
	case <-g.opened:
		return nil
	case <-g.ended:
		return ErrShuttingDown()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Enter waits until calls are let in. The caller calls leave when it is
// done.
func (g *Gate) Enter(ctx context.Context) (leave func(), err error) {
	if err := g.Wait(ctx); err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, ErrShuttingDown()
	}
	g.group.Add(1)
	return g.group.Done, nil
}

// Spawn runs fn in a goroutine whose context ends with the service. It reports
// false, and fn never runs, when the service has ended or not begun.
func (g *Gate) Spawn(fn func(ctx context.Context)) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed || g.ctx == nil {
		return false
	}
	ctx := g.ctx
	g.group.Go(func() { fn(ctx) })
	return true
}

// Opened is closed when calls are let in.
func (g *Gate) Opened() <-chan struct{} { return g.opened }

// Ended is closed when no call is let in any more.
func (g *Gate) Ended() <-chan struct{} { return g.ended }
