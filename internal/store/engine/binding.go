package engine

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// BindingName is the file of a data directory with the id of the PostgreSQL
// database that it belongs to. Disks and journals without their rows, and rows
// without their disks, are each nothing: a daemon that met them would clear
// them away.
const BindingName = "database-id"

// unconfirmed begins the file while the database may not have the id yet.
const unconfirmed = "new "

// bind checks that the database and the data directory belong to each other,
// ties them together when both are new, and takes the next epoch. The file is
// where an SQLite database would be.
func (p *postgres) bind(ctx context.Context, file string) error {
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		if err != nil {
			return errs.E(errs.Unavailable, "the data directory cannot be read").Because(err)
		}
		return errs.E(errs.Conflict, "the data directory has an SQLite database of its own").
			Hint("start without database-url, or choose an empty data directory")
	}
	path := filepath.Join(filepath.Dir(file), BindingName)
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return errs.E(errs.Unavailable, "the data directory cannot be read").Because(err)
	}
	here := strings.TrimSpace(string(text))
	var there string
	err = p.write.QueryRowContext(ctx, `SELECT id FROM ownership`).Scan(&there)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return classifyPostgres(err)
	}
	here, pending := strings.CutPrefix(here, unconfirmed)
	switch {
	case here == "" && there != "":
		return errs.E(errs.Conflict, "the database belongs to another data directory").
			Hint("start with that data directory, or with an empty database")
	case here != "" && !pending && there == "":
		return errs.E(errs.Conflict, "the database is empty and the data directory belongs to one that is not").
			Hint("restore the database, or choose an empty data directory")
	case there != "" && here != there:
		return errs.E(errs.Conflict, "the database and the data directory do not belong together").
			Hint("each data directory has its own database")
	}
	// A crash between these steps is made up for by the next start.
	if here == "" {
		here, pending = string(sandbox.NewUID()), true
		if err := writeBinding(path, unconfirmed+here); err != nil {
			return err
		}
	}
	var epoch int64
	if err := p.write.QueryRowContext(ctx, `INSERT INTO ownership (one, id, epoch, count) VALUES (1, $1, 1, 0)
			ON CONFLICT (one) DO UPDATE SET epoch = ownership.epoch + 1, count = 0 RETURNING epoch`, here).Scan(&epoch); err != nil {
		return classifyPostgres(err)
	}
	p.mu.Lock()
	p.epoch = epoch
	p.mu.Unlock()
	if pending {
		return writeBinding(path, here)
	}
	return nil
}

func writeBinding(path, text string) error {
	if err := renameio.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
		return errs.E(errs.Unavailable, "the data directory cannot be written").Because(err)
	}
	return nil
}

// refuseBound is an error when the data directory belongs to a PostgreSQL
// database: an empty SQLite one beside it would have all sandboxes removed.
func refuseBound(dir string) error {
	_, err := os.Stat(filepath.Join(dir, BindingName))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	return errs.E(errs.Conflict, "the data directory belongs to a PostgreSQL database").
		Hint("set CUBBY_DATABASE_URL, or choose another data directory")
}
