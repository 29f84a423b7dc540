package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/seal"
	"github.com/cubbyhq/cubby/internal/store/column"
	"github.com/cubbyhq/cubby/internal/store/engine"
)

const execColumns = `e.box, e.seq, e.uid, e.spec, e.status, e.exit, e.result, e.actor,
	e.created_at, e.started_at, e.finished_at, e.cancelled_at`

func noSuchExec() error { return errs.E(errs.NotFound, "no such exec") }

// CreateExec adds a pending exec to a live sandbox and numbers it: 1, 2, 3 …
// without gaps, because the number is taken in the transaction that uses it.
// e.Seq is ignored, a zero CreatedAt is now. It counts as activity, unless it is a run
// of a service. It is
// NotFound without the sandbox, WrongState when that has ended, and Conflict
// when the exec's UID is known. Its env is kept sealed until it starts; its
// Secrets are not kept. Events get its seq.
func (s *Store) CreateExec(ctx context.Context, e sandbox.Exec, events ...sandbox.Event) (seq int64, err error) {
	now := s.now()
	created := orTime(e.CreatedAt, now)
	events = slices.Clone(events)
	env := e.Spec.Env
	e.Spec.Env = nil
	spec, err := column.JSON(e.Spec)
	if err != nil {
		return 0, err
	}
	err = s.update(ctx, relaxed, func(t *tx) error {
		var state sandbox.State
		var tenant string
		if err := t.row(`SELECT state, tenant FROM sandboxes WHERE uid = $1`, e.Box).Scan(&state, &tenant); errors.Is(err, sql.ErrNoRows) {
			return noSuchSandbox()
		} else if err != nil {
			return err
		}
		if !state.Live() {
			return errs.E(errs.WrongState, "the sandbox is %s", state)
		}
		var service string
		active := column.Micros(created)
		if e.Spec.Service != nil {
			service, active = e.Spec.Service.Name, 0
		}
		if err := t.row(`UPDATE sandbox_activity SET last_seq = last_seq + 1,
				last_active_at = CASE WHEN last_active_at < $1 THEN $1 ELSE last_active_at END
			WHERE box = $2 RETURNING last_seq`, active, e.Box).Scan(&seq); err != nil {
			return err
		}
		if _, err := t.exec(`INSERT INTO execs (box, seq, uid, spec, kind, session, terminal, actor, status,
				created_at, started_at, finished_at, tenant, service)
				VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 0, 0, $11, $12)`,
			e.Box, seq, e.UID, spec, e.Spec.Kind, e.Spec.Session, e.Spec.Terminal, e.Actor,
			sandbox.ExecPending, column.Micros(created), tenant, service); err != nil {
			return err
		}
		if len(env) > 0 {
			text, err := column.JSON(env)
			if err != nil {
				return err
			}
			if _, err := t.exec(`INSERT INTO exec_env (box, seq, env) VALUES ($1, $2, $3)`,
				e.Box, seq, s.seal.Seal(string(e.UID), []byte(text))); err != nil {
				return err
			}
		}
		for i := range events {
			events[i].Seq = seq
		}
		return t.appendEvents(events, now)
	})
	if err != nil {
		return 0, fmt.Errorf("create an exec in %s: %w", e.Box, err)
	}
	return seq, nil
}

// StartExec makes a pending exec running and forgets its env. For one that is
// running already it changes nothing; for a finished one it is WrongState.
func (s *Store) StartExec(ctx context.Context, box sandbox.UID, seq int64, at time.Time, events ...sandbox.Event) error {
	return s.update(ctx, relaxed, func(t *tx) error {
		n, err := t.exec(`UPDATE execs SET status = $1, started_at = $2 WHERE box = $3 AND seq = $4 AND status = $5`,
			sandbox.ExecRunning, column.Micros(at), box, seq, sandbox.ExecPending)
		if err != nil {
			return err
		}
		if n == 0 {
			status, err := t.execStatus(box, seq)
			if err == nil && status.Finished() {
				err = errs.E(errs.WrongState, "the exec has finished")
			}
			return err
		}
		if err := t.dropEnv(box, seq); err != nil {
			return err
		}
		return t.appendEvents(events, at)
	})
}

// FinishExec says how an exec ended. The first finish stays: first tells
// whether it was this one; later ones change nothing and append no events. It
// counts as activity.
func (s *Store) FinishExec(ctx context.Context, box sandbox.UID, seq int64, exit sandbox.Exit, status sandbox.ExecStatus, at time.Time, events ...sandbox.Event) (first bool, err error) {
	return s.FinishStartedExec(ctx, sandbox.Exec{Box: box, Seq: seq, Exit: &exit, Status: status, FinishedAt: at}, events...)
}

// FinishStartedExec is [Store.FinishExec] for an exec of which nobody has said
// yet that it started, which costs a short one one write less, or which has a
// result. Of e it reads Box, Seq, StartedAt, FinishedAt, Status, Exit, Result
// and Spec, whose long texts are cut from now on.
func (s *Store) FinishStartedExec(ctx context.Context, e sandbox.Exec, events ...sandbox.Event) (first bool, err error) {
	if !e.Status.Finished() || e.Exit == nil {
		return false, errs.E(errs.Internal, "%s is no end of an exec", e.Status)
	}
	text, err := column.JSON(e.Exit)
	if err != nil {
		return false, err
	}
	var shorter string
	if kept, cut := e.Spec.Kept(); cut {
		kept.Env = nil
		if shorter, err = column.JSON(kept); err != nil {
			return false, err
		}
	}
	box, seq, at := e.Box, e.Seq, e.FinishedAt
	err = s.update(ctx, relaxed, func(t *tx) error {
		n, err := t.exec(`UPDATE execs SET status = $1, exit = $2, finished_at = $3,
				started_at = CASE WHEN started_at = 0 THEN $4 ELSE started_at END, result = $5
				WHERE box = $6 AND seq = $7 AND status IN ('pending', 'running')`,
			e.Status, text, column.Micros(at), column.Micros(e.StartedAt), column.Null(e.Result), box, seq)
		if err != nil {
			return err
		}
		if n == 0 {
			_, err := t.execStatus(box, seq)
			return err
		}
		first = true
		if shorter != "" {
			if _, err := t.exec(`UPDATE execs SET spec = $1 WHERE box = $2 AND seq = $3`, shorter, box, seq); err != nil {
				return err
			}
		}
		if err := t.dropEnv(box, seq); err != nil {
			return err
		}
		if e.Spec.Service == nil {
			if err := t.touch(box, at); err != nil {
				return err
			}
		}
		return t.appendEvents(events, at)
	})
	if err != nil {
		return false, fmt.Errorf("finish exec %d of %s: %w", seq, box, err)
	}
	return first, nil
}

// CancelExec notes that somebody asked for the end of an exec; the first time stays. It
// is durable. NotFound when there is no such exec.
func (s *Store) CancelExec(ctx context.Context, box sandbox.UID, seq int64, at time.Time) error {
	return s.update(ctx, durable, func(t *tx) error {
		n, err := t.exec(`UPDATE execs SET cancelled_at = $1 WHERE box = $2 AND seq = $3 AND cancelled_at = 0`, column.Micros(at), box, seq)
		if err == nil && n == 0 {
			_, err = t.execStatus(box, seq)
		}
		return err
	})
}

func (t *tx) execStatus(box sandbox.UID, seq int64) (status sandbox.ExecStatus, err error) {
	err = t.row(`SELECT status FROM execs WHERE box = $1 AND seq = $2`, box, seq).Scan(&status)
	if errors.Is(err, sql.ErrNoRows) {
		return "", noSuchExec()
	}
	return status, err
}

func (t *tx) dropEnv(box sandbox.UID, seq int64) error {
	_, err := t.exec(`DELETE FROM exec_env WHERE box = $1 AND seq = $2`, box, seq)
	return err
}

// Exec returns one exec, without its env.
func (s *Store) Exec(ctx context.Context, box sandbox.UID, seq int64) (sandbox.Exec, error) {
	e, err := scanExec(s.reads.Row(ctx, `SELECT `+execColumns+` FROM execs e WHERE e.box = $1 AND e.seq = $2`, box, seq))
	return e, s.fault(err)
}

// ExecByUID returns an exec of a sandbox by its own uid, without its env.
func (s *Store) ExecByUID(ctx context.Context, box, uid sandbox.UID) (sandbox.Exec, error) {
	e, err := scanExec(s.reads.Row(ctx, `SELECT `+execColumns+` FROM execs e WHERE e.uid = $1 AND e.box = $2`, uid, box))
	return e, s.fault(err)
}

// ExecEnv returns the env that an exec is to start with; NotFound when the
// exec has started, Internal when it was sealed with another key.
func (s *Store) ExecEnv(ctx context.Context, box sandbox.UID, seq int64) (map[string]string, error) {
	e, err := s.Exec(ctx, box, seq)
	if err != nil {
		return nil, err
	}
	if e.Status != sandbox.ExecPending {
		return nil, errs.E(errs.NotFound, "the env of an exec is kept only until it starts")
	}
	var text []byte
	err = s.reads.Row(ctx, `SELECT env FROM exec_env WHERE box = $1 AND seq = $2`, box, seq).Scan(&text)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, s.fault(err)
	}
	// An earlier version kept it open.
	if seal.Sealed(string(text)) {
		if text, err = s.seal.Open(string(e.UID), string(text)); err != nil {
			return nil, err
		}
	}
	var env map[string]string
	return env, column.Read(text, &env)
}

// ExecQuery selects execs of one sandbox.
type ExecQuery struct {
	AfterSeq   int64
	BeforeSeq  int64 // 0: no bound
	Limit      int   // 0: 100; at most 1000
	Unfinished bool
	Kind       string // "": any
	Newest     bool   // in descending order of seq
	// Commands leaves out the runs of services, and Service those of all but one;
	// "" is any.
	Commands bool
	Service  string
	// Brief is for who looks at a list: of long commands too it has only the
	// beginning, and it ends early when what it has is large.
	Brief bool
}

// Execs returns execs in ascending order of seq, without their env and of long
// code the beginning. Old finished ones may be missing at the front: see
// [Store.Prune].
func (s *Store) Execs(ctx context.Context, box sandbox.UID, q ExecQuery) ([]sandbox.Exec, error) {
	query := `SELECT ` + execColumns + ` FROM execs e WHERE e.box = $1 AND e.seq > $2`
	if q.Unfinished {
		query += ` AND e.status IN ('pending', 'running')`
	}
	args := []any{box, q.AfterSeq, limit(q.Limit)}
	if q.Kind != "" {
		query += ` AND e.kind = $4`
		args = append(args, q.Kind)
	}
	if q.Commands {
		query += ` AND e.service = ''`
	}
	if q.Service != "" {
		args = append(args, q.Service)
		query += fmt.Sprintf(` AND e.service = $%d`, len(args))
	}
	if q.BeforeSeq > 0 {
		args = append(args, q.BeforeSeq)
		query += fmt.Sprintf(` AND e.seq < $%d`, len(args))
	}
	query += ` ORDER BY e.seq`
	if q.Newest {
		query += ` DESC`
	}
	rows, err := s.reads.Rows(ctx, query+` LIMIT $3`, args...)
	if q.Brief {
		execs, _, err := engine.CollectPage(rows, err, scanBrief, sandbox.Exec.Bytes)
		return execs, s.fault(err)
	}
	execs, err := engine.Collect(rows, err, scanListed)
	return execs, s.fault(err)
}

// UnfinishedExecs returns all that have not finished, of every sandbox, by
// sandbox and seq, without their env and of long code the beginning.
func (s *Store) UnfinishedExecs(ctx context.Context) ([]sandbox.Exec, error) {
	rows, err := s.reads.Rows(ctx, `SELECT `+execColumns+` FROM execs e
		WHERE e.status IN ('pending', 'running') ORDER BY e.box, e.seq`)
	execs, err := engine.Collect(rows, err, scanListed)
	return execs, s.fault(err)
}

// CancelledExecs are those of [Store.UnfinishedExecs] that [Store.CancelExec] noted.
func (s *Store) CancelledExecs(ctx context.Context) ([]sandbox.Exec, error) {
	rows, err := s.reads.Rows(ctx, `SELECT `+execColumns+` FROM execs e
		WHERE e.status IN ('pending', 'running') AND e.cancelled_at <> 0 ORDER BY e.box, e.seq`)
	execs, err := engine.Collect(rows, err, scanListed)
	return execs, s.fault(err)
}

func scanBrief(r engine.Row) (sandbox.Exec, error) {
	e, err := scanExec(r)
	return e.Brief(), err
}

func scanListed(r engine.Row) (sandbox.Exec, error) {
	e, err := scanExec(r)
	return e.Listed(), err
}

// scanExec returns NotFound for a row that is not there.
func scanExec(r engine.Row) (sandbox.Exec, error) {
	var e sandbox.Exec
	var spec, exit, result []byte
	var created, started, finished, cancelled int64
	err := r.Scan(&e.Box, &e.Seq, &e.UID, &spec, &e.Status, &exit, &result, &e.Actor, &created, &started, &finished, &cancelled)
	if errors.Is(err, sql.ErrNoRows) {
		return sandbox.Exec{}, noSuchExec()
	}
	if err != nil {
		return sandbox.Exec{}, err
	}
	if err := column.Read(spec, &e.Spec); err != nil {
		return sandbox.Exec{}, fmt.Errorf("exec %d of %s: %w", e.Seq, e.Box, err)
	}
	if exit != nil {
		e.Exit = new(sandbox.Exit)
		if err := column.Read(exit, e.Exit); err != nil {
			return sandbox.Exec{}, fmt.Errorf("exec %d of %s: %w", e.Seq, e.Box, err)
		}
	}
	e.Result = result
	e.CreatedAt, e.StartedAt, e.FinishedAt, e.CancelledAt = column.FromMicros(created), column.FromMicros(started), column.FromMicros(finished), column.FromMicros(cancelled)
	return e, nil
}
