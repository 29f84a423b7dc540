package agent

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// The first and the longest pause between attempts at a store that does not work.
const (
	firstPause   = 50 * time.Millisecond
	longestPause = 5 * time.Second
)

// newPauses are the pauses between attempts, each twice as long as the one before.
func newPauses() *backoff.ExponentialBackOff {
	return &backoff.ExponentialBackOff{InitialInterval: firstPause, Multiplier: 2, MaxInterval: longestPause}
}

// passing reports whether an error says that the same call works later: the
// database is away and may come back. What says so of itself has a time to try
// again; a missing model, or a database that another daemon took, has none.
func passing(err error) bool {
	if err == nil {
		return false
	}
	info := errs.Public(err)
	return info.Kind == errs.Unready && info.RetryAfter > 0
}

// patiently does something of a run that needs the store. While the database is
// away it tries again, until ctx ends or the service does: a run outlives that. The
// error is the last one.
func (s *Service) patiently(ctx context.Context, e *execution, what string, do func() error) error {
	pauses := newPauses()
	for {
		err := do()
		if !passing(err) {
			return err
		}
		s.cfg.Log.Warn("a run waits for the database", "for", what, telemetry.KeyUID, e.thread.UID, "run", e.run.ID, telemetry.KeyErr, err)
		select {
		case <-time.After(pauses.NextBackOff()):
		case <-s.ended:
			return err
		case <-ctx.Done():
			return err
		}
	}
}

// insist does what is owed to the rows of a run until it is done, or there is nothing
// to do it to. It is false when the service ends before.
func (s *Service) insist(e *execution, what string, do func() error) bool {
	for pauses := newPauses(); ; {
		err := do()
		if err == nil || errors.Is(err, errs.NotFound) {
			return true
		}
		s.cfg.Log.Error(what, telemetry.KeyUID, e.thread.UID, "run", e.run.ID, telemetry.KeyErr, err)
		if errors.Is(err, errs.WrongState) {
			return true // it has an end
		}
		select {
		case <-s.ended:
			return false
		case <-time.After(pauses.NextBackOff()):
		}
	}
}

// untilDone does something that the service begins with until it works. It is false
// when ctx ends before. Those who wait in [Service.enter] meanwhile are refused.
func (s *Service) untilDone(ctx context.Context, what string, do func(context.Context) error) bool {
	for pauses := newPauses(); ; {
		err := do(ctx)
		if err == nil {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		s.delay()
		s.cfg.Log.Error(what+"; it is tried again", telemetry.KeyErr, err)
		select {
		case <-ctx.Done():
			return false
		case <-time.After(pauses.NextBackOff()):
		}
	}
}

// opening says whether runs may begin yet.
type opening struct {
	opened  chan struct{} // closed when what an earlier daemon left is taken up
	delayed chan struct{} // closed when that did not work at first
	once    sync.Once     // of delayed
}

func newOpening() *opening {
	return &opening{opened: make(chan struct{}), delayed: make(chan struct{})}
}

func (o *opening) open() { close(o.opened) }

func (o *opening) delay() { o.once.Do(func() { close(o.delayed) }) }

func (o *opening) isOpen() bool {
	select {
	case <-o.opened:
		return true
	default:
		return false
	}
}

// enter waits until runs may begin. It is Unready, and waits no longer, when what an
// earlier daemon left cannot be taken up for now.
func (s *Service) enter(ctx context.Context) error {
	select {
	case <-s.opened:
	case <-s.delayed:
	case <-s.ended:
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := s.stopping(); err != nil || s.isOpen() {
		return err
	}
	return errs.E(errs.Unready, "the runs that an earlier daemon left could not be taken up yet").
		Hint("the daemon tries again by itself; its log says what it lacks").RetryAfter(time.Second)
}
