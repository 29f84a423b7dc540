package store

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store/column"
	"github.com/cubbyhq/cubby/internal/store/engine"
)

// AppendEvent adds one event and returns its cursor. A zero Time is now.
func (s *Store) AppendEvent(ctx context.Context, e sandbox.Event) (cursor int64, err error) {
	err = s.update(ctx, relaxed, func(t *tx) error {
		cursor, err = t.appendEvent(e, s.now())
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("append event %s: %w", e.Kind, err)
	}
	return cursor, nil
}

func (t *tx) appendEvents(events []sandbox.Event, now time.Time) error {
	for _, e := range events {
		if _, err := t.appendEvent(e, now); err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) appendEvent(e sandbox.Event, now time.Time) (cursor int64, err error) {
	payload := string(e.Payload)
	if payload == "" {
		payload = "{}"
	}
	err = t.row(`INSERT INTO events (box, kind, actor, seq, status, payload, result, at, tenant)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, COALESCE((SELECT tenant FROM sandboxes WHERE uid = $1), '')) RETURNING cursor`,
		e.Box, e.Kind, e.Actor, e.Seq, cmp.Or(e.Status, sandbox.ExecDone), payload, column.Null(e.Result),
		column.Micros(orTime(e.Time, now))).Scan(&cursor)
	if err == nil {
		t.told = append(t.told, e.Box)
	}
	return cursor, err
}

// Events returns the events of a sandbox after a cursor, ascending, at most
// limit (0: 100; never more than 1000). An empty box means the whole daemon.
// Kinds, when there are any, are the only ones: "exec.finished", or "git.*" for
// all that begin with "git.".
func (s *Store) Events(ctx context.Context, box sandbox.UID, after int64, n int, kinds ...string) ([]sandbox.Event, error) {
	query := `SELECT cursor, box, kind, actor, seq, status, payload, result, at FROM events WHERE cursor > $1`
	args := []any{after, limit(n)}
	if box != "" {
		args = append(args, box)
		query += fmt.Sprintf(` AND box = $%d`, len(args))
	}
	if len(kinds) > 0 {
		var either []string
		for _, kind := range kinds {
			prefix, more := strings.CutSuffix(kind, "*")
			args = append(args, prefix)
			if more {
				either = append(either, fmt.Sprintf(`substr(kind, 1, length($%[1]d)) = $%[1]d`, len(args)))
			} else {
				either = append(either, fmt.Sprintf(`kind = $%d`, len(args)))
			}
		}
		query += ` AND (` + strings.Join(either, ` OR `) + `)`
	}
	rows, err := s.reads.Rows(ctx, query+` ORDER BY cursor LIMIT $2`, args...)
	events, _, err := engine.CollectPage(rows, err, func(r engine.Row) (e sandbox.Event, err error) {
		var at int64
		err = r.Scan(&e.Cursor, &e.Box, &e.Kind, &e.Actor, &e.Seq, &e.Status, (*[]byte)(&e.Payload), (*[]byte)(&e.Result), &at)
		e.Time = column.FromMicros(at)
		return e, err
	}, sandbox.Event.Bytes)
	return events, s.fault(err)
}
