package preview

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/cubbyhq/cubby/internal/core/preview"
	"github.com/cubbyhq/cubby/internal/errs"
)

const (
	// pageAfter is when a person who waits for a sandbox gets a page.
	pageAfter = 100 * time.Millisecond
	// maxHold is how long a request waits for one.
	maxHold = 30 * time.Second
)

// errWaking is what a person gets who has to wait for a sandbox.
var errWaking = errs.E(errs.Unready, "the app is starting").RetryAfter(time.Second)

// enter waits until the sandbox runs. A person does not wait long: the sandbox
// comes up behind a page that looks again.
func (d *Door) enter(r *http.Request, a preview.Admission) (*preview.Visit, error) {
	if d.cfg.Core.Previews().Runs(a) {
		return d.cfg.Core.Previews().Enter(r.Context(), a)
	}
	// Who has gone may come back: the wake goes on.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), maxHold)
	stop := context.AfterFunc(d.cfg.Life, cancel)
	type entered struct {
		visit *preview.Visit
		err   error
	}
	result := make(chan entered, 1)
	d.visits.Go(func() {
		defer cancel()
		defer stop()
		v, err := d.cfg.Core.Previews().Enter(ctx, a)
		result <- entered{v, err}
	})
	var soon <-chan time.Time
	if isPage(r) {
		t := time.NewTimer(pageAfter)
		defer t.Stop()
		soon = t.C
	}
	abandoned := func(err error) (*preview.Visit, error) {
		d.visits.Go(func() {
			if e := <-result; e.err == nil {
				e.visit.Done()
			}
			d.waits.CompareAndDelete(a.Box.UID, &cancel)
		})
		return nil, err
	}
	select {
	case e := <-result:
		if errors.Is(e.err, context.DeadlineExceeded) {
			return nil, errs.E(errs.Timeout, "the app did not start in time").RetryAfter(time.Second).Because(e.err)
		}
		return e.visit, e.err
	case <-soon:
		// The page reloads each second. Only its last request keeps waiting for the wake.
		if before, ok := d.waits.Swap(a.Box.UID, &cancel); ok {
			(*before.(*context.CancelFunc))()
		}
		return abandoned(errWaking)
	case <-r.Context().Done():
		return abandoned(context.Cause(r.Context()))
	}
}

// unanswered is why an app did not answer.
func unanswered(ctx context.Context, err error) error {
	var classified *errs.Error
	switch {
	case ctx.Err() != nil:
		return errs.E(errs.Canceled, "the visitor went away").Because(err)
	case errors.As(err, &classified):
		return err
	}
	return errs.E(errs.Unavailable, "the app does not answer as HTTP does").Because(err)
}
