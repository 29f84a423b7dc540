package rest

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

// launch is a command or a cell that a request starts, and how its caller wants
// to hear of it.
type launch struct {
	stream  bool
	wait    *bool    // nil: true
	seconds *float64 // nil: the default

	below  string // where it is afterwards: "execs" or "code"
	ended  endOf
	start  func() (sandbox.Exec, error)
	run    func(ctx context.Context, wait time.Duration) (sandbox.Exec, error)
	answer func(status int) // writes what start or run returned last
}

// locate says where what a request started is found.
func (e *exchange) locate(id, below string, seq int64) {
	e.w.Header().Set("Location", "/v1/sandboxes/"+id+"/"+below+"/"+strconv.FormatInt(seq, 10))
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
		to.locate(id, l.below, x.Seq)
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
		to.locate(id, l.below, x.Seq)
	}
	return stream(func() { l.answer(status) }), nil
}
