package agent

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// takeUp goes on with the runs that an earlier daemon left.
func (s *Service) takeUp(ctx context.Context) error {
	runs, err := s.cfg.Store.UnfinishedRuns(ctx)
	if err != nil {
		return err
	}
	for _, run := range runs {
		t, err := s.cfg.Store.ConversationOf(ctx, run.Thread)
		if err != nil {
			return err
		}
		if err := s.resume(ctx, t, run); err != nil {
			// One that cannot go on keeps nobody else from it.
			s.cfg.Log.Error("take up a run", telemetry.KeyUID, t.UID, "run", run.ID, telemetry.KeyErr, err)
		}
	}
	return s.clear(ctx)
}

// temporary marks, in its metadata, a thread that goes with its run.
const temporary = "temporary"

// clear removes the threads of runs that had none, which ended with an earlier daemon.
func (s *Service) clear(ctx context.Context) error {
	for offset := 0; ; {
		page, _, err := s.cfg.Store.Conversations(ctx, store.ConversationQuery{
			Metadata: map[string]json.RawMessage{temporary: json.RawMessage("true")}, Limit: 100, Offset: offset,
		})
		if err != nil || len(page) == 0 {
			return err
		}
		for _, t := range page {
			if s.busy(t.UID) {
				offset++
			} else if err := s.Threads().remove(as(ctx, t), t); err != nil && !errors.Is(err, errs.NotFound) {
				return err
			}
		}
	}
}

// resume goes on with one run. One whose journal has its end only lacks the row's.
func (s *Service) resume(ctx context.Context, t conversation.Thread, run conversation.Run) error {
	leave, err := s.places.Enter(t.Tenant)
	if err != nil {
		leave = func() {} // it had its place before
	}
	log, err := s.cfg.Journals.Create(t.UID, run.Seq)
	if err != nil {
		leave()
		return err
	}
	e := &execution{run: run, thread: t, log: log}
	for rec, err := range s.records(ctx, t.UID, run.Seq, 0, false) {
		if err != nil {
			leave()
			return err
		}
		if rec.Event.Ended != nil {
			leave()
			return s.finish(ctx, e, *rec.Event.Ended)
		}
	}
	if log.Exit() != nil {
		leave()
		return s.finish(ctx, e, conversation.Ended{
			Status: conversation.RunFailed, Error: "InternalServerError", Message: "the daemon ended while the run did, and how is not known",
		})
	}
	return s.admit(&waiting{run: run, thread: t, leave: leave, log: log, again: run.Status == conversation.RunRunning})
}

// sweepEvery is how often old threads are looked for.
const sweepEvery = 10 * time.Minute

// sweepUntil forgets what is too old, until ctx ends.
func (s *Service) sweepUntil(ctx context.Context) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		if err := s.Sweep(ctx); err != nil && ctx.Err() == nil {
			s.cfg.Log.Warn("forget old threads", telemetry.KeyErr, err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Sweep removes threads that are too old or too many, those whose run was all that
// they were for, and journals that are too old.
func (s *Service) Sweep(ctx context.Context) error {
	now := s.cfg.Now()
	var failed error
	if h := s.cfg.Bounds.History; h > 0 {
		failed = s.cfg.Journals.Prune(now.Add(-h))
	}
	if s.cfg.Bounds.Age <= 0 && s.cfg.Bounds.Threads <= 0 {
		return failed
	}
	var before time.Time
	if s.cfg.Bounds.Age > 0 {
		before = now.Add(-s.cfg.Bounds.Age)
	}
	for after := sandbox.UID(""); ; {
		page, err := s.cfg.Store.StaleConversations(ctx, before, s.cfg.Bounds.Threads, after, 100)
		if err != nil || len(page) == 0 {
			return errors.Join(failed, err)
		}
		for _, t := range page {
			after = t.UID
			if err := s.Threads().remove(as(ctx, t), t); err != nil && !errors.Is(err, errs.NotFound) {
				failed = errors.Join(failed, err)
			}
		}
	}
}
