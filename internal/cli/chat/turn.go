package chat

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cubbyhq/cubby/client/agent"
)

// errCancelled: the turn was ended by the user. errOpen: the user has left a question of
// the agent open. errWaits: the agent asks, and nobody can answer.
var (
	errCancelled = errors.New("cancelled")
	errOpen      = errors.New("the question stays open")
	errWaits     = errors.New("the agent waits for leave to use a tool")
)

// view shows what a run tells.
type view interface {
	event(e agent.Event) error
	tick() error                    // some time has passed
	end() error                     // the run tells nothing more
	say(format string, args ...any) // a line for people
}

// redrawn is how often what runs is shown anew.
const redrawn = 200 * time.Millisecond

// patience is how long a command waits for the daemon when it is leaving.
const patience = 5 * time.Second

// turn does what is asked, and asks back, until the agent has answered.
func (s *chat) turn(ctx context.Context, r agent.RunRequest) error {
	for {
		r.Model, r.SandboxID = s.model, s.sandbox
		waiting, err := s.stream(ctx, r)
		if err != nil {
			return explained(err)
		}
		if len(waiting) == 0 {
			return nil
		}
		if r, err = s.answers(ctx, waiting); err != nil {
			return err
		}
	}
}

// answers asks what a run waits with.
func (s *chat) answers(ctx context.Context, waiting []agent.Interrupt) (agent.RunRequest, error) {
	if s.decide == nil {
		return agent.RunRequest{}, errWaits
	}
	all := map[string]any{}
	for _, i := range waiting {
		answer, err := s.decide(ctx, i)
		if err != nil {
			return agent.RunRequest{}, err
		}
		if len(waiting) == 1 {
			return agent.RunRequest{Resume: answer}, nil
		}
		all[i.ID] = answer
	}
	return agent.RunRequest{Resume: all}, nil
}

// always answers every question alike.
func always(d agent.Decision) func(context.Context, agent.Interrupt) (any, error) {
	return func(_ context.Context, i agent.Interrupt) (any, error) {
		q, ok := i.Question()
		if !ok {
			return nil, errWaits
		}
		list := make([]agent.Decision, len(q.Actions))
		for k := range list {
			list[k] = d
		}
		return agent.Decisions(list...), nil
	}
}

type received struct {
	event agent.Event
	err   error
}

// running is a run that is followed.
type running struct {
	*chat

	id        string // "": not known yet
	waiting   []agent.Interrupt
	failed    error
	cancelled bool // the user wants it to end
	refused   chan error
}

// stream shows one run to its end. It returns the questions that the run waits with.
func (s *chat) stream(ctx context.Context, r agent.RunRequest) ([]agent.Interrupt, error) {
	following, leave := context.WithCancel(ctx)
	events := make(chan received, 64)
	go func() {
		defer close(events)
		for e, err := range s.agent.Stream(following, s.thread, r) {
			select {
			case events <- received{e, err}:
			case <-following.Done():
				return
			}
		}
	}()
	defer func() {
		leave()
		for range events { //nolint:revive // until its goroutine has ended
		}
	}()
	run := &running{chat: s, refused: make(chan error, 1)}
	err := run.follow(ctx, events)
	if eerr := s.view.end(); err == nil {
		err = eerr
	}
	switch {
	case err != nil:
		return nil, err
	case run.cancelled:
		return nil, errCancelled
	case run.failed != nil:
		return nil, run.failed
	}
	return run.waiting, nil
}

// follow shows events to the last one.
func (r *running) follow(ctx context.Context, events <-chan received) error {
	clock := time.NewTicker(redrawn)
	defer clock.Stop()
	var keys <-chan []byte
	if r.keys != nil {
		if keys = r.keys.Pieces(); r.keys.Interrupted() {
			r.interrupt()
		}
	}
	for {
		select {
		case got, ok := <-events:
			switch {
			case !ok:
				return nil
			case got.err != nil && r.cancelled:
				return errCancelled
			case got.err != nil:
				return got.err
			}
			if err := r.take(ctx, got.event); err != nil {
				return err
			}
		case <-clock.C:
			if err := r.view.tick(); err != nil {
				return err
			}
		case piece, ok := <-keys:
			if !ok { // the terminal is gone
				keys = nil
				r.interrupt()
			} else if r.keys.Hold(piece) {
				r.interrupt()
			}
		case <-r.interrupts:
			if r.cancelled {
				return errors.Join(errCancelled, r.cancel(ctx))
			}
			r.cancelled = true
			r.view.say("cancelling; again to leave at once")
			if r.id != "" {
				r.cancelSoon(ctx)
			}
		case err := <-r.refused:
			r.view.say("%v", err)
		case <-ctx.Done():
			return errors.Join(ctx.Err(), r.cancel(ctx))
		}
	}
}

func (r *running) take(ctx context.Context, e agent.Event) error {
	switch {
	case e.Begun != nil:
		if r.id = e.Begun.RunID; r.cancelled {
			r.cancelSoon(ctx)
		}
	case e.Interrupts != nil:
		r.waiting = e.Interrupts
	case e.Error != nil:
		r.failed = e.Error
	case e.End != nil && r.failed == nil && (e.End.Status == agent.RunFailed || e.End.Status == agent.RunTimeout):
		r.failed = fmt.Errorf("the run ended with the status %s", e.End.Status)
	case e.End != nil && e.End.Status == agent.RunInterrupted && len(r.waiting) == 0:
		if !r.cancelled {
			r.view.say("the run was cancelled elsewhere")
		}
		r.cancelled = true
	}
	return r.view.event(e)
}

// cancelSoon asks the daemon to end the run. The stream says how that goes.
func (r *running) cancelSoon(ctx context.Context) {
	go func() {
		if err := r.cancel(ctx); err != nil {
			select {
			case r.refused <- err:
			default: // it was said already
			}
		}
	}()
}

// cancel ends the run at the daemon, also when ctx has ended.
func (r *running) cancel(ctx context.Context) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer stop()
	id := r.id
	if id == "" { // its beginning was not seen
		list, err := r.agent.Runs(ctx, r.thread, 1)
		if err != nil || len(list) == 0 || list[0].Status.Ended() {
			return nil //nolint:nilerr // there is nothing to cancel, or nobody who could
		}
		id = list[0].ID
	}
	if err := r.agent.Cancel(ctx, r.thread, id, false); err != nil {
		return fmt.Errorf("cancel the run: %w", err)
	}
	return nil
}
