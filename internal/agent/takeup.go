package agent

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"time"

	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// leftRun is a run that an earlier daemon left.
type leftRun struct {
	run    conversation.Run
	thread conversation.Thread
}

// takeUp goes on with the runs that an earlier daemon left. It is false when ctx ended
// before.
func (s *Service) takeUp(ctx context.Context) bool {
	var left []leftRun
	// All of it is read before the first goes on: a second attempt finds what the first did.
	if !s.untilDone(ctx, "read the runs that an earlier daemon left", func(ctx context.Context) (err error) {
		left, err = s.unfinished(ctx)
		return err
	}) {
		return false
	}
	for _, l := range left {
		s.resume(context.WithoutCancel(ctx), l.thread, l.run)
	}
	return s.untilDone(ctx, "remove the threads of runs that an earlier daemon left", s.clear)
}

func (s *Service) unfinished(ctx context.Context) (left []leftRun, err error) {
	runs, err := s.cfg.Store.UnfinishedRuns(ctx)
	if err != nil {
		return nil, err
	}
	for _, run := range runs {
		t, err := s.cfg.Store.ConversationOf(ctx, run.Thread)
		if errors.Is(err, errs.NotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		left = append(left, leftRun{run, t})
	}
	return left, nil
}

// temporary marks, in its metadata, a thread that goes with its run. Clients cannot set
// it: what they call temporary is theirs.
const temporary = "cubby.temporary_thread"

// unmarked is metadata of a client without cubby's mark.
func unmarked(metadata map[string]json.RawMessage) map[string]json.RawMessage {
	if _, has := metadata[temporary]; !has {
		return metadata
	}
	metadata = maps.Clone(metadata)
	delete(metadata, temporary)
	return metadata
}

// clear removes the threads of runs that had none, which ended with an earlier daemon.
func (s *Service) clear(ctx context.Context) error {
	for offset := 0; ; {
		page, _, err := s.cfg.Store.Conversations(ctx, store.ConversationQuery{
			Metadata: map[string]json.RawMessage{temporary: json.RawMessage("true")}, Limit: 100, Offset: offset,
		})
		if err != nil || len(page) == 0 {
			return err
		}
		for _, key := range page {
			t, err := s.cfg.Store.ConversationOf(ctx, key.UID)
			if errors.Is(err, errs.NotFound) {
				continue
			}
			if err != nil {
				return err
			}
			if s.busy(t.UID) {
				offset++
				continue
			}
			err = s.Threads().remove(as(ctx, t), t, nil)
			if passing(err) {
				return err
			}
			if err != nil && !errors.Is(err, errs.NotFound) {
				s.cfg.Log.Warn("remove the thread of a run", telemetry.KeyUID, t.UID, telemetry.KeyErr, err)
				offset++ // it keeps nobody from the others
			}
		}
	}
}

// resume goes on with one run. One whose journal has its end, or cannot be gone on
// with, only lacks the row's.
func (s *Service) resume(ctx context.Context, t conversation.Thread, run conversation.Run) {
	leave, err := s.places.Enter(t.Tenant)
	if err != nil {
		leave = func() {} // it had its place before
	}
	w := &waiting{run: run, thread: t, leave: leave, again: run.Status == conversation.RunRunning, followers: awaitedOf(run)}
	log, err := s.cfg.Journals.Create(t.UID, run.Seq)
	if err != nil {
		s.cfg.Log.Error("open the journal of a run", telemetry.KeyUID, t.UID, "run", run.ID, telemetry.KeyErr, err)
		ended := failedBy(err)
		w.verdict = &ended
		s.admit(w)
		return
	}
	// What an earlier daemon wrote last may be the beginning of a line.
	w.rec = &recorder{s: s, run: run, thread: t, log: log, torn: log.Size() > 0}
	for rec, err := range s.records(ctx, t.UID, run.Seq, 0, false) {
		if err != nil {
			s.cfg.Log.Error("read the journal of a run", telemetry.KeyUID, t.UID, "run", run.ID, telemetry.KeyErr, err)
			ended := failedBy(err)
			w.verdict = &ended
			break
		}
		if rec.Event.Ended != nil {
			w.verdict, w.rec.ended = rec.Event.Ended, true
		}
	}
	if w.verdict == nil && log.Exit() != nil {
		w.verdict = &conversation.Ended{
			Status: conversation.RunFailed, Error: "InternalServerError", Message: "the daemon ended while the run did, and how is not known",
		}
	}
	s.admit(w)
}

// sweepEvery is how often old threads are looked for.
const sweepEvery = 10 * time.Minute

// sweepUntil forgets what is too old, until ctx ends. A sweep that fails is tried
// again soon.
func (s *Service) sweepUntil(ctx context.Context) {
	pauses := newPauses()
	for {
		pause := sweepEvery
		if err := s.Sweep(ctx); err == nil {
			pauses.Reset()
		} else if ctx.Err() == nil {
			s.cfg.Log.Warn("forget old threads", telemetry.KeyErr, err)
			if passing(err) {
				pause = pauses.NextBackOff()
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// sweepItems are removed at a time, so that nobody waits long to write.
const sweepItems = 500

// Sweep removes threads that are too old or too many, those whose run was all that
// they were for, journals that are too old, and items that have expired.
func (s *Service) Sweep(ctx context.Context) error {
	now := s.cfg.Now()
	var failed error
	if h := s.cfg.Bounds.History; h > 0 {
		failed = s.cfg.Journals.Prune(now.Add(-h))
	}
	for n := sweepItems; n == sweepItems && ctx.Err() == nil; {
		var err error
		if n, err = s.cfg.Store.ForgetExpiredItems(ctx, sweepItems); err != nil {
			failed = errors.Join(failed, err)
			break
		}
	}
	if s.cfg.Bounds.Age <= 0 && s.cfg.Bounds.Threads <= 0 {
		return failed
	}
	newest := s.cfg.Bounds.Threads
	if newest <= 0 {
		newest = -1 // all of them
	}
	var before time.Time
	if s.cfg.Bounds.Age > 0 {
		before = now.Add(-s.cfg.Bounds.Age)
	}
	for after := sandbox.UID(""); ; {
		page, err := s.cfg.Store.StaleConversations(ctx, before, newest, after, 100)
		if err != nil || len(page) == 0 {
			return errors.Join(failed, err)
		}
		for _, t := range page {
			after = t.UID
			// Not one that somebody has begun to use since.
			unused := func(now conversation.Thread) bool { return now.UpdatedAt.Equal(t.UpdatedAt) && !s.busy(t.UID) }
			if err := s.Threads().remove(as(ctx, t), t, unused); err != nil && !errors.Is(err, errs.NotFound) {
				failed = errors.Join(failed, err)
			}
		}
	}
}
