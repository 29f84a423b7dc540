package wire

import (
	"context"
	"errors"
	"io"
	"time"
)

var errSilent = errors.New("silent for too long")

// watch ends a request that is silent for too long.
type watch struct {
	idle   time.Duration
	timer  *time.Timer
	cancel context.CancelCauseFunc
	ctx    context.Context
}

func newWatch(ctx context.Context, idle time.Duration) (context.Context, *watch) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &watch{idle: idle, cancel: cancel, ctx: ctx}
	w.timer = time.AfterFunc(idle, func() { cancel(errSilent) })
	return ctx, w
}

func (w *watch) stop() {
	w.timer.Stop()
	w.cancel(context.Canceled)
}

// set is how much longer it may be silent.
func (w *watch) set(d time.Duration) { w.timer.Reset(d) }

// cause returns why a request failed: err, unless that is the watch's doing.
func (w *watch) cause(err error) error {
	if cause := context.Cause(w.ctx); cause != nil && errors.Is(cause, errSilent) {
		return errSilent
	}
	return err
}

func (w *watch) reader(body io.Reader) io.Reader { return watched{body, w} }

type watched struct {
	body io.Reader
	w    *watch
}

func (r watched) Read(p []byte) (int, error) {
	// What its consumer does in between is not the provider's silence.
	r.w.set(r.w.idle)
	defer r.w.timer.Stop()
	return r.body.Read(p)
}
