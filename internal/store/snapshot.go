package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store/column"
	"github.com/cubbyhq/cubby/internal/store/engine"
)

const snapshotColumns = `uid, name, tenant, source_id, source_uid, spec, env, image_digest, driver, memory, state, disk_bytes, memory_bytes, created_at, services`

// snapshotPlace is what the env of a snapshot is sealed for.
func snapshotPlace(uid sandbox.UID) string { return string(uid) + " snapshot" }

func noSuchSnapshot() error { return errs.E(errs.NotFound, "no such snapshot") }

// CreateSnapshot adds a snapshot in state SnapshotCreating; a zero CreatedAt
// becomes now. Conflict when one of its tenant has the name.
func (s *Store) CreateSnapshot(ctx context.Context, n sandbox.Snapshot) error {
	n.State = sandbox.SnapshotCreating
	n.CreatedAt = orTime(n.CreatedAt, s.now())
	declared, err := s.seal.servicesColumn(snapshotPlace(n.UID), services{n.Spec.Services, n.Services})
	if err != nil {
		return err
	}
	values := n.Spec.Env
	n.Spec.Env, n.Spec.Services = nil, nil
	spec, err := column.JSON(n.Spec)
	if err != nil {
		return err
	}
	var env string
	if len(values) > 0 {
		text, err := column.JSON(values)
		if err != nil {
			return err
		}
		env = s.seal.Seal(snapshotPlace(n.UID), []byte(text))
	}
	err = s.update(ctx, durable, func(t *tx) error {
		_, err := t.exec(`INSERT INTO snapshots (`+snapshotColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)`,
			n.UID, n.Name, n.Tenant, n.Source, n.SourceUID, spec, env, n.ImageDigest, n.Driver, asInt(n.Memory), n.State,
			n.DiskBytes, n.MemoryBytes, column.Micros(n.CreatedAt), declared)
		return err
	})
	if errors.Is(err, errs.Conflict) {
		return errs.E(errs.Conflict, "a snapshot with the name %q exists already", n.Name).Hint("remove it first, or choose another name").Because(err)
	}
	return err
}

func asInt(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}

// ReadySnapshot notes that a snapshot is whole, and what it takes.
func (s *Store) ReadySnapshot(ctx context.Context, uid sandbox.UID, diskBytes, memoryBytes int64, events ...sandbox.Event) error {
	return s.changeSnapshot(ctx, events, `UPDATE snapshots SET state = 'ready', disk_bytes = $2, memory_bytes = $3 WHERE uid = $1 AND state = 'creating'`,
		uid, diskBytes, memoryBytes)
}

// RemoveSnapshot makes a snapshot one that is being removed: nobody finds it any
// more and its name is free. One that is removed already stays so.
func (s *Store) RemoveSnapshot(ctx context.Context, uid sandbox.UID, events ...sandbox.Event) error {
	return s.changeSnapshot(ctx, events, `UPDATE snapshots SET state = 'removing' WHERE uid = $1`, uid)
}

// DropSnapshot forgets a snapshot of which nothing is left.
func (s *Store) DropSnapshot(ctx context.Context, uid sandbox.UID) error {
	return s.changeSnapshot(ctx, nil, `DELETE FROM snapshots WHERE uid = $1 AND state <> 'ready'`, uid)
}

func (s *Store) changeSnapshot(ctx context.Context, events []sandbox.Event, query string, args ...any) error {
	return s.update(ctx, durable, func(t *tx) error {
		n, err := t.exec(query, args...)
		if err != nil {
			return err
		}
		if n == 0 {
			return noSuchSnapshot()
		}
		return t.appendEvents(events, s.now())
	})
}

// SnapshotByUID returns a snapshot in any state.
func (s *Store) SnapshotByUID(ctx context.Context, uid sandbox.UID) (sandbox.Snapshot, error) {
	n, err := s.seal.scanSnapshot(s.reads.Row(ctx, `SELECT `+snapshotColumns+` FROM snapshots WHERE uid = $1`, uid))
	return n, s.fault(err)
}

// Snapshot returns a snapshot that is ready by its name. A nil tenant is any: then
// it is a Conflict when several have one of this name.
func (s *Store) Snapshot(ctx context.Context, tenant *string, name string) (sandbox.Snapshot, error) {
	query, args := `SELECT `+snapshotColumns+` FROM snapshots WHERE name = $1 AND state = 'ready'`, []any{name}
	if tenant != nil {
		query, args = query+` AND state <> 'removing' AND tenant = $2`, append(args, *tenant)
	}
	rows, err := s.reads.Rows(ctx, query+` LIMIT 2`, args...)
	found, err := engine.Collect(rows, err, s.seal.scanSnapshot)
	switch {
	case err != nil:
		return sandbox.Snapshot{}, s.fault(err)
	case len(found) == 0:
		return sandbox.Snapshot{}, noSuchSnapshot()
	case len(found) > 1:
		return sandbox.Snapshot{}, errs.E(errs.Conflict, "several tenants have a snapshot with the name %q", name).Hint("give its id")
	}
	return found[0], nil
}

// SnapshotQuery selects snapshots; the zero value selects all.
type SnapshotQuery struct {
	Tenant *string     // nil: any
	Source sandbox.ID  // the sandbox, as it was called; "": any
	Before sandbox.UID // those that are older; "": from the newest on
	Limit  int         // 0: 100; never more than 1000
}

// Snapshots returns a page of those that are ready, the newest first, and whether there
// may be more. It ends early when what it has is large.
func (s *Store) Snapshots(ctx context.Context, q SnapshotQuery) (page []sandbox.Snapshot, more bool, err error) {
	n := limit(q.Limit)
	query, args := `SELECT `+snapshotColumns+` FROM snapshots WHERE state = 'ready'`, []any{n}
	and := func(condition string, value any) {
		args = append(args, value)
		query += fmt.Sprintf(" AND %s $%d", condition, len(args))
	}
	if q.Tenant != nil {
		and("tenant =", *q.Tenant)
	}
	if q.Source != "" {
		and("source_id =", q.Source)
	}
	if q.Before != "" {
		and("uid <", q.Before)
	}
	rows, err := s.reads.Rows(ctx, query+` ORDER BY uid DESC LIMIT $1`, args...)
	page, short, err := engine.CollectPage(rows, err, s.seal.scanSnapshot, func(n sandbox.Snapshot) int64 { return n.Spec.Bytes() })
	return page, short || len(page) == n, s.fault(err)
}

// UnreadySnapshots returns those that are being made or removed, or were when
// that was cut off.
func (s *Store) UnreadySnapshots(ctx context.Context) ([]sandbox.Snapshot, error) {
	rows, err := s.reads.Rows(ctx, `SELECT `+snapshotColumns+` FROM snapshots WHERE state <> 'ready' ORDER BY uid`)
	all, err := engine.Collect(rows, err, s.seal.scanSnapshot)
	return all, s.fault(err)
}

// SnapshotUse is what the snapshots of a tenant take, those that are being made
// included.
type SnapshotUse struct {
	Count int
	Bytes int64
}

// SnapshotUse counts the snapshots of a tenant.
func (s *Store) SnapshotUse(ctx context.Context, tenant string) (u SnapshotUse, err error) {
	err = s.reads.Row(ctx, `SELECT COUNT(*), CAST(COALESCE(SUM(disk_bytes + memory_bytes), 0) AS BIGINT) FROM snapshots
		WHERE tenant = $1 AND state <> 'removing'`, tenant).Scan(&u.Count, &u.Bytes)
	return u, s.fault(err)
}

func (k sealer) scanSnapshot(r engine.Row) (sandbox.Snapshot, error) {
	var n sandbox.Snapshot
	var spec []byte
	var env, declared string
	var memory, created int64
	err := r.Scan(&n.UID, &n.Name, &n.Tenant, &n.Source, &n.SourceUID, &spec, &env, &n.ImageDigest, &n.Driver, &memory, &n.State,
		&n.DiskBytes, &n.MemoryBytes, &created, &declared)
	if errors.Is(err, sql.ErrNoRows) {
		return n, noSuchSnapshot()
	}
	if err != nil {
		return n, err
	}
	n.Memory, n.CreatedAt = memory != 0, column.FromMicros(created)
	if err := column.Read(spec, &n.Spec); err != nil {
		return n, fmt.Errorf("snapshot %s: %w", n.UID, err)
	}
	if env != "" {
		text, err := k.Open(snapshotPlace(n.UID), env)
		if err == nil {
			err = column.Read(text, &n.Spec.Env)
		}
		if err != nil {
			return n, fmt.Errorf("the env of snapshot %s: %w", n.UID, err)
		}
	}
	s, err := k.openServices(snapshotPlace(n.UID), declared)
	n.Spec.Services, n.Services = s.Declared, s.States
	return n, err
}
