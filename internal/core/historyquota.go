package core

import (
	"context"
	"errors"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

const (
	historyEvery = 30 * time.Second
	// historyGrace is how long what has ended is kept in any case: whoever ran
	// a command reads its output first.
	historyGrace = time.Minute
)

// historyQuotaLoop keeps the history of every tenant below its bound. Between
// two turns a tenant may be over it, by what it can write in that time.
func (s *Service) historyQuotaLoop(ctx context.Context) {
	if s.cfg.HistoryOfTenant <= 0 {
		return
	}
	tenants := make(map[sandbox.UID]string)
	t := time.NewTicker(historyEvery)
	defer t.Stop()
	for {
		if err := s.boundHistory(ctx, tenants); err != nil && ctx.Err() == nil {
			s.log.Error("bound the history of tenants", telemetry.KeyErr, err)
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// boundHistory evicts the oldest history of the tenants that have more than
// they may, in the database and in journals. tenants remembers whose journals
// are whose: a sandbox keeps its tenant.
func (s *Service) boundHistory(ctx context.Context, tenants map[sandbox.UID]string) error {
	rows, err := s.cfg.Store.HistoryBytes(ctx)
	if err != nil {
		return err
	}
	// What cannot be read does not count, and does not free the rest of its
	// bound.
	output, err := s.outputBytes(ctx, tenants)
	for tenant := range output {
		rows[tenant] += 0 // also of one that has nothing else
	}
	for tenant := range rows {
		if rows[tenant]+output[tenant] > s.cfg.HistoryOfTenant {
			freed, removeErr := s.removeUnlisted(ctx, tenant, tenants)
			output[tenant] -= freed
			err = errors.Join(err, removeErr)
		}
		if rows[tenant]+output[tenant] > s.cfg.HistoryOfTenant {
			err = errors.Join(err, s.evictHistory(ctx, tenant, rows[tenant], output[tenant]))
		}
	}
	return err
}

// outputBytes returns what the journals of each tenant's sandboxes take, of
// those that it could read when there is an error.
func (s *Service) outputBytes(ctx context.Context, tenants map[sandbox.UID]string) (bytes map[string]int64, err error) {
	boxes, err := s.cfg.Journals.Boxes()
	if err != nil {
		return nil, err
	}
	bytes = make(map[string]int64)
	there := make(map[sandbox.UID]bool, len(boxes))
	for _, uid := range boxes {
		there[uid] = true
		usage, failed := s.cfg.Journals.Usage(uid)
		if failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		tenant, known := tenants[uid]
		if !known {
			b, failed := s.cfg.Store.SandboxByUID(ctx, uid)
			if errors.Is(failed, errs.NotFound) {
				continue // an orphan, which a reconciliation removes
			}
			if failed != nil {
				err = errors.Join(err, failed)
				continue
			}
			tenant = b.Tenant
			tenants[uid] = tenant
		}
		bytes[tenant] += usage
	}
	for uid := range tenants {
		if !there[uid] {
			delete(tenants, uid)
		}
	}
	return bytes, err
}

// removeUnlisted removes the logs of a tenant's sandboxes whose commands are no
// more in the history: those that could not be removed with them.
func (s *Service) removeUnlisted(ctx context.Context, tenant string, tenants map[sandbox.UID]string) (freed int64, err error) {
	for uid, of := range tenants {
		if of != tenant {
			continue
		}
		// In this order: a command is in the store before it has a log.
		logs, failed := s.cfg.Journals.Closed(uid)
		if failed != nil || len(logs) == 0 {
			err = errors.Join(err, failed)
			continue
		}
		listed, failed := s.cfg.Store.ExecSeqs(ctx, uid)
		if failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		for _, seq := range logs {
			if !listed[seq] {
				n, failed := s.cfg.Journals.RemoveLog(uid, seq)
				freed += n
				err = errors.Join(err, failed)
			}
		}
	}
	return freed, err
}

// evictHistory brings a tenant a little below its bound, so that it does not
// have to do so at every turn.
func (s *Service) evictHistory(ctx context.Context, tenant string, rows, output int64) error {
	bound := s.cfg.HistoryOfTenant - s.cfg.HistoryOfTenant/16
	before := s.now().Add(-historyGrace)
	commands := 0
	var err error
	for rows+output > bound {
		gone, evictErr := s.cfg.Store.EvictHistory(ctx, tenant, before)
		if evictErr != nil || gone.None() {
			err = errors.Join(err, evictErr)
			break
		}
		rows = gone.Bytes
		commands += len(gone.Execs)
		// A log that stays all the same goes at the next turn.
		for _, x := range gone.Execs {
			freed, removeErr := s.cfg.Journals.RemoveLog(x.Box, x.Seq)
			output -= freed
			err = errors.Join(err, removeErr)
		}
		for _, uid := range gone.Boxes {
			freed, removeErr := s.cfg.Journals.Usage(uid)
			if removeErr == nil {
				removeErr = s.cfg.Journals.Remove(uid)
			}
			output -= freed
			err = errors.Join(err, removeErr)
		}
	}
	if commands > 0 {
		s.log.Warn("a tenant has all the history that it may have: its oldest commands were removed",
			"tenant", tenant, "commands", commands, telemetry.KeyBytes, rows+output)
	}
	return err
}
