// Package engine opens the databases that a store can be kept in, and has all in
// which they differ: how they are opened, migrated and made durable, what makes a
// transaction worth another try, and how their errors read. It keeps statements compiled,
// and reads rows in the turns of tenants. It knows no table but the one that says whose a
// PostgreSQL database is.
package engine

import (
	"context"
	"database/sql"
	"runtime"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Readers is how many reads a database does at once.
var Readers = max(8, 2*runtime.GOMAXPROCS(0))

// Engine is an open database. Statements are written for all of them, with $1
// placeholders.
type Engine struct {
	// Write has one connection.
	Write *sql.DB
	Read  *sql.DB
	// Compiles: statements are to be compiled and kept.
	Compiles bool
	// Flush returns when everything committed so far survives a power cut.
	Flush func() error
	// Tidy does housekeeping that would otherwise fall to some commit.
	Tidy func(context.Context) error
	// Begin and Commit are a transaction's beginning and end.
	Begin  func(context.Context) (*sql.Tx, error)
	Commit func(*sql.Tx) error
	// Wrote hears of a transaction that may have written, when it has ended. Nil: nobody.
	Wrote func()
	// again reports whether a transaction that failed for the nth time is to be
	// run once more, after a pause. Nil: never.
	again func(n int, err error) bool
	// Classify gives a driver's error its kind.
	Classify func(error) error
	// DiskBytes is the expression that reads the size of a sandbox's disk out of
	// its spec.
	DiskBytes string
	Close     func() error
}

// OverError is the error of [Engine.Tidy] that nothing can mend: the database has
// got another owner.
type OverError struct{ error }

func (e OverError) Unwrap() error { return e.error }

// Try runs attempt, which is a transaction, and runs it again when something of the
// database itself was in the way.
func (e *Engine) Try(ctx context.Context, attempt func(context.Context) error) error {
	if e.again == nil {
		return attempt(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, writeLimit)
	defer cancel()
	// Writers that were in each other's way try again at times of their own.
	pauses := &backoff.ExponentialBackOff{
		InitialInterval: 20 * time.Millisecond, RandomizationFactor: 1, Multiplier: 2, MaxInterval: time.Second,
	}
	for n := 1; ; n++ {
		err := attempt(ctx)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return unready("the database does not answer", err)
		case !e.again(n, err):
			return err
		}
		select {
		case <-time.After(pauses.NextBackOff()):
		case <-ctx.Done():
			return err
		}
	}
}
