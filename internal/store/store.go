// Package store keeps cubby's state: sandboxes, execs, kept disks, secrets,
// idempotency keys and events, and the agent's threads, runs and settings. It is
// the only package that knows SQL, and it alone changes a sandbox's state, in
// [Store.Move], where sandbox.State says what is allowed. database/sql types never
// appear in its API.
//
// Writes come in two strengths. Durable ones (every move, kept disks, spec updates,
// secrets, completed idempotency keys, threads that are made, the beginning and the
// end of a run) are on disk when the call returns and survive a power cut. Relaxed
// ones (execs, events, activity, new rows in Creating, the steps of a run) survive a
// crash of the daemon at once, and a power cut after at most [syncInterval] while
// [Store.Run] runs, or with the next durable write: a power cut ends every process in
// every sandbox, so what it can take from an exec's row is less than what it takes
// from the exec. Writes reach the disk in order: a durable write covers all before
// it. On PostgreSQL every write is durable when it returns.
//
// The package holds no rules beyond integrity. It does not log request contents,
// retries only what something of the database itself was in the way of, and never
// answers "empty" for what it could not read.
package store

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/seal"
	"github.com/cubbyhq/cubby/internal/store/engine"
	"github.com/cubbyhq/cubby/internal/store/notice"
)

// syncInterval bounds what a power cut takes of relaxed writes.
const syncInterval = time.Second

// Config is what a Store needs.
type Config struct {
	// Path is the database file. It and its directory are made when missing,
	// for the daemon's user only.
	Path string
	// URL, when not empty, is a PostgreSQL database that is used instead. The
	// directory of Path and the database are bound to each other then.
	URL string
	// Seal keeps env values and secrets. Nil is a key of this Store alone: what it keeps
	// cannot be read after the next Open.
	Seal *seal.Key
	// Tenant is whose a read is: those of one tenant do not keep others waiting. Nil:
	// nobody's.
	Tenant func(context.Context) string
	Now    func() time.Time // nil: time.Now
	Log    *slog.Logger     // nil: silent
}

// Store is an open database. All methods may be called from any goroutine.
// A method that changes something does all of it or nothing, also when ctx
// ends meanwhile or the process dies.
type Store struct {
	engine  engine.Engine
	path    string // of the file; "" where a server has the database
	seal    sealer
	now     func() time.Time
	log     *slog.Logger
	notices notice.Notices

	reads  *engine.Reads
	writes *engine.Statements
	turn   chan struct{} // holds a token while nobody writes
	once   sync.Once     // of Close
	closed atomic.Bool
}

//go:embed migrations/*/*.sql
var files embed.FS

// migrations are the files of a dialect.
func migrations(dialect string) fs.FS {
	sub, err := fs.Sub(files, "migrations/"+dialect)
	if err != nil {
		panic(err) // a name that is no path
	}
	return sub
}

// Open opens the database, makes it when it is missing and brings its schema
// up to date. A database that a newer cubby has written is refused
// (errs.Unsupported) and not touched; one that another daemon uses, or that
// belongs to another directory, is a Conflict. Idempotency keys whose request
// was cut off by a crash are free again.
func Open(ctx context.Context, c Config) (*Store, error) {
	s := &Store{
		seal: sealer{c.Seal},
		now:  c.Now,
		log:  cmp.Or(c.Log, slog.New(slog.DiscardHandler)),
		turn: make(chan struct{}, 1),
	}
	if s.now == nil {
		s.now = time.Now
	}
	var err error
	if s.seal.Key == nil {
		if s.seal.Key, err = seal.NewKey(); err != nil {
			return nil, fmt.Errorf("open the store: %w", err)
		}
	}
	if c.URL != "" {
		s.engine, err = engine.OpenPostgres(ctx, c.URL, c.Path, migrations("postgres"), s.log, engine.LockPatience)
	} else {
		s.path = c.Path
		s.engine, err = engine.OpenSQLite(ctx, c.Path, migrations("sqlite"))
	}
	if err != nil {
		return nil, fmt.Errorf("open the store: %w", err)
	}
	if c.Tenant == nil {
		c.Tenant = func(context.Context) string { return "" }
	}
	s.reads, s.writes = s.engine.Reads(c.Tenant), s.engine.Writes()
	s.turn <- struct{}{}
	if err := errors.Join(s.releaseUnfinishedClaims(ctx), s.sealHandles(ctx)); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Run makes relaxed writes durable every second until ctx ends, and keeps
// housekeeping off the way of callers. A store works without it; Close then
// does what is left. It is an error when the database has got another owner:
// this store can do nothing any more.
func (s *Store) Run(ctx context.Context) error {
	tick := time.NewTicker(syncInterval)
	defer tick.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		err := errors.Join(s.engine.Flush(), s.engine.Tidy(ctx))
		var over engine.OverError
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &over):
			return over
		case err != nil && !failing:
			s.log.Error("the store does not work", "err", err)
		case err == nil && failing:
			s.log.Info("the store works again")
		}
		failing = err != nil
	}
}

// Close waits for running calls and closes the database. Everything written
// is on disk afterwards. Calls that come later are refused as
// errs.Unavailable.
func (s *Store) Close() (err error) {
	s.once.Do(func() {
		<-s.turn
		s.closed.Store(true)
		close(s.turn)
		err = s.engine.Close()
	})
	return err
}

// Ping reports whether the database can be read and written.
func (s *Store) Ping(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		var one int
		return s.fault(s.reads.Row(ctx, "SELECT 1").Scan(&one))
	})
	g.Go(func() error {
		return s.update(ctx, relaxed, func(*tx) error { return nil })
	})
	return g.Wait()
}

// fault classifies an error of the database. Classified and context errors
// pass.
func (s *Store) fault(err error) error {
	var classified *errs.Error
	switch {
	case err == nil, errors.As(err, &classified), errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, context.DeadlineExceeded) && !engine.Connecting(err):
		return err
	case s.closed.Load():
		return errs.E(errs.Unavailable, "the store is closed").Because(err)
	}
	return s.engine.Classify(err)
}
