package store

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store/column"
	"github.com/cubbyhq/cubby/internal/store/engine"
)

// Export is a path of a sandbox that its owner gave out.
type Export struct {
	Path string // absolute and clean
	Kind sandbox.FileType
	Size int64 // of all content when it was registered
	At   time.Time
}

// maxExports bounds the paths of one sandbox.
const maxExports = 10_000

// AddExports registers paths of a live sandbox. One that is registered already
// is described anew. They go with the sandbox: a move to Failed or Destroyed
// removes them. TooLarge when the sandbox has too many.
func (s *Store) AddExports(ctx context.Context, box sandbox.UID, exports []Export, events ...sandbox.Event) error {
	now := s.now()
	return s.update(ctx, durable, func(t *tx) error {
		b, err := t.seal.scanSandbox(t.row(selectSandboxByUID, box))
		if err != nil {
			return err
		}
		if !b.State.Live() {
			return errs.E(errs.WrongState, "the sandbox is %s", b.State)
		}
		for _, e := range exports {
			if _, err := t.exec(`INSERT INTO exports (box, path, kind, size, created_at) VALUES ($1, $2, $3, $4, $5)
					ON CONFLICT (box, path) DO UPDATE SET kind = excluded.kind, size = excluded.size, created_at = excluded.created_at`,
				box, e.Path, e.Kind, e.Size, column.Micros(orTime(e.At, now))); err != nil {
				return err
			}
		}
		var n int
		if err := t.row(`SELECT COUNT(*) FROM exports WHERE box = $1`, box).Scan(&n); err != nil {
			return err
		}
		if n > maxExports {
			return errs.E(errs.TooLarge, "a sandbox exports at most %d paths", maxExports).Hint("export a directory")
		}
		return t.appendEvents(events, now)
	})
}

// ExportsBytes is about how many the paths have that a sandbox gave out.
func (s *Store) ExportsBytes(ctx context.Context, box sandbox.UID) (bytes int64, err error) {
	err = s.reads.Row(ctx, `SELECT COALESCE(SUM(octet_length(path) + 64), 0) FROM exports WHERE box = $1`, box).Scan(&bytes)
	return bytes, s.fault(err)
}

// Exports returns the paths that a sandbox gave out, in their order.
func (s *Store) Exports(ctx context.Context, box sandbox.UID) ([]Export, error) {
	rows, err := s.reads.Rows(ctx, `SELECT path, kind, size, created_at FROM exports WHERE box = $1 ORDER BY path`, box)
	exports, err := engine.Collect(rows, err, scanExport)
	return exports, s.fault(err)
}

// Export returns one path that a sandbox gave out; NotFound when it did not.
func (s *Store) Export(ctx context.Context, box sandbox.UID, path string) (Export, error) {
	e, err := scanExport(s.reads.Row(ctx, `SELECT path, kind, size, created_at FROM exports WHERE box = $1 AND path = $2`, box, path))
	if errors.Is(err, sql.ErrNoRows) {
		return e, errs.E(errs.NotFound, "the path is not exported")
	}
	return e, s.fault(err)
}

func scanExport(r engine.Row) (e Export, err error) {
	var at int64
	err = r.Scan(&e.Path, &e.Kind, &e.Size, &at)
	e.At = column.FromMicros(at)
	return e, err
}

func (t *tx) dropExports(box sandbox.UID) error {
	_, err := t.exec(`DELETE FROM exports WHERE box = $1`, box)
	return err
}
