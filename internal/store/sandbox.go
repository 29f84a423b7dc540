package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store/column"
	"github.com/cubbyhq/cubby/internal/store/engine"
)

const sandboxColumns = `s.uid, s.id, s.tenant, s.spec, s.state, s.cause, s.reason, s.driver, s.handle, s.image_digest, s.disk_uid,
	s.env, s.services, s.created_at, s.updated_at, s.started_at, s.stopped_at, s.destroyed_at, a.last_active_at`

const selectSandboxByUID = `SELECT ` + sandboxColumns + `
	FROM sandboxes s JOIN sandbox_activity a ON a.box = s.uid WHERE s.uid = $1`

const selectSandboxByID = `SELECT ` + sandboxColumns + `
	FROM sandboxes s JOIN sandbox_activity a ON a.box = s.uid WHERE s.id_key = $1 AND s.state <> 'destroyed'`

const selectDestroyedByID = `SELECT ` + sandboxColumns + `
	FROM sandboxes s JOIN sandbox_activity a ON a.box = s.uid
	WHERE s.id_key = $1 AND s.tenant = $2 AND s.state = 'destroyed' ORDER BY s.uid DESC LIMIT 1`

// selectDestroyedOfAny has no order: no index of all tenants together gives it.
const selectDestroyedOfAny = `SELECT ` + sandboxColumns + `
	FROM sandboxes s JOIN sandbox_activity a ON a.box = s.uid
	WHERE s.uid = (SELECT MAX(uid) FROM sandboxes WHERE id_key = $1 AND state = 'destroyed')`

// noSuchSandbox is the same for a sandbox that never was, one that is gone and
// one that somebody else owns.
func noSuchSandbox() error { return errs.E(errs.NotFound, "no such sandbox") }

// CreateSandbox adds a sandbox in state Creating; zero times become now, an
// empty DiskUID becomes its UID. It is a Conflict when a live sandbox has the
// same id in any case, of any tenant. A failed sandbox with that id gives it
// up and becomes Destroyed. A DiskUID that is not the sandbox's own UID names
// a kept disk, which stops being kept; it is a Conflict when that disk is not
// kept (any more).
func (s *Store) CreateSandbox(ctx context.Context, b sandbox.Sandbox, events ...sandbox.Event) error {
	err := s.update(ctx, relaxed, func(t *tx) error {
		b := b // the transaction may be run again
		if err := t.create(&b, s.now()); err != nil {
			return err
		}
		return t.appendEvents(events, b.CreatedAt)
	})
	if err != nil {
		return fmt.Errorf("create sandbox %s: %w", b.UID, err)
	}
	return nil
}

// CreateRunning is CreateSandbox of one that runs already, and its move to Running,
// in one durable transaction: the sandbox is there whole, or it is not.
func (s *Store) CreateRunning(ctx context.Context, b sandbox.Sandbox, c Change) (made sandbox.Sandbox, err error) {
	c.At = orTime(c.At, s.now())
	err = s.update(ctx, durable, func(t *tx) error {
		made = b
		if err := t.create(&made, c.At); err != nil {
			return err
		}
		made, err = t.move(made, sandbox.Running, c)
		return err
	})
	if err != nil {
		return sandbox.Sandbox{}, fmt.Errorf("create sandbox %s: %w", b.UID, err)
	}
	return made, nil
}

// create adds a sandbox in state Creating, and completes it.
func (t *tx) create(b *sandbox.Sandbox, now time.Time) error {
	b.State = sandbox.Creating
	b.CreatedAt = orTime(b.CreatedAt, now)
	b.UpdatedAt = orTime(b.UpdatedAt, b.CreatedAt)
	b.LastActiveAt = orTime(b.LastActiveAt, b.CreatedAt)
	if b.DiskUID == "" {
		b.DiskUID = b.UID
	}
	spec, env, declared, err := t.seal.specColumns(*b)
	if err != nil {
		return err
	}
	if err := t.vacate(b.ID, now); err != nil {
		return err
	}
	if b.DiskUID != b.UID {
		if err := t.takeDisk(*b); err != nil {
			return err
		}
	}
	if _, err := t.exec(`INSERT INTO sandboxes (uid, id, id_key, tenant, thread, spec, env,
			external_user_id, external_project_id, external_workspace_id,
			state, cause, reason, driver, handle, image_digest, disk_uid,
			created_at, updated_at, started_at, stopped_at, destroyed_at, services)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23)`,
		b.UID, b.ID, b.ID.Key(), b.Tenant, b.Spec.Thread, spec, env,
		b.Spec.External.UserID, b.Spec.External.ProjectID, b.Spec.External.WorkspaceID,
		b.State, b.Cause, b.Reason, b.Driver, t.seal.handleColumn(b.UID, b.Handle), b.ImageDigest, b.DiskUID,
		column.Micros(b.CreatedAt), column.Micros(b.UpdatedAt), column.Micros(b.StartedAt), column.Micros(b.StoppedAt), column.Micros(b.DestroyedAt), declared,
	); err != nil {
		return err
	}
	if _, err := t.exec(`INSERT INTO sandbox_activity (box, last_seq, last_active_at) VALUES ($1, 0, $2)`,
		b.UID, column.Micros(b.LastActiveAt)); err != nil {
		return err
	}
	return t.setLabels(b.UID, b.Spec.Labels)
}

// vacate makes an id free unless a live sandbox holds it.
func (t *tx) vacate(id sandbox.ID, now time.Time) error {
	holder, err := t.seal.scanSandbox(t.row(selectSandboxByID, id.Key()))
	switch {
	case errors.Is(err, errs.NotFound):
		return nil
	case err != nil:
		return err
	case holder.State.Live():
		return errs.E(errs.Conflict, "a sandbox with this id exists already").
			Hint("destroy it first, or choose another id; ids that differ only in case count as the same")
	}
	_, err = t.move(holder, sandbox.Destroyed, Change{At: now, Why: holder.Why()})
	return err
}

// Sandbox returns the sandbox that has the id, in any case: the live one, else
// the one that failed last. It is NotFound when there is none or it was
// destroyed.
func (s *Store) Sandbox(ctx context.Context, id sandbox.ID) (sandbox.Sandbox, error) {
	b, err := s.seal.scanSandbox(s.reads.Row(ctx, selectSandboxByID, id.Key()))
	return b, s.fault(err)
}

// DestroyedSandbox returns the newest of a tenant's destroyed sandboxes that had
// the id, in any case, until it is pruned; then it is NotFound. A nil tenant is
// any.
func (s *Store) DestroyedSandbox(ctx context.Context, id sandbox.ID, tenant *string) (sandbox.Sandbox, error) {
	query, args := selectDestroyedOfAny, []any{id.Key()}
	if tenant != nil {
		query, args = selectDestroyedByID, append(args, *tenant)
	}
	b, err := s.seal.scanSandbox(s.reads.Row(ctx, query, args...))
	return b, s.fault(err)
}

// SandboxByUID returns a sandbox in any state, also Destroyed, until it is
// pruned; then it is NotFound.
func (s *Store) SandboxByUID(ctx context.Context, uid sandbox.UID) (sandbox.Sandbox, error) {
	b, err := s.seal.scanSandbox(s.reads.Row(ctx, selectSandboxByUID, uid))
	return b, s.fault(err)
}

// SetHandle stores the driver's note, which may hold env values: it is sealed.
func (s *Store) SetHandle(ctx context.Context, uid sandbox.UID, handle []byte) error {
	return s.update(ctx, relaxed, func(t *tx) error {
		n, err := t.exec(`UPDATE sandboxes SET handle = $1, updated_at = $2 WHERE uid = $3`,
			s.seal.handleColumn(uid, handle), column.Micros(s.now()), uid)
		if err == nil && n == 0 {
			err = noSuchSandbox()
		}
		return err
	})
}

// UpdateSpec changes a live sandbox's spec by a function that sees the present
// one; its error is returned and nothing changes. The function may run only
// once and must not call the store.
func (s *Store) UpdateSpec(ctx context.Context, uid sandbox.UID, change func(*sandbox.Spec) error, events ...sandbox.Event) (b sandbox.Sandbox, err error) {
	err = s.update(ctx, durable, func(t *tx) error {
		if b, err = t.seal.scanSandbox(t.row(selectSandboxByUID, uid)); err != nil {
			return err
		}
		if !b.State.Live() {
			return errs.E(errs.WrongState, "the sandbox is %s", b.State)
		}
		if err := change(&b.Spec); err != nil {
			return err
		}
		b.UpdatedAt = column.FromMicros(column.Micros(s.now()))
		spec, env, declared, err := t.seal.specColumns(b)
		if err != nil {
			return err
		}
		if _, err := t.exec(`UPDATE sandboxes SET spec = $1, env = $2, external_user_id = $3, external_project_id = $4,
				external_workspace_id = $5, updated_at = $6, services = $7 WHERE uid = $8`,
			spec, env, b.Spec.External.UserID, b.Spec.External.ProjectID, b.Spec.External.WorkspaceID,
			column.Micros(b.UpdatedAt), declared, uid); err != nil {
			return err
		}
		if err := t.setLabels(uid, b.Spec.Labels); err != nil {
			return err
		}
		return t.appendEvents(events, b.UpdatedAt)
	})
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	return b, nil
}

// Touch notes activity. Times that are not later than the known one, and
// sandboxes that do not exist, change nothing.
func (s *Store) Touch(ctx context.Context, uid sandbox.UID, at time.Time) error {
	return s.update(ctx, relaxed, func(t *tx) error { return t.touch(uid, at) })
}

func (t *tx) touch(uid sandbox.UID, at time.Time) error {
	_, err := t.exec(`UPDATE sandbox_activity SET last_active_at = $1 WHERE box = $2 AND last_active_at < $1`,
		column.Micros(at), uid)
	return err
}

func (t *tx) setLabels(uid sandbox.UID, labels map[string]string) error {
	if _, err := t.exec(`DELETE FROM sandbox_labels WHERE box = $1`, uid); err != nil {
		return err
	}
	for name, value := range labels {
		if _, err := t.exec(`INSERT INTO sandbox_labels (name, value, box) VALUES ($1, $2, $3)`, name, value, uid); err != nil {
			return err
		}
	}
	return nil
}

// scanSandbox returns NotFound for a row that is not there.
func (k sealer) scanSandbox(r engine.Row) (sandbox.Sandbox, error) {
	var b sandbox.Sandbox
	var spec []byte
	var env, declared string
	var created, updated, started, stopped, destroyed, active int64
	err := r.Scan(&b.UID, &b.ID, &b.Tenant, &spec, &b.State, &b.Cause, &b.Reason, &b.Driver, &b.Handle, &b.ImageDigest, &b.DiskUID,
		&env, &declared, &created, &updated, &started, &stopped, &destroyed, &active)
	if errors.Is(err, sql.ErrNoRows) {
		return sandbox.Sandbox{}, noSuchSandbox()
	}
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	if b.Handle, err = k.openHandle(b.UID, b.Handle); err != nil {
		return sandbox.Sandbox{}, err
	}
	if err := column.Read(spec, &b.Spec); err != nil {
		return sandbox.Sandbox{}, fmt.Errorf("sandbox %s: %w", b.UID, err)
	}
	if env != "" { // an earlier version had it in the spec
		text, err := k.Open(string(b.UID), env)
		if err == nil {
			err = column.Read(text, &b.Spec.Env)
		}
		if err != nil {
			return sandbox.Sandbox{}, fmt.Errorf("the env of sandbox %s: %w", b.UID, err)
		}
	}
	s, err := k.openServices(string(b.UID), declared)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	b.Spec.Services, b.Services = s.Declared, s.States
	b.CreatedAt, b.UpdatedAt = column.FromMicros(created), column.FromMicros(updated)
	b.StartedAt, b.StoppedAt = column.FromMicros(started), column.FromMicros(stopped)
	b.DestroyedAt, b.LastActiveAt = column.FromMicros(destroyed), column.FromMicros(active)
	return b, nil
}

func orTime(t, or time.Time) time.Time {
	if t.IsZero() {
		return or
	}
	return t
}
