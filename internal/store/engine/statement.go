package engine

import (
	"context"
	"database/sql"
	"maps"
	"slices"
	"sync"
)

// Statement is a compiled or an [Uncompiled] one.
type Statement interface {
	ExecContext(ctx context.Context, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, args ...any) *sql.Row
}

// Uncompiled is a statement that is run as its text.
type Uncompiled struct {
	On interface {
		ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
		QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
		QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	}
	Query string
}

// ExecContext runs it for its effect.
func (u Uncompiled) ExecContext(ctx context.Context, args ...any) (sql.Result, error) {
	return u.On.ExecContext(ctx, u.Query, args...)
}

// QueryContext runs it for its rows.
func (u Uncompiled) QueryContext(ctx context.Context, args ...any) (*sql.Rows, error) {
	return u.On.QueryContext(ctx, u.Query, args...)
}

// QueryRowContext runs it for its first row.
func (u Uncompiled) QueryRowContext(ctx context.Context, args ...any) *sql.Row {
	return u.On.QueryRowContext(ctx, u.Query, args...)
}

// maxStatements bounds the compiled statements of a pool. Only lists build
// their text, from parts of a closed set; what is beyond runs uncompiled.
const maxStatements = 256

// Statements keeps compiled statements by their text. They live as long as
// their database. Without one they keep nothing: a driver may do it by itself.
type Statements struct {
	db *sql.DB

	mu sync.RWMutex
	m  map[string]*sql.Stmt // guarded by mu
}

// Writes keeps the statements of transactions.
func (e *Engine) Writes() *Statements { return e.statements(e.Write) }

func (e *Engine) statements(db *sql.DB) *Statements {
	if !e.Compiles {
		db = nil
	}
	return &Statements{db: db}
}

// Find returns a statement that is compiled, or nil.
func (c *Statements) Find(query string) *sql.Stmt {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.m[query]
}

// Texts are those of the compiled statements.
func (c *Statements) Texts() []string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.Collect(maps.Keys(c.m))
}

// Prepare compiles a statement. It returns nil, nil when the cache is full, or without a
// database.
func (c *Statements) Prepare(ctx context.Context, query string) (*sql.Stmt, error) {
	if c.db == nil {
		return nil, nil
	}
	if st := c.Find(query); st != nil {
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
