package scope

import (
	"context"
	"sync"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Losses is what an act finds lost when it makes a sandbox run: the memory of one
// that slept. Whoever answers for the act puts it into the act's context: every use
// of a sandbox may wake it, and what the uses return is about other things.
type Losses struct {
	mu     sync.Mutex
	reason string // guarded by mu
}

type lossesKey struct{}

// WithLosses returns a context whose acts note what they find lost.
func WithLosses(ctx context.Context) (context.Context, *Losses) {
	l := new(Losses)
	return context.WithValue(ctx, lossesKey{}, l), l
}

// LossesOf are those of the act that ctx belongs to; nil, which has none, outside of
// one.
func LossesOf(ctx context.Context) *Losses {
	l, _ := ctx.Value(lossesKey{}).(*Losses)
	return l
}

// Reason says what is lost and what is not, "" while nothing is. It may be asked at
// any time, also by who answers while the act goes on.
func (l *Losses) Reason() string {
	if l == nil {
		return ""
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reason
}

// NoteLoss notes for the act of ctx what a sandbox has lost that was made to run for
// it. Nothing is noted of one that woke whole.
func NoteLoss(ctx context.Context, b sandbox.Sandbox) {
	l := LossesOf(ctx)
	if l == nil || b.Cause != sandbox.CauseMemoryLost {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reason = b.Reason
}
