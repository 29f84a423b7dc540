package engine

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/cubbyhq/cubby/internal/errs"
)

const (
	// daemonLock is the advisory lock of the daemon that uses a database.
	daemonLock = 0x6375626279 // "cubby"
	// LockPatience is how long a start waits for a daemon that was killed a
	// moment ago: the server has to notice first.
	LockPatience = 15 * time.Second
	// relockPatience is the same for a connection that was lost.
	relockPatience = 2 * time.Second
	connectTimeout = 5 * time.Second
	// writeLimit bounds a transaction when the server stays silent.
	writeLimit = 30 * time.Second
	// commitPatience is how long a commit that was cut off waits for the
	// server to come back and tell whether it was made.
	commitPatience = 10 * time.Second
	// maxAttempts bounds how often a transaction is run that another one, or
	// a lost connection, was in the way of.
	maxAttempts = 6
)

// postgres is a PostgreSQL database that one daemon writes through one
// connection, which holds the daemon's lock: whoever can write has the lock.
//
// The one row of the table ownership says whose the database is. Every opening
// takes the next epoch, and every transaction counts itself there. A connection
// that is made again must find the epoch and the count as they were left, or
// somebody else has written, or the server has lost what it had acknowledged:
// then this store is over. After a commit whose answer was lost the count tells
// whether it was made.
type postgres struct {
	log   *slog.Logger
	write *sql.DB
	read  *sql.DB

	mu        sync.Mutex
	ownership // guarded by mu
}

// ownership is what a store knows of the row of that name.
type ownership struct {
	epoch int64 // 0 before the database is taken
	count int64 // of the last transaction that is known to be made
	doubt bool  // the one after it may have been made
	over  error // why the store is over; nil while it is not
}

// OpenPostgres connects to the database of a URL, takes the daemon's lock within
// patience, migrates and binds the database to the data directory, where file is
// what an SQLite database would be.
func OpenPostgres(ctx context.Context, url, file string, migrations fs.FS, log *slog.Logger, patience time.Duration) (_ Engine, err error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		// The parser's own words may hold the password.
		return Engine{}, errs.E(errs.Invalid, "the database URL cannot be read").
			Hint("write postgres://user:password@host:port/name?sslmode=require")
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = connectTimeout
	}
	defaults := map[string]string{
		"application_name": "cubby",
		// A host that vanished does not hold the lock for hours.
		"tcp_keepalives_idle": "10", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "3",
	}
	for k, v := range defaults {
		if _, set := config.RuntimeParams[k]; !set {
			config.RuntimeParams[k] = v
		}
	}
	reading := config.Copy()
	reading.RuntimeParams["default_transaction_read_only"] = "on"

	p := &postgres{log: log}
	p.write = stdlib.OpenDB(*config, orClose(func(ctx context.Context, conn *pgx.Conn) error {
		return p.takeLock(ctx, conn, patience)
	}))
	p.read = stdlib.OpenDB(*reading, orClose(p.checkEpoch))
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	p.write.SetMaxOpenConns(1)
	p.write.SetMaxIdleConns(1)
	p.read.SetMaxOpenConns(Readers)
	p.read.SetMaxIdleConns(Readers)

	if err := migrate(ctx, goose.DialectPostgres, p.write, migrations, classifyPostgres); err != nil {
		return Engine{}, err
	}
	if err := p.bind(ctx, file); err != nil {
		return Engine{}, err
	}
	return Engine{
		Write: p.write, Read: p.read,
		// A commit is on disk when the server has acknowledged it.
		Flush:     func() error { return nil },
		Tidy:      p.watch,
		Classify:  classifyPostgres,
		DiskBytes: `(spec::json #>> '{limits,disk_bytes}')::bigint`,
		Begin:     p.begin,
		Commit:    p.commit,
		again:     again,
		Close:     p.close,
	}, nil
}

// orClose runs check on every new connection and closes one that does not pass,
// which the adapter leaves open, and with it the lock taken.
func orClose(check func(context.Context, *pgx.Conn) error) stdlib.OptionOpenDB {
	return stdlib.OptionAfterConnect(func(ctx context.Context, conn *pgx.Conn) error {
		err := check(ctx, conn)
		if err != nil {
			_ = conn.Close(ctx) // its error says no more than err
		}
		return err
	})
}

// takeLock is run on every new connection for writing.
func (p *postgres) takeLock(ctx context.Context, conn *pgx.Conn, patience time.Duration) error {
	known := p.state()
	if known.over != nil {
		return known.over
	}
	if known.epoch != 0 {
		patience = relockPatience
	}
	// The lock is the session's: the connection's end gives it back.
	var held bool
	for deadline := time.Now().Add(patience); ; {
		if err := conn.QueryRow(ctx, `SELECT pg_try_advisory_lock($1)`, int64(daemonLock)).Scan(&held); err != nil {
			return err
		}
		if held || time.Now().After(deadline) {
			break
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
	switch {
	case held && known.epoch == 0:
		return nil
	case held:
		return p.recognise(ctx, conn, known)
	case known.epoch == 0:
		return errs.E(errs.Conflict, "another daemon uses the database").
			Hint("stop it, or give this one a database of its own")
	}
	// Either this daemon's lost connection, which the server has not noticed
	// yet, or somebody else, who has the next epoch.
	if err := p.checkEpoch(ctx, conn); err != nil {
		return err
	}
	return errs.E(errs.Unready, "the database is still locked by a lost connection").RetryAfter(time.Second)
}

// recognise finds out whether the database is as this store left it. The
// connection holds the lock.
func (p *postgres) recognise(ctx context.Context, conn *pgx.Conn, known ownership) error {
	if err := p.checkEpoch(ctx, conn); err != nil {
		return err
	}
	var count int64
	if err := conn.QueryRow(ctx, `SELECT count FROM ownership`).Scan(&count); err != nil {
		return err
	}
	if count != known.count && (!known.doubt || count != known.count+1) {
		return p.end(errs.E(errs.Unready, "the database is not as this daemon left it").
			Hint("it was restored, or lost what it had written; cubby starts again from what is there"))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count, p.doubt = count, false
	p.log.Info("connected to the database again")
	return nil
}

// checkEpoch is run on every new connection for reading too: what another
// database under the same address says is no answer.
func (p *postgres) checkEpoch(ctx context.Context, conn *pgx.Conn) error {
	known := p.state()
	if known.over != nil {
		return known.over
	}
	var epoch int64
	err := conn.QueryRow(ctx, `SELECT epoch FROM ownership`).Scan(&epoch)
	if errors.Is(err, pgx.ErrNoRows) || err == nil && epoch != known.epoch {
		return p.end(errTaken)
	}
	return err
}

var errTaken = errs.E(errs.Unready, "another daemon has taken over the database").
	Hint("one database serves one daemon at a time")

// end ends this store for good.
func (p *postgres) end(why error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = why
	return why
}

func (p *postgres) state() ownership {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ownership
}

// begin opens a transaction and counts it.
func (p *postgres) begin(ctx context.Context) (*sql.Tx, error) {
	t, err := p.write.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	known := p.state()
	r, err := t.ExecContext(ctx, `UPDATE ownership SET count = $1 WHERE epoch = $2`, known.count+1, known.epoch)
	var n int64
	if err == nil {
		n, err = r.RowsAffected()
	}
	if err == nil && n == 0 {
		err = p.end(errTaken)
	}
	if err != nil {
		_ = t.Rollback() // nothing was done
		return nil, err
	}
	return t, nil
}

// commit ends a transaction. When its answer is lost it asks the server, as
// soon as that is back, whether it was made.
func (p *postgres) commit(t *sql.Tx) error {
	err := t.Commit()
	if err == nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.count++
		return nil
	}
	if !lostConnection(err) {
		return err
	}
	p.mu.Lock()
	made := p.count + 1
	p.doubt = true
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), commitPatience)
	defer cancel()
	for {
		var count int64
		asked := p.write.QueryRowContext(ctx, `SELECT count FROM ownership`).Scan(&count)
		switch {
		case asked == nil && count == made:
			return nil
		case asked == nil:
			return errNotCommitted{err}
		case ctx.Err() != nil || p.state().over != nil:
			return errs.E(errs.Unready, "the database went away while it was written, and it is not known whether it was").
				RetryAfter(time.Second).Because(err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// errNotCommitted is a commit that was cut off and is known not to be made.
type errNotCommitted struct{ error }

func (e errNotCommitted) Unwrap() error { return e.error }

// again reports whether a transaction that ended with err can be run once more.
func again(attempt int, err error) bool {
	var notCommitted errNotCommitted
	var classified *errs.Error
	switch {
	case attempt >= maxAttempts || errors.As(err, &classified):
		return false
	case errors.As(err, &notCommitted), inTheWay(err):
		return true
	case lostConnection(err):
		// A connection of the pool may be long dead. A server that does not
		// answer is for the caller to wait for.
		return attempt < 3 && !Connecting(err)
	}
	return false
}

// watch notices a lost connection although nobody writes, and is an [OverError]
// once this store is over.
func (p *postgres) watch(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, writeLimit)
	defer cancel()
	var one int
	err := p.write.QueryRowContext(ctx, `SELECT 1`).Scan(&one)
	if over := p.state().over; over != nil {
		return OverError{over}
	}
	if err != nil {
		return classifyPostgres(err)
	}
	return nil
}

func (p *postgres) close() error {
	err := errors.Join(p.read.Close(), p.write.Close())
	if err != nil {
		return fmt.Errorf("close the database: %w", err)
	}
	return nil
}
