package store

import (
	"context"
	"database/sql"
	"sync"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
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
	t := &tx{ctx: ctx, cache: &s.writes, seal: s.seal}
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
	s.notices.tell(t.told)
	// Statements are compiled on a connection, and this transaction held the
	// only one.
	for _, query := range t.missed {
		if _, err := s.writes.prepare(t.ctx, query); err != nil { //nolint:sqlclosecheck // the cache keeps it
			s.log.Debug("compile a statement", "err", err) // what is committed is no failure
		}
	}
	return nil
}

// tx is a running transaction.
type tx struct {
	ctx    context.Context
	tx     *sql.Tx
	cache  *statements
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

func (t *tx) rows(query string, args ...any) (rowset, error) {
	return t.statement(query).QueryContext(t.ctx, args...) //nolint:rowserrcheck // whoever gets it does
}

func (t *tx) statement(query string) statement {
	t.used = true
	if st := t.cache.find(query); st != nil {
		return t.tx.StmtContext(t.ctx, st)
	}
	t.missed = append(t.missed, query)
	return uncompiled{t.tx, query}
}

// row reads one row, in the turn of whose it is, when it is scanned.
func (s *Store) row(ctx context.Context, query string, args ...any) row {
	return rowInTurn(func(dest ...any) error {
		done, err := s.takeTurn(ctx)
		if err != nil {
			return err
		}
		defer done()
		return s.statement(ctx, query).QueryRowContext(ctx, args...).Scan(dest...)
	})
}

type rowInTurn func(dest ...any) error

func (r rowInTurn) Scan(dest ...any) error { return r(dest...) }

// rows reads rows, in the turn of whose they are until they are closed. Nobody reads
// something else meanwhile.
func (s *Store) rows(ctx context.Context, query string, args ...any) (rowset, error) {
	return s.rowsOf(ctx, func() statement { return s.statement(ctx, query) }, args...)
}

// rowsOnce is rows of a statement that is not worth keeping.
func (s *Store) rowsOnce(ctx context.Context, query string, args ...any) (rowset, error) {
	return s.rowsOf(ctx, func() statement { return uncompiled{s.engine.Read, query} }, args...)
}

func (s *Store) rowsOf(ctx context.Context, of func() statement, args ...any) (rowset, error) {
	done, err := s.takeTurn(ctx)
	if err != nil {
		return nil, err
	}
	rows, err := of().QueryContext(ctx, args...) //nolint:rowserrcheck // whoever gets it does
	if err != nil {
		done()
		return nil, err
	}
	return &rowsInTurn{rows, sync.OnceFunc(done)}, nil
}

type rowsInTurn struct {
	*sql.Rows

	done func()
}

// Close gives the turn back too.
func (r *rowsInTurn) Close() error {
	defer r.done()
	return r.Rows.Close()
}

// takeTurn waits for one of the connections that read: no tenant has all of them.
func (s *Store) takeTurn(ctx context.Context) (done func(), err error) {
	if s.readers == nil {
		return func() {}, nil
	}
	return s.readers.Take(ctx, s.tenant(ctx))
}

func (s *Store) statement(ctx context.Context, query string) statement {
	st, err := s.reads.prepare(ctx, query)
	if err != nil || st == nil {
		return uncompiled{s.engine.Read, query} // which reports the error
	}
	return st
}

// statement is a compiled or an [uncompiled] one.
type statement interface {
	ExecContext(ctx context.Context, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, args ...any) *sql.Row
}

type uncompiled struct {
	on interface {
		ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
		QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
		QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	}
	query string
}

func (u uncompiled) ExecContext(ctx context.Context, args ...any) (sql.Result, error) {
	return u.on.ExecContext(ctx, u.query, args...)
}

func (u uncompiled) QueryContext(ctx context.Context, args ...any) (*sql.Rows, error) {
	return u.on.QueryContext(ctx, u.query, args...)
}

func (u uncompiled) QueryRowContext(ctx context.Context, args ...any) *sql.Row {
	return u.on.QueryRowContext(ctx, u.query, args...)
}

// maxStatements bounds the compiled statements of a pool. Only lists build
// their text, from parts of a closed set; what is beyond runs uncompiled.
const maxStatements = 256

// statements keeps compiled statements by their text. They live as long as
// their database. Without one they keep nothing: a driver may do it by itself.
type statements struct {
	db *sql.DB

	mu sync.RWMutex
	m  map[string]*sql.Stmt // guarded by mu
}

func (c *statements) find(query string) *sql.Stmt {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.m[query]
}

// prepare returns nil, nil when the cache is full, or without a database.
func (c *statements) prepare(ctx context.Context, query string) (*sql.Stmt, error) {
	if c.db == nil {
		return nil, nil
	}
	if st := c.find(query); st != nil {
		return st, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if st := c.m[query]; st != nil || len(c.m) >= maxStatements {
		return st, nil
	}
	st, err := c.db.PrepareContext(ctx, query) //nolint:sqlclosecheck // the cache keeps it
	if err != nil {
		return nil, err
	}
	if c.m == nil {
		c.m = make(map[string]*sql.Stmt)
	}
	c.m[query] = st
	return st, nil
}

// collect scans all rows and closes them.
func collect[T any](rows rowset, err error, scan func(row) (T, error)) ([]T, error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close() //nolint:errcheck // rows.Err reports what matters
	var all []T
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, rows.Err()
}

// pageBytes bounds what a page takes in memory: it ends early after the row
// that reaches it.
const pageBytes = 2 << 20

// collectPage is collect up to pageBytes; short reports that it stopped there.
func collectPage[T any](rows rowset, err error, scan func(row) (T, error), size func(T) int64) (page []T, short bool, _ error) {
	if err != nil {
		return nil, false, err
	}
	defer rows.Close() //nolint:errcheck // rows.Err reports what matters
	for left := int64(pageBytes); rows.Next(); {
		if left <= 0 {
			return page, true, nil
		}
		v, err := scan(rows)
		if err != nil {
			return nil, false, err
		}
		page, left = append(page, v), left-size(v)
	}
	return page, false, rows.Err()
}

// rowset is *sql.Rows.
type rowset interface {
	row
	Next() bool
	Err() error
	Close() error
}

// row is one *sql.Row or the present one of *sql.Rows.
type row interface{ Scan(dest ...any) error }

// micros is how times are stored: microseconds since 1970 UTC, 0 for the zero
// time.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func fromMicros(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}
