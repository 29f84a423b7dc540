package rest

import (
	"context"
	"errors"
	"iter"
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
	steps := func(ctx context.Context) iter.Seq2[step, error] {
		return func(yield func(step, error) bool) {
			wanted := true
			r.Progress = func(o sandbox.Output) { wanted = wanted && yield(step{output: o}, nil) }
			b, err := d.Core.Sandboxes().Create(ctx, r)
			if wanted {
				yield(step{made: &b}, err)
			}
		}
	}
	var s *sse.Stream
	var output *sse.Outputs
	open := func() (err error) {
		if s == nil {
			s, err = sse.New(x.w, http.StatusCreated)
			output = sse.NewOutputs(s)
		}
		return err
	}
	err := sse.Pump(ctx, d.Life.Done(), steps, sse.PingEvery, func(now step) error {
		if err := open(); err != nil {
			return err
		}
		if now.made == nil {
			return output.Add(now.output)
		}
		if err := output.Flush(); err != nil {
			return err
		}
		return s.Send(sse.NoID, "sandbox", sandboxJSON(*now.made))
	}, func() error {
		if err := open(); err != nil {
			return err
		}
		return s.Ping()
	})
	if errors.Is(err, sse.ErrDraining) {
		err = errs.E(errs.Unavailable, "the daemon stops; the create was undone").Hint("try again")
	}
	switch {
	case err == nil || ctx.Err() != nil:
	case s == nil:
		d.Error(x.w, x.r, err)
	default:
		d.failStream(ctx, s, err)
	}
}
