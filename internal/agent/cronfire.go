package agent

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"time"

	"github.com/cubbyhq/cubby/internal/agent/schedule"
	"github.com/cubbyhq/cubby/internal/auth"
	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// A cron is claimed before its run is made: a daemon that dies in between leaves a run
// that never began, which the cron says, and not one that began twice.

// unbegun is the failure of a claim of which nothing more is known.
const unbegun = "the daemon ended before the run began"

// lookForCrons bounds how long the time of the next run is trusted: clocks change.
const lookForCrons = time.Minute

// wakeCrons is called when a run of a cron may begin earlier than before.
func (s *Service) wakeCrons() {
	select {
	case s.cronsChanged <- struct{}{}:
	default:
	}
}

// runCrons begins the runs of crons when their time has come, until the service ends. It
// asks the store when a run is due, and when crons have changed.
func (s *Service) runCrons(ctx context.Context) {
	failing := false
	for {
		next, err := s.FireCrons(ctx)
		if err != nil {
			if !failing {
				s.cfg.Log.Warn("begin the runs of crons", telemetry.KeyErr, err)
			}
			next = s.cfg.Now().Add(longestPause)
		}
		failing = err != nil
		if !s.restUntil(next) {
			return
		}
	}
}

// restUntil waits for a time, unless it is zero, or until crons have changed. It is false
// when the service has ended.
func (s *Service) restUntil(next time.Time) bool {
	var due <-chan time.Time
	if !next.IsZero() {
		timer := time.NewTimer(max(min(next.Sub(s.cfg.Now()), lookForCrons), 0))
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-s.ended:
		return false
	case <-s.cronsChanged:
	case <-due:
	}
	return true
}

// FireCrons begins the runs that are due. What was missed while no daemon ran, however
// often, begins once. It returns when the next run is due; zero: none is to come.
func (s *Service) FireCrons(ctx context.Context) (next time.Time, err error) {
	for s.stopping() == nil {
		begins := false
		c, err := s.cfg.Store.ClaimCron(ctx, func(c *conversation.Cron) {
			now := s.cfg.Now()
			begins = c.EndTime.IsZero() || !now.After(c.EndTime)
			if begins {
				c.LastAt, c.Failure = c.Next, unbegun
			}
			c.Next = time.Time{}
			if when, err := schedule.Parse(c.Schedule, c.Timezone); err == nil { // it was read before
				c.Next = when.Next(now)
			}
			if !c.EndTime.IsZero() && c.Next.After(c.EndTime) {
				c.Next = time.Time{}
			}
		})
		if errors.Is(err, errs.NotFound) {
			break
		}
		if err != nil {
			return next, err
		}
		if begins {
			s.fire(ctx, c)
		}
	}
	return s.cfg.Store.NextCron(ctx)
}

// fire begins a run of a cron that was claimed, and notes why when it cannot.
func (s *Service) fire(ctx context.Context, c conversation.Cron) {
	ctx = auth.WithPrincipal(ctx, auth.Principal{Name: c.Owner, Tenant: c.Tenant})
	run, thread, err := s.begin(ctx, c)
	if c.Failure = ""; err == nil {
		c.LastRun, c.LastThread = run.ID, thread.ID
	} else {
		info := errs.Public(err)
		c.Failure = info.Message + hint(info.Hint)
		s.cfg.Log.Warn("a run of a cron did not begin", "cron", c.ID, "tenant", c.Tenant, telemetry.KeyErr, err)
	}
	if err := s.cfg.Store.EndCronClaim(context.WithoutCancel(ctx), c); err != nil {
		s.cfg.Log.Warn("note what became of a cron", "cron", c.ID, "tenant", c.Tenant, telemetry.KeyErr, err)
	}
}

// begin makes a run of a cron, unless the one before has not ended: what takes longer than
// its cron's interval does not pile up.
func (s *Service) begin(ctx context.Context, c conversation.Cron) (conversation.Run, conversation.Thread, error) {
	var none conversation.Run
	if c.LastRun != "" {
		last, err := s.Runs().Get(ctx, c.LastThread, c.LastRun)
		if err != nil && !errors.Is(err, errs.NotFound) {
			return none, conversation.Thread{}, err
		}
		if err == nil && !last.Status.Ended() {
			return none, conversation.Thread{}, errs.E(errs.Conflict, "the run before, %s, has not ended", c.LastRun)
		}
	}
	n := NewRun{AssistantID: c.AssistantID, Request: c.Run.Request, Metadata: c.Run.Metadata, Multitask: c.Run.Multitask, Keep: c.Keep}
	n.Request.Configurable = maps.Clone(n.Request.Configurable)
	if n.Request.Configurable == nil {
		n.Request.Configurable = map[string]json.RawMessage{}
	}
	n.Request.Configurable["cron_id"] = conversation.Text(c.ID)
	return s.Runs().Create(ctx, c.ThreadID, n)
}
