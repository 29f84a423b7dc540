package store

import (
	"context"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/store/engine"
)

// Copy writes the database as it is at this moment into a new file. Unsupported where a
// server keeps it.
func (s *Store) Copy(ctx context.Context, to string) error {
	if s.path == "" {
		return errs.E(errs.Unsupported, "the database is in PostgreSQL, which makes its own backups")
	}
	return engine.CopySQLite(ctx, s.path, to)
}
