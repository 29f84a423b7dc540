// Package deadline is the deadlines of connections whose reads and writes end with
// contexts, and of what outlives a context.
package deadline

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"
)

// Limit ends a context at a deadline that may be moved until then.
type Limit struct {
	Context context.Context //nolint:containedctx // a net.Conn has no other place for it
	cancel  context.CancelCauseFunc

	mu    sync.Mutex
	timer *time.Timer // nil: no deadline; guarded by mu
}

// Begin makes the context.
func (l *Limit) Begin() { l.Context, l.cancel = context.WithCancelCause(context.Background()) }

// Set moves the deadline; zero is none.
func (l *Limit) Set(t time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
	if !t.IsZero() {
		l.timer = time.AfterFunc(time.Until(t), func() { l.cancel(os.ErrDeadlineExceeded) })
	}
}

// Passed reports that the deadline has ended the context.
func (l *Limit) Passed() bool { return errors.Is(context.Cause(l.Context), os.ErrDeadlineExceeded) }

// End ends the context for another reason.
func (l *Limit) End() {
	l.Set(time.Time{})
	l.cancel(nil)
}

// Outlive returns a context that ends d after ctx.
func Outlive(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(d, cancel) })
	return longer, func() { stop(); cancel() }
}
