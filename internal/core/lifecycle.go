package core

import (
	"context"
	"sync"

	"github.com/cubbyhq/cubby/internal/errs"
)

// lifecycle lets calls in between the end of the first reconciliation and the
// end of Run, and knows every goroutine that Run has to wait for.
type lifecycle struct {
	opened chan struct{} // closed when calls are let in
	ended  chan struct{} // closed when none is let in any more

	mu     sync.Mutex
	ctx    context.Context // of goroutines; guarded by mu, nil before begin
	closed bool            // guarded by mu
	group  sync.WaitGroup  // calls and goroutines; Add only under mu while not closed
}

func newLifecycle() *lifecycle {
	return &lifecycle{opened: make(chan struct{}), ended: make(chan struct{})}
}

func errShuttingDown() error {
	return errs.E(errs.Unavailable, "cubby is shutting down").Hint("sandboxes and their commands go on; try again in a moment")
}

// begin fails when it was called before: a service runs once.
func (l *lifecycle) begin(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx != nil {
		return errs.E(errs.Internal, "the service was run before")
	}
	l.ctx = ctx
	return nil
}

func (l *lifecycle) open() { close(l.opened) }

// end refuses new calls and goroutines, stops the goroutines and waits until
// they and the calls are over.
func (l *lifecycle) end(stop context.CancelFunc) {
	l.mu.Lock()
	l.closed = true
	close(l.ended)
	l.mu.Unlock()
	stop()
	l.group.Wait()
}

// context returns the context of goroutines. It is over before begin.
func (l *lifecycle) context() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx == nil {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		return ctx
	}
	return l.ctx
}

// wait returns when calls are let in. It is for reads, which hold nothing up.
func (l *lifecycle) wait(ctx context.Context) error {
	select {
	case <-l.opened:
		return nil
	case <-l.ended:
		return errShuttingDown()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// enter waits until calls are let in. The caller calls leave when it is done.
func (l *lifecycle) enter(ctx context.Context) (leave func(), err error) {
	if err := l.wait(ctx); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, errShuttingDown()
	}
	l.group.Add(1)
	return l.group.Done, nil
}

// spawn runs fn in a goroutine whose context ends with Run's. It reports false,
// and fn never runs, when Run has ended.
func (l *lifecycle) spawn(fn func(ctx context.Context)) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.ctx == nil {
		return false
	}
	ctx := l.ctx
	l.group.Go(func() { fn(ctx) })
	return true
}
