package store

import (
	"context"
	"fmt"
	"time"

	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store/column"
	"github.com/cubbyhq/cubby/internal/store/engine"
)

// pruneBatch bounds how long a prune keeps other writers waiting.
const pruneBatch = 200

// Prune forgets what ended before a time: destroyed and failed sandboxes with
// their execs and labels, finished execs of sandboxes that live on, events and
// idempotency keys. Numbers go on: a seq or cursor is never used twice. It
// returns the sandboxes that it forgot, so that their journals can go too,
// also beside an error. It works in small transactions.
func (s *Store) Prune(ctx context.Context, before time.Time) ([]sandbox.UID, error) {
	// Execs go before their sandboxes, or one that ran a million of them
	// would go in one long transaction.
	for _, old := range []struct{ what, query string }{
		{"execs", `DELETE FROM execs WHERE uid IN (SELECT uid FROM execs
			WHERE status NOT IN ('pending', 'running') AND finished_at < $1 ORDER BY finished_at LIMIT $2)`},
		{"events", `DELETE FROM events WHERE cursor IN (SELECT cursor FROM events WHERE at < $1 ORDER BY at LIMIT $2)`},
		// A key that is claimed still is held by a running request.
		{"idempotency keys", `DELETE FROM idempotency WHERE (principal, key) IN (SELECT principal, key FROM idempotency
			WHERE claimed_at < $1 AND result IS NOT NULL ORDER BY claimed_at LIMIT $2)`},
	} {
		err := s.inBatches(ctx, func(t *tx) (int, error) {
			n, err := t.exec(old.query, column.Micros(before), pruneBatch)
			return int(n), err
		})
		if err != nil {
			return nil, fmt.Errorf("prune %s: %w", old.what, err)
		}
	}
	var forgotten, batch []sandbox.UID
	err := s.inBatches(ctx, func(t *tx) (int, error) {
		forgotten = append(forgotten, batch...)
		rows, err := t.rows(`DELETE FROM sandboxes WHERE uid IN (
				SELECT uid FROM sandboxes WHERE state IN ('failed', 'destroyed') AND updated_at < $1
				ORDER BY updated_at LIMIT $2) RETURNING uid`, column.Micros(before), pruneBatch)
		batch, err = engine.Collect(rows, err, func(r engine.Row) (uid sandbox.UID, err error) { return uid, r.Scan(&uid) })
		return len(batch), err
	})
	if err != nil {
		return forgotten, fmt.Errorf("prune sandboxes: %w", err)
	}
	return append(forgotten, batch...), nil
}

// inBatches repeats a transaction until it has less to do than a batch.
func (s *Store) inBatches(ctx context.Context, step func(*tx) (int, error)) error {
	for {
		var n int
		err := s.update(ctx, relaxed, func(t *tx) (err error) {
			n, err = step(t)
			return err
		})
		if err != nil || n < pruneBatch {
			return err
		}
	}
}
