package agent

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

const (
	// boundEvery is how often tenants are looked at who have more than they may.
	boundEvery = 30 * time.Second
	// trimGrace is how long a thread keeps its history in any case: whoever ran
	// something in it looks at that first.
	trimGrace = time.Minute
)

// mayKeep is the error of a caller whose tenant has all that may be kept of it, or of a
// host whose disk is full. It is asked before anything is made that stays.
func (s *Service) mayKeep(ctx context.Context) error {
	if s.cfg.Admit != nil {
		if err := s.cfg.Admit(); err != nil {
			return err
		}
	}
	most := s.cfg.Bounds.Bytes
	if most <= 0 {
		return nil
	}
	tenant := owner(ctx)
	kept, err := s.kept(ctx, tenant)
	if err != nil || kept < most {
		return err
	}
	if kept, err = s.trim(ctx, tenant, kept); err != nil || kept < most {
		return err
	}
	return errs.E(errs.OverQuota, "the threads and assistants of this tenant have %d MiB, and %d MiB may be kept", kept>>20, most>>20).
		Hint("delete threads that are not needed any more; an operator can set a larger max-history-per-tenant")
}

// kept is what a tenant has: rows, and what its runs told.
func (s *Service) kept(ctx context.Context, tenant string) (bytes int64, err error) {
	uses, err := s.cfg.Store.ConversationUses(ctx, &tenant)
	if err != nil {
		return 0, err
	}
	if bytes, err = s.cfg.Store.AssistantBytes(ctx, tenant); err != nil {
		return 0, err
	}
	for _, u := range uses {
		bytes += u.Bytes + s.told(u.Thread)
	}
	return bytes, nil
}

// told is what the journals of a thread take. What cannot be read does not count: it
// keeps nobody from working.
func (s *Service) told(thread sandbox.UID) int64 {
	n, err := s.cfg.Journals.Usage(thread)
	if err != nil {
		s.cfg.Log.Warn("look at the journals of a thread", telemetry.KeyUID, thread, telemetry.KeyErr, err)
	}
	return n
}

// boundUntil keeps every tenant below the bound, until ctx ends.
func (s *Service) boundUntil(ctx context.Context) {
	if s.cfg.Bounds.Bytes <= 0 {
		return
	}
	tick := time.NewTicker(boundEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := s.Bound(ctx); err != nil && ctx.Err() == nil {
			s.cfg.Log.Warn("bound what is kept of threads", telemetry.KeyErr, err)
		}
	}
}

// Bound forgets how threads became what they are, the longest unused first, where a
// tenant has more than may be kept of it. It is done all the time while the service
// runs.
func (s *Service) Bound(ctx context.Context) (failed error) {
	uses, err := s.cfg.Store.ConversationUses(ctx, nil)
	if err != nil {
		return err
	}
	kept := map[string]int64{}
	for _, u := range uses {
		kept[u.Tenant] += u.Bytes + s.told(u.Thread)
	}
	for _, tenant := range slices.Sorted(maps.Keys(kept)) {
		more, err := s.cfg.Store.AssistantBytes(ctx, tenant)
		if kept := kept[tenant] + more; err == nil && kept >= s.cfg.Bounds.Bytes {
			_, err = s.trim(ctx, tenant, kept)
		}
		failed = errors.Join(failed, err)
	}
	return failed
}

// trim brings a tenant a little below its bound, if it can, so that it does not have to
// do so for every run, and returns what is kept then.
func (s *Service) trim(ctx context.Context, tenant string, kept int64) (int64, error) {
	unlock, err := s.trims.Lock(ctx, tenant)
	if err != nil {
		return kept, err
	}
	defer unlock()
	enough := s.cfg.Bounds.Bytes - s.cfg.Bounds.Bytes/16
	threads, err := s.cfg.Store.RestingConversations(ctx, tenant, s.cfg.Now().Add(-trimGrace))
	if err != nil || len(threads) == 0 {
		return kept, err
	}
	trimmed := 0
	for _, uid := range threads {
		if kept < enough {
			break
		}
		freed, err := s.trimOne(ctx, uid)
		switch {
		case errs.KindOf(err) == errs.WrongState, errors.Is(err, errs.NotFound):
			continue // it is used again, or gone
		case err != nil:
			return kept, err
		}
		if kept -= freed; freed > 0 {
			trimmed++
		}
	}
	if trimmed == 0 {
		return kept, nil
	}
	s.cfg.Log.Warn("a tenant has all that may be kept of its threads: the history of the longest unused ones was removed",
		"tenant", tenant, "threads", trimmed, telemetry.KeyBytes, kept)
	return kept, nil
}

// trimOne forgets the history of a thread in which nothing goes on, and returns how many
// bytes that was.
func (s *Service) trimOne(ctx context.Context, uid sandbox.UID) (freed int64, err error) {
	// Nobody begins a run meanwhile.
	unlock, err := s.threads.Lock(ctx, string(uid))
	if err != nil {
		return 0, err
	}
	defer unlock()
	if s.busy(uid) {
		return 0, errs.E(errs.WrongState, "the thread is busy")
	}
	if freed, err = s.cfg.Store.TrimConversation(ctx, uid); err != nil {
		return 0, err
	}
	freed += s.told(uid)
	return freed, s.cfg.Journals.Remove(uid)
}
