package store

import (
	"context"
	"database/sql"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store/engine"
)

// durability says what a power cut can take from a write: see the package
// comment.
type durability int

const (
	relaxed durability = iota
	durable
)

// update runs fn in a transaction that has the write lock from its start, and
// commits it when fn returns nil. fn is run again, from its beginning, when
// something of the database itself was in the way. ctx bounds the wait for the lock and not the
// transaction: these are short, and one that is cut off at its commit would
// leave the caller in doubt.
func (s *Store) update(ctx context.Context, d durability, fn func(*tx) error) error {
	if err := s.transact(ctx, fn); err != nil {
		return s.fault(err)
	}
	// After the lock is given up: writers that come together share one sync.
	if d == durable {
		return s.flush()
	}
	return nil
}

// flush makes durable what was written.
func (s *Store) flush() error {
	if err := s.engine.Flush(); err != nil {
		return errs.E(errs.Internal, "the store could not be written to disk").Because(err)
	}
	return nil
}

func (s *Store) transact(ctx context.Context, fn func(*tx) error) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case _, open := <-s.turn:
		if !open {
			return errs.E(errs.Unavailable, "the store is closed")
		}
	}
	defer func() { s.turn <- struct{}{} }()
	return s.engine.Try(context.WithoutCancel(ctx), func(ctx context.Context) error { return s.attempt(ctx, fn) })
}

// attempt runs fn in a transaction and commits it.
func (s *Store) attempt(ctx context.Context, fn func(*tx) error) (err error) {
	t := &tx{ctx: ctx, cache: s.writes, seal: s.seal}
	if t.tx, err = s.engine.Begin(ctx); err != nil {
		return err
	}
	// Also when fn panics: an open transaction would lock out everybody. After
	// a commit it does nothing, and what was rolled back already is gone too.
	defer t.tx.Rollback() //nolint:errcheck // see above
	if err := fn(t); err != nil {
		return err
	}
	err = s.engine.Commit(t.tx)
	if t.used && s.engine.Wrote != nil {
		s.engine.Wrote()
	}
	if err != nil {
		return err
	}
	s.notices.Tell(t.told)
	// Statements are compiled on a connection, and this transaction held the
	// only one.
	for _, query := range t.missed {
		if _, err := s.writes.Prepare(t.ctx, query); err != nil { //nolint:sqlclosecheck // the cache keeps it
			s.log.Debug("compile a statement", "err", err) // what is committed is no failure
		}
	}
	return nil
}

// tx is a running transaction.
type tx struct {
	ctx    context.Context
	tx     *sql.Tx
	cache  *engine.Statements
	missed []string // statements that were not compiled yet
	seal   sealer
	told   []sandbox.UID // whose events and runs it appends
	used   bool          // it has had a statement
}

func (t *tx) exec(query string, args ...any) (affected int64, err error) {
	r, err := t.statement(query).ExecContext(t.ctx, args...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

func (t *tx) row(query string, args ...any) *sql.Row {
	return t.statement(query).QueryRowContext(t.ctx, args...)
}

func (t *tx) rows(query string, args ...any) (engine.Rowset, error) {
	return t.statement(query).QueryContext(t.ctx, args...) //nolint:rowserrcheck // whoever gets it does
}

func (t *tx) statement(query string) engine.Statement {
	t.used = true
	if st := t.cache.Find(query); st != nil {
		return t.tx.StmtContext(t.ctx, st)
	}
	t.missed = append(t.missed, query)
	return engine.Uncompiled{On: t.tx, Query: query}
}
