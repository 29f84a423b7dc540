package sse

import (
	"context"
	"iter"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
)

// ErrDraining ends a stream because the daemon stops.
var ErrDraining = errs.E(errs.Unavailable, "the daemon stops").Hint("resume the stream at its offset")

// Pump hands every item of source to item, in order, and calls tick while there
// is none for a while. It returns when the source ends, when ctx ends, when drain is
// closed or with the first error, and leaves no goroutine behind.
//
// The source is made with a context that ends when Pump wants to return, so
// that it does not keep Pump waiting.
func Pump[T any](ctx context.Context, drain <-chan struct{}, source func(context.Context) iter.Seq2[T, error], every time.Duration, item func(T) error, tick func() error) error {
	ctx, cancel := context.WithCancel(ctx)
	type next struct {
		item T
		err  error
	}
	items := make(chan next)
	go func() {
		defer close(items)
		for v, err := range source(ctx) {
			select {
			case items <- next{v, err}:
			case <-ctx.Done():
				return
			}
		}
	}()
	defer func() {
		cancel()
		for range items { //nolint:revive // waits for the goroutine
		}
	}()
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case n, ok := <-items:
			if !ok {
				return ctx.Err() // a source that the client's leaving ended has no end of its own
			}
			if n.err != nil {
				return n.err
			}
			if err := item(n.item); err != nil {
				return err
			}
			ticker.Reset(every)
		case <-ticker.C:
			if err := tick(); err != nil {
				return err
			}
		case <-drain:
			return ErrDraining
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
