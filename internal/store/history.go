package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store/column"
	"github.com/cubbyhq/cubby/internal/store/engine"
)

// evictBatch bounds how much of a history one [Store.EvictHistory] removes of
// each kind: it is how far below a bound a tenant may fall.
const evictBatch = 50

// HistoryBytes returns the size of the history in the database by tenant: of
// commands, events, and sandboxes that have ended. Output is in journals.
func (s *Store) HistoryBytes(ctx context.Context) (map[string]int64, error) {
	type use struct {
		tenant string
		bytes  int64
	}
	rows, err := s.reads.Rows(ctx, `SELECT tenant, bytes FROM history`)
	uses, err := engine.Collect(rows, err, func(r engine.Row) (u use, err error) { return u, r.Scan(&u.tenant, &u.bytes) })
	if err != nil {
		return nil, s.fault(err)
	}
	bytes := make(map[string]int64, len(uses))
	for _, u := range uses {
		bytes[u.tenant] = u.bytes
	}
	return bytes, nil
}

// ExecSeqs returns the execs of a sandbox that are in its history.
func (s *Store) ExecSeqs(ctx context.Context, box sandbox.UID) (map[int64]bool, error) {
	rows, err := s.reads.Rows(ctx, `SELECT seq FROM execs WHERE box = $1`, box)
	seqs, err := engine.Collect(rows, err, func(r engine.Row) (seq int64, err error) { return seq, r.Scan(&seq) })
	if err != nil {
		return nil, s.fault(err)
	}
	there := make(map[int64]bool, len(seqs))
	for _, seq := range seqs {
		there[seq] = true
	}
	return there, nil
}

// Evicted is what [Store.EvictHistory] removed. Its journals are the caller's
// to remove.
type Evicted struct {
	Execs  []ExecKey
	Boxes  []sandbox.UID
	Events int64
	Bytes  int64 // what the tenant has left in the database
}

// ExecKey names an exec.
type ExecKey struct {
	Box sandbox.UID
	Seq int64
}

// None reports that nothing was removed: there is nothing left to remove.
func (e Evicted) None() bool { return len(e.Execs) == 0 && len(e.Boxes) == 0 && e.Events == 0 }

// endedOfTenant are the histories of a tenant, each with its oldest first. What
// is unfinished or live is in none of them.
var endedOfTenant = []struct{ oldest, remove string }{
	{
		`SELECT finished_at FROM execs WHERE tenant = $1 AND status NOT IN ('pending', 'running') AND finished_at < $2 ORDER BY finished_at LIMIT 1 OFFSET $3`,
		`DELETE FROM execs WHERE uid IN (SELECT uid FROM execs
			WHERE tenant = $1 AND status NOT IN ('pending', 'running') AND finished_at <= $2 ORDER BY finished_at LIMIT $3) RETURNING box, seq`,
	},
	{
		`SELECT at FROM events WHERE tenant = $1 AND at < $2 ORDER BY at LIMIT 1 OFFSET $3`,
		`DELETE FROM events WHERE cursor IN (SELECT cursor FROM events WHERE tenant = $1 AND at <= $2 ORDER BY at LIMIT $3)`,
	},
	{
		`SELECT updated_at FROM sandboxes WHERE tenant = $1 AND state IN ('failed', 'destroyed') AND updated_at < $2 ORDER BY updated_at LIMIT 1 OFFSET $3`,
		`DELETE FROM sandboxes WHERE uid IN (SELECT uid FROM sandboxes
			WHERE tenant = $1 AND state IN ('failed', 'destroyed') AND updated_at <= $2 ORDER BY updated_at LIMIT $3) RETURNING uid`,
	},
}

// EvictHistory forgets some of what a tenant's history is made of, as
// [Store.Prune] does, however young: the oldest commands, events and ended
// sandboxes that ended before a time, about [evictBatch] of them.
func (s *Store) EvictHistory(ctx context.Context, tenant string, before time.Time) (gone Evicted, err error) {
	err = s.update(ctx, relaxed, func(t *tx) error {
		gone = Evicted{}
		// All kinds go up to the same time: that of the kind which reaches its
		// batch first.
		until := column.Micros(before) - 1
		for _, kind := range endedOfTenant {
			var at int64
			err := t.row(kind.oldest, tenant, until+1, evictBatch-1).Scan(&at)
			if err != nil && !errors.Is(err, sql.ErrNoRows) {
				return err
			}
			if err == nil {
				until = min(until, at)
			}
		}
		rows, err := t.rows(endedOfTenant[0].remove, tenant, until, evictBatch)
		if gone.Execs, err = engine.Collect(rows, err, func(r engine.Row) (k ExecKey, err error) { return k, r.Scan(&k.Box, &k.Seq) }); err != nil {
			return err
		}
		if gone.Events, err = t.exec(endedOfTenant[1].remove, tenant, until, evictBatch); err != nil {
			return err
		}
		rows, err = t.rows(endedOfTenant[2].remove, tenant, until, evictBatch)
		if gone.Boxes, err = engine.Collect(rows, err, func(r engine.Row) (uid sandbox.UID, err error) { return uid, r.Scan(&uid) }); err != nil {
			return err
		}
		err = t.row(`SELECT bytes FROM history WHERE tenant = $1`, tenant).Scan(&gone.Bytes)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		return err
	})
	if err != nil {
		return Evicted{}, fmt.Errorf("evict history: %w", err)
	}
	return gone, nil
}
