package agent

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/cubbyhq/cubby/internal/agent/schedule"
	"github.com/cubbyhq/cubby/internal/auth"
	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/store"
)

// Crons is runs that begin by the clock.
type Crons struct{ s *Service }

// Crons returns the handle.
func (s *Service) Crons() *Crons { return &Crons{s} }

// NewCron is what a cron is made from.
type NewCron struct {
	// Thread has all its runs; "": each has one of its own, which stays when Keep of Run
	// says so.
	Thread             string
	Schedule, Timezone string
	EndTime            time.Time // zero: never
	Disabled           bool
	Run                NewRun
}

// maxCronRun bounds what a run of a cron is to do, as JSON.
const maxCronRun = 256 << 10

// Create makes a cron. Its runs are checked as those that begin at once.
func (c *Crons) Create(ctx context.Context, n NewCron) (conversation.Cron, error) {
	var none conversation.Cron
	s := c.s
	if err := s.enter(ctx); err != nil {
		return none, err
	}
	made := conversation.Cron{
		ID: uuid.NewString(), Tenant: owner(ctx), Owner: auth.From(ctx).Name, Schedule: n.Schedule, Timezone: n.Timezone, EndTime: n.EndTime, Enabled: !n.Disabled,
	}
	if n.Thread != "" {
		t, err := s.Threads().find(ctx, n.Thread)
		if err != nil {
			return none, err
		}
		made.Thread, made.ThreadID = t.UID, t.ID
	}
	if err := c.set(ctx, &made, n.Run); err != nil {
		return none, err
	}
	if err := c.plan(&made); err != nil {
		return none, err
	}
	if err := s.cfg.Store.CreateCron(ctx, made, s.cfg.Bounds.Crons); err != nil {
		return none, err
	}
	s.wakeCrons()
	return s.cfg.Store.Cron(ctx, made.Tenant, made.ID)
}

// set checks what the runs of a cron are to do, and gives it that.
func (c *Crons) set(ctx context.Context, cron *conversation.Cron, n NewRun) error {
	if cron.Thread != "" && n.Multitask == "" {
		n.Multitask = conversation.MultitaskEnqueue
	}
	if n.Request.Command != nil {
		return errs.E(errs.Invalid, "command: a cron begins its runs with an input")
	}
	if _, has := n.Request.Configurable[keyField]; has {
		return errs.E(errs.Invalid, "%s cannot be kept in a cron", keyField).Hint("set the key with cubby settings")
	}
	if raw := n.Request.Context; conversation.Given(raw) {
		if err := checkConfig(raw); err != nil {
			return err
		}
	}
	_, as, err := c.s.Runs().prepare(ctx, cron.ThreadID, n)
	if err != nil {
		return err
	}
	cron.AssistantID, cron.Keep, cron.Metadata = as.ID, n.Keep, n.Metadata
	cron.Run = conversation.CronRun{Request: n.Request, Metadata: n.Metadata, Multitask: n.Multitask}
	text, err := json.Marshal(cron.Run)
	if err == nil && len(text) > maxCronRun {
		err = errs.E(errs.Invalid, "what a run is to do has %d bytes, at most %d are possible in a cron", len(text), maxCronRun)
	}
	return err
}

// plan says when the next run of a cron is to begin.
func (c *Crons) plan(cron *conversation.Cron) error {
	when, err := schedule.Parse(cron.Schedule, cron.Timezone)
	if err != nil {
		return err
	}
	if cron.Next = when.Next(c.s.cfg.Now()); !cron.EndTime.IsZero() && cron.Next.After(cron.EndTime) {
		cron.Next = time.Time{}
	}
	return nil
}

// CronPatch is what is to change; nil stays.
type CronPatch struct {
	Schedule, Timezone *string
	EndTime            *time.Time // zero: never
	Enabled, Keep      *bool
	// Run is what the runs are to do, made from what they were to do; nil: the same.
	Run func(conversation.Cron) (NewRun, error)
}

// Update changes a cron. When the next run begins is reckoned from now.
func (c *Crons) Update(ctx context.Context, id string, p CronPatch) (conversation.Cron, error) {
	was, err := c.Get(ctx, id)
	if err != nil {
		return was, err
	}
	set := was
	if p.Run != nil {
		run, err := p.Run(was)
		if err != nil {
			return was, err
		}
		if err := c.set(ctx, &set, run); err != nil {
			return was, err
		}
	}
	changed, err := c.s.cfg.Store.ChangeCron(ctx, was.Tenant, was.ID, func(cron *conversation.Cron) error {
		if p.Run != nil {
			cron.Run, cron.Metadata, cron.Keep = set.Run, set.Metadata, set.Keep
		}
		for _, f := range []struct{ to, from *string }{{&cron.Schedule, p.Schedule}, {&cron.Timezone, p.Timezone}} {
			if f.from != nil {
				*f.to = *f.from
			}
		}
		if p.EndTime != nil {
			cron.EndTime = *p.EndTime
		}
		if p.Enabled != nil {
			cron.Enabled = *p.Enabled
		}
		if p.Keep != nil {
			cron.Keep = *p.Keep
		}
		return c.plan(cron)
	})
	if err != nil {
		return was, noCron(id, err)
	}
	c.s.wakeCrons()
	return changed, nil
}

// Get returns a cron of the caller.
func (c *Crons) Get(ctx context.Context, id string) (conversation.Cron, error) {
	found, err := c.s.cfg.Store.Cron(ctx, owner(ctx), id)
	return found, noCron(id, err)
}

// Delete forgets a cron. A run of it that goes on stays.
func (c *Crons) Delete(ctx context.Context, id string) error {
	return noCron(id, c.s.cfg.Store.RemoveCron(ctx, owner(ctx), id))
}

// CronQuery is a search; what is empty does not matter.
type CronQuery struct {
	Assistant, Thread string
	Enabled           *bool
	Metadata          map[string]json.RawMessage
	SortBy            string
	Descending        bool
	Limit, Offset     int
}

// Search returns a page of the caller's crons.
func (c *Crons) Search(ctx context.Context, q CronQuery) (List[conversation.Cron], error) {
	var none List[conversation.Cron]
	if q.Assistant != "" {
		as, err := c.s.Assistants().Get(ctx, q.Assistant)
		if errors.Is(err, errs.NotFound) {
			none.All = func(func(Item[conversation.Cron], error) bool) {}
			return none, nil
		}
		if err != nil {
			return none, err
		}
		q.Assistant = as.ID
	}
	ids, total, err := c.s.cfg.Store.CronIDs(ctx, store.CronQuery{
		Tenant: owner(ctx), AssistantID: q.Assistant, ThreadID: q.Thread, Enabled: q.Enabled, Metadata: q.Metadata,
		SortBy: q.SortBy, Descending: q.Descending, Limit: q.Limit, Offset: q.Offset,
	})
	keys := make([]store.Key, len(ids))
	for i, id := range ids {
		keys[i] = store.Key{ID: id, Bytes: 2 * maxCronRun} // the metadata is in it twice
	}
	return List[conversation.Cron]{total, len(keys), each(ctx, c.s, keys, func(key store.Key) (conversation.Cron, error) {
		return c.s.cfg.Store.Cron(ctx, owner(ctx), key.ID)
	})}, err
}

func noCron(id string, err error) error {
	if errors.Is(err, errs.NotFound) {
		return errs.E(errs.NotFound, "Cron with ID %.80s not found", id)
	}
	return err
}
