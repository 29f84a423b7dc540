package engine

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"

	"github.com/pressly/goose/v3"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/cubbyhq/cubby/internal/coalesce"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/store/wal"
)

// OpenSQLite opens path in WAL mode with one writing connection and a pool of
// reading ones. Pragmas stand in the DSN because they hold per connection.
func OpenSQLite(ctx context.Context, path string, migrations fs.FS) (_ Engine, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return Engine{}, err
	}
	if err := refuseBound(filepath.Dir(path)); err != nil {
		return Engine{}, err
	}
	// SQLite would make the file readable for all, and it holds env values.
	// The -wal and -shm files take over its mode.
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return Engine{}, err
	}
	if err := f.Close(); err != nil {
		return Engine{}, err
	}

	var write, read *sql.DB
	var log wal.Log
	// The WAL's file is closed last, when the database has been synced.
	closeAll := func() error {
		var err error
		for _, db := range []*sql.DB{read, write} {
			if db != nil {
				err = errors.Join(err, db.Close())
			}
		}
		return errors.Join(err, log.Close())
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, closeAll())
		}
	}()

	write, err = sql.Open("sqlite", sqliteDSN(path, url.Values{"_txlock": {"immediate"}}))
	if err != nil {
		return Engine{}, err
	}
	write.SetMaxOpenConns(1)
	// One connection must stay open: the last close removes the WAL that
	// flush syncs.
	write.SetMaxIdleConns(1)
	write.SetConnMaxLifetime(0)
	if err := migrate(ctx, goose.DialectSQLite3, write, migrations, classifySQLite); err != nil {
		return Engine{}, err
	}

	if err := log.Open(path); err != nil {
		return Engine{}, err
	}
	if err := syncDir(filepath.Dir(path)); err != nil {
		return Engine{}, err
	}

	read, err = sql.Open("sqlite", sqliteDSN(path, url.Values{"_pragma": {"query_only(1)"}}))
	if err != nil {
		return Engine{}, err
	}
	read.SetMaxOpenConns(Readers + 1) // one copies the log
	read.SetMaxIdleConns(Readers + 1)

	return Engine{
		Write: write, Read: read, Compiles: true,
		Begin:     func(ctx context.Context) (*sql.Tx, error) { return write.BeginTx(ctx, nil) },
		Commit:    (*sql.Tx).Commit,
		Wrote:     log.Wrote,
		Flush:     coalesce.NewRounds(log.Sync).Do,
		Tidy:      func(ctx context.Context) error { return log.Tidy(ctx, read) },
		Classify:  classifySQLite,
		DiskBytes: `json_extract(spec, '$.limits.disk_bytes')`,
		Close:     closeAll,
	}, nil
}

// sqliteDSN spells out what every connection needs. synchronous=NORMAL leaves
// the sync of a commit to flush, which callers can share; checkpoints sync by
// themselves. secure_delete overwrites env values when their rows go.
func sqliteDSN(path string, extra url.Values) string {
	q := url.Values{"_pragma": {
		"busy_timeout(5000)", "journal_mode(WAL)", "synchronous(NORMAL)",
		"foreign_keys(1)", "secure_delete(1)",
		// Checkpoints are tidy's; this bounds the WAL (64 MiB) should it lag.
		"wal_autocheckpoint(16384)", fmt.Sprintf("journal_size_limit(%d)", wal.Limit),
	}}
	for k, v := range extra {
		q[k] = append(q[k], v...)
	}
	return (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: q.Encode()}).String()
}

// syncDir makes the names in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// classifySQLite names the errors that a client can do something about.
func classifySQLite(err error) error {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return err
	}
	switch e.Code() {
	case sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY:
		return errs.E(errs.Conflict, "it exists already").Because(err)
	case sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY:
		return errs.E(errs.NotFound, "what it belongs to does not exist").Because(err)
	}
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_FULL:
		return errs.E(errs.Exhausted, "the host's disk is full").Because(err)
	case sqlite3.SQLITE_IOERR:
		// SQLite reports a failed write of a full disk as either.
		return errs.E(errs.Unavailable, "the store cannot be read or written").Because(err)
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return errs.E(errs.Unavailable, "the store is busy").Because(err)
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM:
		return errs.E(errs.Unavailable, "the store cannot be written").
			Hint("look at the file system of the data directory").Because(err)
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return errs.E(errs.Internal, "the store is damaged").
			Hint("restore the state directory from a backup").Because(err)
	}
	return err
}

// migrate brings the schema up to date, forward only.
func migrate(ctx context.Context, dialect goose.Dialect, db *sql.DB, migrations fs.FS, classify func(error) error) error {
	p, err := goose.NewProvider(dialect, db, migrations, goose.WithLogger(goose.NopLogger()))
	if err != nil {
		return err
	}
	have, err := p.GetDBVersion(ctx)
	if err != nil {
		return classify(err)
	}
	var known int64
	for _, m := range p.ListSources() {
		known = max(known, m.Version)
	}
	if have > known {
		return errs.E(errs.Unsupported, "the store has schema %d and this cubby knows %d", have, known).
			Hint("it was written by a newer cubby: use that one, or another data directory")
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("migrate: %w", classify(err))
	}
	return nil
}

// CopySQLite writes the database in a file as it is at this moment into a new one. The
// connection is its own: it keeps neither readers nor writers.
func CopySQLite(ctx context.Context, path, to string) (err error) {
	f, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) // SQLite fills one that is empty
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	db, err := sql.Open("sqlite", sqliteDSN(path, nil))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	_, err = db.ExecContext(ctx, `VACUUM INTO ?`, to)
	return err
}
