package store

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store/canonical"
	"github.com/cubbyhq/cubby/internal/store/column"
	"github.com/cubbyhq/cubby/internal/store/engine"
)

const cronColumns = `c.id, c.tenant, c.owner, c.assistant, COALESCE(c.thread, ''), COALESCE(t.id, ''), c.schedule, c.timezone, c.run, c.metadata, c.keep, c.enabled,
	c.end_at, c.next_at, c.last_at, c.last_thread, c.last_run, c.failure, c.created_at, c.updated_at`

const fromCrons = ` FROM crons c LEFT JOIN conversations t ON t.uid = c.thread`

func noSuchCron() error { return errs.E(errs.NotFound, "no such cron") }

// CreateCron adds a cron; zero times become now. OverQuota when its tenant has most
// already, unless that is 0; NotFound when its assistant or thread has gone.
func (s *Store) CreateCron(ctx context.Context, c conversation.Cron, most int) error {
	now := s.now()
	c.CreatedAt, c.UpdatedAt = orTime(c.CreatedAt, now), orTime(c.UpdatedAt, now)
	values, err := cronValues(c)
	if err != nil {
		return err
	}
	return s.update(ctx, durable, func(t *tx) error {
		var n, assistants, threads int
		if err := t.row(`SELECT COUNT(*) FROM crons WHERE tenant = $1`, c.Tenant).Scan(&n); err != nil {
			return err
		}
		if most > 0 && n >= most {
			return errs.E(errs.OverQuota, "this tenant has all %d crons that it may have", most).
				Hint("delete one, or let the operator raise max-agent-crons-per-tenant")
		}
		if err := t.row(`SELECT COUNT(*) FROM assistants WHERE tenant = $1 AND id = $2`, c.Tenant, c.AssistantID).Scan(&assistants); err != nil {
			return err
		}
		if err := t.row(`SELECT COUNT(*) FROM conversations WHERE uid = $1`, c.Thread).Scan(&threads); err != nil {
			return err
		}
		if assistants == 0 {
			return noSuchAssistant()
		}
		if c.Thread != "" && threads == 0 {
			return noSuchConversation()
		}
		_, err := t.exec(`INSERT INTO crons (id, tenant, owner, assistant, thread, schedule, timezone, run, metadata, keep, enabled, end_at, next_at, last_at,
				last_thread, last_run, failure, created_at, updated_at)
				VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)`, values...)
		return err
	})
}

// Cron returns a cron of a tenant; NotFound when it has none with the id.
func (s *Store) Cron(ctx context.Context, tenant, id string) (conversation.Cron, error) {
	c, err := scanCron(s.reads.Row(ctx, `SELECT `+cronColumns+fromCrons+` WHERE c.id = $1 AND c.tenant = $2`, id, tenant))
	return c, s.fault(err)
}

// ChangeCron changes a cron; what names it, whose it is and its making stay.
func (s *Store) ChangeCron(ctx context.Context, tenant, id string, change func(*conversation.Cron) error) (c conversation.Cron, err error) {
	err = s.update(ctx, durable, func(t *tx) error {
		if c, err = scanCron(t.row(`SELECT `+cronColumns+fromCrons+` WHERE c.id = $1 AND c.tenant = $2`, id, tenant)); err != nil {
			return err
		}
		c.UpdatedAt = column.FromMicros(column.Micros(s.now()))
		if err := change(&c); err != nil {
			return err
		}
		return t.setCron(c)
	})
	return c, err
}

func (t *tx) setCron(c conversation.Cron) error {
	v, err := cronValues(c)
	if err != nil {
		return err
	}
	_, err = t.exec(`UPDATE crons SET schedule = $2, timezone = $3, run = $4, metadata = $5, keep = $6, enabled = $7, end_at = $8, next_at = $9, last_at = $10,
			last_thread = $11, last_run = $12, failure = $13, updated_at = $14 WHERE id = $1`,
		append([]any{v[0]}, append(slices.Clone(v[5:17]), v[18])...)...)
	return err
}

// RemoveCron forgets a cron. NotFound when there is none.
func (s *Store) RemoveCron(ctx context.Context, tenant, id string) error {
	return s.update(ctx, durable, func(t *tx) error {
		n, err := t.exec(`DELETE FROM crons WHERE id = $1 AND tenant = $2`, id, tenant)
		if err == nil && n == 0 {
			err = noSuchCron()
		}
		return err
	})
}

// CronQuery selects crons of a tenant; the zero value but for it selects all.
type CronQuery struct {
	Tenant      string
	AssistantID string // "": any
	ThreadID    string // "": any
	Enabled     *bool  // nil: any
	Metadata    map[string]json.RawMessage
	SortBy      string // cron_id, assistant_id, thread_id, next_run_date, end_time, created_at, updated_at; else created_at
	Descending  bool
	Limit       int // 0: 100; at most 1000
	Offset      int
}

// CronIDs returns the ids of those that a query selects, ties by id, and how many there
// are without its bounds.
func (s *Store) CronIDs(ctx context.Context, q CronQuery) (ids []string, total int, err error) {
	want, err := canonical.Entries(q.Metadata, canonical.MaxMatch)
	if err != nil {
		return nil, 0, err
	}
	rows, err := s.reads.Rows(ctx, `SELECT c.id, c.assistant, COALESCE(t.id, ''), c.enabled, c.next_at, c.end_at, c.created_at, c.updated_at, c.metadata`+fromCrons+`
			WHERE c.tenant = $1 ORDER BY c.created_at, c.id`, q.Tenant)
	type listed struct {
		id, key string
		at      int64
	}
	var found []listed
	_, err = engine.Collect(rows, err, func(r engine.Row) (_ struct{}, err error) {
		var id, assistant, thread string
		var enabled int
		var next, end, created, updated int64
		var text sql.RawBytes // of the row at hand
		if err := r.Scan(&id, &assistant, &thread, &enabled, &next, &end, &created, &updated, &text); err != nil {
			return struct{}{}, err
		}
		if q.AssistantID != "" && assistant != q.AssistantID || q.ThreadID != "" && thread != q.ThreadID || q.Enabled != nil && *q.Enabled != (enabled == 1) {
			return struct{}{}, nil
		}
		if len(want) > 0 {
			var about map[string]json.RawMessage
			if err := column.Read(text, &about); err != nil {
				return struct{}{}, err
			}
			if matches, err := canonical.Has(about, want); err != nil || !matches {
				return struct{}{}, err
			}
		}
		l := listed{id: id, at: created}
		switch q.SortBy {
		case "cron_id":
			l.key, l.at = id, 0
		case "assistant_id":
			l.key, l.at = assistant, 0
		case "thread_id":
			l.key, l.at = thread, 0
		case "next_run_date":
			l.at = next
		case "end_time":
			l.at = end
		case "updated_at":
			l.at = updated
		}
		found = append(found, l)
		return struct{}{}, nil
	})
	if err != nil {
		return nil, 0, s.fault(err)
	}
	slices.SortFunc(found, func(a, b listed) int {
		n := cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.at, b.at), cmp.Compare(a.id, b.id))
		if q.Descending {
			n = -n
		}
		return n
	})
	offset := min(max(q.Offset, 0), len(found))
	for _, l := range found[offset:min(offset+limit(q.Limit), len(found))] {
		ids = append(ids, l.id)
	}
	return ids, len(found), nil
}

// NextCron is when the next run of any cron is to begin; zero: none is to come.
func (s *Store) NextCron(ctx context.Context) (time.Time, error) {
	var at sql.NullInt64
	err := s.reads.Row(ctx, `SELECT MIN(next_at) FROM crons WHERE enabled = 1 AND next_at > 0`).Scan(&at)
	return column.FromMicros(at.Int64), s.fault(err)
}

// ClaimCron returns the cron that is due for longest as claim left it: Next is when it is
// due again. Nobody else is given the same run, and the claim is durable. NotFound when
// none is due.
func (s *Store) ClaimCron(ctx context.Context, claim func(*conversation.Cron)) (c conversation.Cron, err error) {
	err = s.update(ctx, durable, func(t *tx) error {
		c, err = scanCron(t.row(`SELECT `+cronColumns+fromCrons+` WHERE c.enabled = 1 AND c.next_at > 0 AND c.next_at <= $1
				ORDER BY c.next_at, c.id LIMIT 1`, column.Micros(s.now())))
		if err != nil {
			return err
		}
		claim(&c)
		return t.setCron(c)
	})
	return c, err
}

// EndCronClaim notes what became of a claim: the run that began, or why none did. A cron
// that has gone is no error.
func (s *Store) EndCronClaim(ctx context.Context, c conversation.Cron) error {
	return s.update(ctx, relaxed, func(t *tx) error {
		_, err := t.exec(`UPDATE crons SET last_thread = $2, last_run = $3, failure = $4 WHERE id = $1`, c.ID, c.LastThread, c.LastRun, c.Failure)
		return err
	})
}

// cronValues are those of a row.
func cronValues(c conversation.Cron) ([]any, error) {
	run, errRun := column.Text(c.Run)
	_, errNames := canonical.Entries(c.Metadata, canonical.MaxMetadata)
	metadata, err := column.Metadata(c.Metadata)
	if err := errors.Join(errRun, errNames, err); err != nil {
		return nil, err
	}
	thread := sql.NullString{String: string(c.Thread), Valid: c.Thread != ""}
	return []any{
		c.ID, c.Tenant, c.Owner, c.AssistantID, thread, c.Schedule, c.Timezone, run, metadata, asInt(c.Keep), asInt(c.Enabled), column.Micros(c.EndTime), column.Micros(c.Next),
		column.Micros(c.LastAt), c.LastThread, c.LastRun, c.Failure, column.Micros(c.CreatedAt), column.Micros(c.UpdatedAt),
	}, nil
}

func scanCron(r engine.Row) (c conversation.Cron, err error) {
	var thread, run, metadata string
	var keep, enabled int
	var end, next, last, created, updated int64
	err = r.Scan(&c.ID, &c.Tenant, &c.Owner, &c.AssistantID, &thread, &c.ThreadID, &c.Schedule, &c.Timezone, &run, &metadata, &keep, &enabled,
		&end, &next, &last, &c.LastThread, &c.LastRun, &c.Failure, &created, &updated)
	if errors.Is(err, sql.ErrNoRows) {
		return c, noSuchCron()
	}
	if err != nil {
		return c, err
	}
	c.Thread, c.Keep, c.Enabled = sandbox.UID(thread), keep == 1, enabled == 1
	c.EndTime, c.Next, c.LastAt, c.CreatedAt, c.UpdatedAt = column.FromMicros(end), column.FromMicros(next), column.FromMicros(last), column.FromMicros(created), column.FromMicros(updated)
	return c, errors.Join(column.Read([]byte(run), &c.Run), column.Read([]byte(metadata), &c.Metadata))
}
