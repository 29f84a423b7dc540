package history

import (
	"context"
	"errors"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

const (
	boundEvery = 30 * time.Second
	// evictGrace is how long what has ended is kept in any case: whoever ran
	// a command reads its output first.
	evictGrace = time.Minute
)

// BoundLoop keeps the history of every tenant below its bound, until ctx
// ends. Between two turns a tenant may be over it, by what it can write in that
// time.
func (r *Retention) BoundLoop(ctx context.Context) {
	if r.Bytes <= 0 {
		return
	}
	tenants := make(map[sandbox.UID]string)
	t := time.NewTicker(boundEvery)
	defer t.Stop()
	for {
		if err := r.bound(ctx, tenants); err != nil && ctx.Err() == nil {
			r.Log.Error("bound the history of tenants", telemetry.KeyErr, err)
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// Bound is one turn of [Retention.BoundLoop].
func (r *Retention) Bound(ctx context.Context) error {
	return r.bound(ctx, make(map[sandbox.UID]string))
}

// bound evicts the oldest history of the tenants that have more than
// they may, in the database and in journals. tenants remembers whose journals
// are whose: a sandbox keeps its tenant.
func (r *Retention) bound(ctx context.Context, tenants map[sandbox.UID]string) error {
	rows, err := r.Store.HistoryBytes(ctx)
	if err != nil {
		return err
	}
	// What cannot be read does not count, and does not free the rest of its
	// bound.
	output, err := r.outputBytes(ctx, tenants)
	for tenant := range output {
		rows[tenant] += 0 // also of one that has nothing else
	}
	for tenant := range rows {
		if rows[tenant]+output[tenant] > r.Bytes {
			freed, removeErr := r.removeUnlisted(ctx, tenant, tenants)
			output[tenant] -= freed
			err = errors.Join(err, removeErr)
		}
		if rows[tenant]+output[tenant] > r.Bytes {
			err = errors.Join(err, r.evict(ctx, tenant, rows[tenant], output[tenant]))
		}
	}
	return err
}

// outputBytes returns what the journals of each tenant's sandboxes take, of
// those that it could read when there is an error.
func (r *Retention) outputBytes(ctx context.Context, tenants map[sandbox.UID]string) (bytes map[string]int64, err error) {
	boxes, err := r.Journals.Boxes()
	if err != nil {
		return nil, err
	}
	bytes = make(map[string]int64)
	there := make(map[sandbox.UID]bool, len(boxes))
	for _, uid := range boxes {
		there[uid] = true
		usage, failed := r.Journals.Usage(uid)
		if failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		tenant, known := tenants[uid]
		if !known {
			b, failed := r.Store.SandboxByUID(ctx, uid)
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
func (r *Retention) removeUnlisted(ctx context.Context, tenant string, tenants map[sandbox.UID]string) (freed int64, err error) {
	for uid, of := range tenants {
		if of != tenant {
			continue
		}
		// In this order: a command is in the store before it has a log.
		logs, failed := r.Journals.Closed(uid)
		if failed != nil || len(logs) == 0 {
			err = errors.Join(err, failed)
			continue
		}
		listed, failed := r.Store.ExecSeqs(ctx, uid)
		if failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		for _, seq := range logs {
			if !listed[seq] {
				n, failed := r.Journals.RemoveLog(uid, seq)
				freed += n
				err = errors.Join(err, failed)
			}
		}
	}
	return freed, err
}

// evict brings a tenant a little below its bound, so that it does not
// have to do so at every turn.
func (r *Retention) evict(ctx context.Context, tenant string, rows, output int64) error {
	bound := r.Bytes - r.Bytes/16
	before := r.Now().Add(-evictGrace)
	commands := 0
	var err error
	for rows+output > bound {
		gone, evictErr := r.Store.EvictHistory(ctx, tenant, before)
		if evictErr != nil || gone.None() {
			err = errors.Join(err, evictErr)
			break
		}
		rows = gone.Bytes
		commands += len(gone.Execs)
		// A log that stays all the same goes at the next turn.
		for _, x := range gone.Execs {
			freed, removeErr := r.Journals.RemoveLog(x.Box, x.Seq)
			output -= freed
			err = errors.Join(err, removeErr)
		}
		for _, uid := range gone.Boxes {
			freed, removeErr := r.Journals.Usage(uid)
			if removeErr == nil {
				removeErr = r.Journals.Remove(uid)
			}
			output -= freed
			err = errors.Join(err, removeErr)
		}
	}
	if commands > 0 {
		r.Log.Warn("a tenant has all the history that it may have: its oldest commands were removed",
			"tenant", tenant, "commands", commands, telemetry.KeyBytes, rows+output)
	}
	return err
}
