package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cubbyhq/cubby/client/internal/deadline"
)

// killWait is how long a call goes on after its context ended, to learn which
// operation it started and to end it.
const killWait = 10 * time.Second

// attended starts an operation and follows it. With kill, what ends the call
// before it, ctx or an error that is not the daemon's, ends the operation too.
func attended[P interface{ Cancel(context.Context) error }, T any](
	ctx context.Context, c *Client, kill bool, start func(context.Context) (P, error), follow func(P) (T, error),
) (T, error) {
	var none T
	if err := ctx.Err(); err != nil {
		return none, c.transportError(ctx, err)
	}
	starting := ctx
	if kill {
		var release context.CancelFunc
		starting, release = deadline.Outlive(ctx, killWait)
		defer release()
	}
	p, err := start(starting)
	if err != nil {
		return none, err
	}
	got, err := follow(p)
	var told *Error // the daemon ended the call, and not its caller
	if !kill || err == nil || errors.As(err, &told) && ctx.Err() == nil {
		return got, err
	}
	killing, stop := context.WithTimeout(context.WithoutCancel(ctx), killWait)
	defer stop()
	if kerr := p.Cancel(killing); kerr != nil {
		err = fmt.Errorf("%w; ending the operation: %w", err, kerr)
	}
	return got, err
}
