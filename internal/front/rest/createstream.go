package rest

import (
	"context"
	"errors"
	"net/http"

	"github.com/cubbyhq/cubby/internal/core/lifecycle"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front/sse"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// step is what a create tells: what an installation prints, and at last the
// sandbox.
type step struct {
	output sandbox.Output
	made   *sandbox.Sandbox
}

// followCreate creates and writes the whole response: stdout and stderr of the
// installation as events, and as the last one sandbox or error. What fails
// before there is anything to tell is answered as without a stream. When the
// client leaves, the create is undone.
func (d *door) followCreate(ctx context.Context, x exchange, r lifecycle.CreateRequest) {
	s, err := sse.Tell(ctx, d.Life.Done(), x.w, http.StatusCreated, func(ctx context.Context, tell func(step)) (step, error) {
		r.Progress = func(o sandbox.Output) { tell(step{output: o}) }
		b, err := d.Core.Sandboxes().Create(ctx, r)
		return step{made: &b}, err
	}, func(s *sse.Stream, output *sse.Outputs, now step) error {
		if now.made == nil {
			return output.Add(now.output)
		}
		if err := output.Flush(); err != nil {
			return err
		}
		return s.Send(sse.NoID, "sandbox", sandboxJSON(*now.made))
	})
	d.toldEnd(ctx, x, s, err, "the create was undone")
}

// toldEnd answers how work ended that was told, if it failed.
func (d *door) toldEnd(ctx context.Context, x exchange, s *sse.Stream, err error, drained string) {
	if errors.Is(err, sse.ErrDraining) {
		err = errs.E(errs.Unavailable, "the daemon stops; %s", drained).Hint("try again")
	}
	switch {
	case err == nil || ctx.Err() != nil:
	case s == nil:
		d.Error(x.w, x.r, err)
	default:
		d.failStream(ctx, s, err)
	}
}
