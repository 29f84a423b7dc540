package agent

import (
	"context"

	"connectrpc.com/connect"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
	"github.com/cubbyhq/cubby/api/gen/cubby/guest/v1/guestv1connect"
	"github.com/cubbyhq/cubby/internal/errs"
)

// PauseTimers makes the agent's time limits stand still, before its memory is
// kept. An agent that cannot is one of an older version, and no error: its
// limits count a sleep.
func (c Client) PauseTimers(ctx context.Context) error {
	_, err := call[guestv1.PauseTimersRequest, guestv1.PauseTimersResponse](ctx, c, guestv1connect.GuestServicePauseTimersProcedure, &guestv1.PauseTimersRequest{})
	return answered(ctx, err)
}

// ResumeTimers is the end of [PauseTimers]. When it returns nil the agent has
// answered.
func (c Client) ResumeTimers(ctx context.Context) error {
	_, err := call[guestv1.ResumeTimersRequest, guestv1.ResumeTimersResponse](ctx, c, guestv1connect.GuestServiceResumeTimersProcedure, &guestv1.ResumeTimersRequest{})
	return answered(ctx, err)
}

func answered(ctx context.Context, err error) error {
	switch {
	case err == nil, connect.CodeOf(err) == connect.CodeUnimplemented:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return errs.E(errs.Unavailable, "the sandbox's agent does not answer").Because(err)
}
