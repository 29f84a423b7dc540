package store

import (
	"context"
	"fmt"
	"time"

	"github.com/cubbyhq/cubby/internal/sandbox"
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
	err = t.row(`INSERT INTO events (box, kind, actor, payload, at) VALUES ($1, $2, $3, $4, $5) RETURNING cursor`,
		e.Box, e.Kind, e.Actor, payload, micros(orTime(e.Time, now))).Scan(&cursor)
	return cursor, err
}

// Events returns the events of a sandbox after a cursor, ascending, at most
// limit (0: 100; never more than 1000). An empty box means the whole daemon.
func (s *Store) Events(ctx context.Context, box sandbox.UID, after int64, n int) ([]sandbox.Event, error) {
	query, args := `SELECT cursor, box, kind, actor, payload, at FROM events WHERE cursor > $1 AND box = $3
		ORDER BY cursor LIMIT $2`, []any{after, limit(n), box}
	if box == "" {
		query, args = `SELECT cursor, box, kind, actor, payload, at FROM events WHERE cursor > $1
			ORDER BY cursor LIMIT $2`, args[:2]
	}
	rows, err := s.rows(ctx, query, args...)
	events, err := collect(rows, err, func(r row) (e sandbox.Event, err error) {
		var at int64
		err = r.Scan(&e.Cursor, &e.Box, &e.Kind, &e.Actor, (*[]byte)(&e.Payload), &at)
		e.Time = fromMicros(at)
		return e, err
	})
	return events, s.fault(err)
}
