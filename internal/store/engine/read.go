package engine

import (
	"context"
	"database/sql"
	"sync"

	"github.com/cubbyhq/cubby/internal/tenancy"
)

// Reads reads from a database, each read in the turn of the tenant whose it is.
type Reads struct {
	*Statements

	db     *sql.DB
	turns  *tenancy.Turns // of the connections
	tenant func(context.Context) string
}

// Reads reads from the database; tenant says whose a read is, and "" is nobody's.
func (e *Engine) Reads(tenant func(context.Context) string) *Reads {
	return &Reads{
		Statements: e.statements(e.Read), db: e.Read, tenant: tenant,
		// Half of them are for what is no tenant's: the daemon's own work, and operators.
		turns: tenancy.NewTurns(tenancy.Bound{All: Readers, Tenant: Readers / 4, Reserved: Readers / 2}),
	}
}

// Row reads one row, in the turn of whose it is, when it is scanned.
func (r *Reads) Row(ctx context.Context, query string, args ...any) Row {
	return rowInTurn(func(dest ...any) error {
		done, err := r.takeTurn(ctx)
		if err != nil {
			return err
		}
		defer done()
		return r.statement(ctx, query).QueryRowContext(ctx, args...).Scan(dest...)
	})
}

type rowInTurn func(dest ...any) error

func (r rowInTurn) Scan(dest ...any) error { return r(dest...) }

// Rows reads rows, in the turn of whose they are until they are closed. Nobody reads
// something else meanwhile.
func (r *Reads) Rows(ctx context.Context, query string, args ...any) (Rowset, error) {
	return r.rowsOf(ctx, func() Statement { return r.statement(ctx, query) }, args...)
}

// RowsOnce is Rows of a statement that is not worth keeping.
func (r *Reads) RowsOnce(ctx context.Context, query string, args ...any) (Rowset, error) {
	return r.rowsOf(ctx, func() Statement { return Uncompiled{r.db, query} }, args...)
}

func (r *Reads) rowsOf(ctx context.Context, of func() Statement, args ...any) (Rowset, error) {
	done, err := r.takeTurn(ctx)
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
func (r *Reads) takeTurn(ctx context.Context) (done func(), err error) {
	return r.turns.Take(ctx, r.tenant(ctx))
}

func (r *Reads) statement(ctx context.Context, query string) Statement {
	st, err := r.Prepare(ctx, query)
	if err != nil || st == nil {
		return Uncompiled{r.db, query} // which reports the error
	}
	return st
}
