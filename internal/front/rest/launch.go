package rest

import (
	"context"
	"net/http"
	"time"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

// launch is a command or a cell that a request starts, and how its caller wants
// to hear of it.
type launch struct {
	stream  bool
	wait    *bool    // nil: true
	seconds *float64 // nil: the default

	path   func(id string, seq int64) string // where it is afterwards
	ended  endOf
	start  func() (sandbox.Exec, error)
	run    func(ctx context.Context, wait time.Duration) (sandbox.Exec, error)
	answer func(status int) // writes what start or run returned last
}

// launch starts what l has, and answers with a stream of its output, with its
// end, or that it goes on.
func (d *door) launch(ctx context.Context, to exchange, id string, l launch) (*streamed, error) {
	wait, err := waitTime(l.seconds)
	if err != nil {
		return nil, err
	}
	if l.stream || wantsEvents(to.r.Header.Get("Accept")) {
		x, err := l.start()
		if err != nil {
			return nil, err
		}
		to.w.Header().Set("Location", l.path(id, x.Seq))
		return stream(func() { d.followExec(ctx, to.w, id, x.Seq, 0, l.ended) }), nil
	}
	var x sandbox.Exec
	if l.wait == nil || *l.wait {
		waiting, done := d.UntilDrain(ctx)
		x, err = l.run(waiting, wait)
		done()
	} else {
		x, err = l.start()
	}
	// A daemon that stops says 202: the command goes on, and its number is
	// where the next daemon has it.
	if err != nil && (x.Seq == 0 || ctx.Err() != nil || !d.Drains()) {
		return nil, err
	}
	status := http.StatusOK
	if !x.Status.Finished() {
		status = http.StatusAccepted
		to.w.Header().Set("Location", l.path(id, x.Seq))
	}
	return stream(func() { l.answer(status) }), nil
}
