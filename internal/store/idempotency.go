package store

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/store/column"
)

// Claim is the hold on an idempotency key. The holder ends it with Complete,
// with a Move that names it, or with Release; a crash of the daemon releases
// it.
type Claim struct {
	store          *Store
	principal, key string
	result         string
	done           bool
}

// Result returns what the first request with this key was completed with.
// When ok is false the caller is the first and has to do the work.
func (c *Claim) Result() (result string, ok bool) { return c.result, c.done }

// Idempotency claims a key of a principal for a request. The same key with
// another request hash is a Conflict for good, the same request while the
// first still runs a Conflict that says when to try again.
func (s *Store) Idempotency(ctx context.Context, principal, key, requestHash string) (*Claim, error) {
	c := &Claim{store: s, principal: principal, key: key}
	err := s.update(ctx, relaxed, func(t *tx) error {
		n, err := t.exec(`INSERT INTO idempotency (principal, key, request_hash, claimed_at) VALUES ($1, $2, $3, $4)
				ON CONFLICT (principal, key) DO NOTHING`, principal, key, requestHash, column.Micros(s.now()))
		if err != nil || n == 1 {
			return err
		}
		var hash string
		var result sql.NullString
		if err := t.row(`SELECT request_hash, result FROM idempotency WHERE principal = $1 AND key = $2`,
			principal, key).Scan(&hash, &result); err != nil {
			return err
		}
		switch {
		case hash != requestHash:
			return errs.E(errs.Conflict, "the idempotency key was used for another request").
				Hint("use a fresh key for every request that is not a repetition")
		case !result.Valid:
			return errs.E(errs.Conflict, "the first request with this idempotency key is still running").
				RetryAfter(time.Second)
		}
		c.result, c.done = result.String, true
		return nil
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Complete stores what repetitions of the request get. It is durable.
func (c *Claim) Complete(ctx context.Context, result string) error {
	return c.store.update(ctx, durable, func(t *tx) error { return t.completeClaim(c, result) })
}

func (t *tx) completeClaim(c *Claim, result string) error {
	if c.done {
		return errs.E(errs.Internal, "the claim is a repetition, not the first")
	}
	n, err := t.exec(`UPDATE idempotency SET result = $1 WHERE principal = $2 AND key = $3 AND result IS NULL`,
		result, c.principal, c.key)
	if err == nil && n == 0 {
		err = errs.E(errs.Internal, "the claim has ended already")
	}
	return err
}

// Release makes the key free again after a request that had no effect. It does
// nothing to a completed claim.
func (c *Claim) Release(ctx context.Context) error {
	if c.done {
		return nil
	}
	return c.store.update(ctx, relaxed, func(t *tx) error {
		_, err := t.exec(`DELETE FROM idempotency WHERE principal = $1 AND key = $2 AND result IS NULL`, c.principal, c.key)
		return err
	})
}

// releaseUnfinishedClaims frees the keys of requests that a crash cut off.
func (s *Store) releaseUnfinishedClaims(ctx context.Context) error {
	return s.update(ctx, relaxed, func(t *tx) error {
		_, err := t.exec(`DELETE FROM idempotency WHERE result IS NULL`)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		return err
	})
}
