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

// KeptDisk is a disk that outlived its sandbox and waits for the next one with
// the same id and owner.
type KeptDisk struct {
	IDKey    string // of the sandbox's id: see sandbox.ID.Key
	Tenant   string
	External sandbox.External
	DiskUID  sandbox.UID
	At       time.Time
}

const keptColumns = `id_key, tenant, external_user_id, external_project_id, external_workspace_id, disk_uid, kept_at`

func notTheOwner() error {
	return errs.E(errs.Conflict, "the disk kept under this id belongs to somebody else").
		Hint("choose another id, or have its owner purge it")
}

// KeepDisk keeps a disk under an id. It is a Conflict when another disk is
// kept there.
func (s *Store) KeepDisk(ctx context.Context, d KeptDisk) error {
	d.At = orTime(d.At, s.now())
	return s.update(ctx, durable, func(t *tx) error { return t.keepDisk(d) })
}

func (t *tx) keepDisk(d KeptDisk) error {
	n, err := t.exec(`INSERT INTO kept_disks (`+keptColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7)
			ON CONFLICT (id_key) DO UPDATE SET kept_at = excluded.kept_at WHERE kept_disks.disk_uid = excluded.disk_uid`,
		d.IDKey, d.Tenant, d.External.UserID, d.External.ProjectID, d.External.WorkspaceID, d.DiskUID, column.Micros(d.At))
	if err == nil && n == 0 {
		err = errs.E(errs.Conflict, "another disk is kept under this id")
	}
	return err
}

// TakeKeptDisk finds the disk that a new sandbox with this id is to take over;
// ok is false when none is kept. It is a Conflict when the disk belongs to
// another tenant or another external user. The disk stays kept until
// [Store.CreateSandbox] stores a sandbox with that DiskUID, so that a crash
// between the two loses nothing; a create that is undone afterwards gives it
// back by a move to Failed with KeepDisk.
func (s *Store) TakeKeptDisk(ctx context.Context, idKey, tenant string, owner sandbox.External) (uid sandbox.UID, ok bool, err error) {
	d, err := scanKeptDisk(s.reads.Row(ctx, `SELECT `+keptColumns+` FROM kept_disks WHERE id_key = $1`, idKey))
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return "", false, nil
	case err != nil:
		return "", false, s.fault(err)
	case d.Tenant != tenant || d.External.UserID != owner.UserID:
		return "", false, notTheOwner()
	}
	return d.DiskUID, true, nil
}

// takeDisk ends the keeping of the disk that b takes over.
func (t *tx) takeDisk(b sandbox.Sandbox) error {
	n, err := t.exec(`DELETE FROM kept_disks WHERE id_key = $1 AND disk_uid = $2 AND tenant = $3 AND external_user_id = $4`,
		b.ID.Key(), b.DiskUID, b.Tenant, b.Spec.External.UserID)
	if err == nil && n == 0 {
		err = errs.E(errs.Conflict, "the disk that the sandbox was to take over is not kept any more")
	}
	return err
}

// KeptDisks returns all, by id.
func (s *Store) KeptDisks(ctx context.Context) ([]KeptDisk, error) {
	rows, err := s.reads.Rows(ctx, `SELECT `+keptColumns+` FROM kept_disks ORDER BY id_key`)
	disks, err := engine.Collect(rows, err, scanKeptDisk)
	return disks, s.fault(err)
}

// DropKeptDisk forgets the disk that is kept under an id and returns it, for
// the caller to remove; ok is false when there was none.
func (s *Store) DropKeptDisk(ctx context.Context, idKey string) (d KeptDisk, ok bool, err error) {
	err = s.update(ctx, durable, func(t *tx) error {
		d, err = scanKeptDisk(t.row(`DELETE FROM kept_disks WHERE id_key = $1 RETURNING `+keptColumns, idKey))
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		ok = err == nil
		return err
	})
	if err != nil {
		return KeptDisk{}, false, err
	}
	return d, ok, nil
}

func scanKeptDisk(r engine.Row) (KeptDisk, error) {
	var d KeptDisk
	var at int64
	if err := r.Scan(&d.IDKey, &d.Tenant, &d.External.UserID, &d.External.ProjectID, &d.External.WorkspaceID, &d.DiskUID, &at); err != nil {
		return KeptDisk{}, err
	}
	d.At = column.FromMicros(at)
	return d, nil
}
