package store

import (
	"context"
	"database/sql"
	"errors"
	"strconv"

	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store/column"
	"github.com/cubbyhq/cubby/internal/store/engine"
)

const runColumns = `thread, seq, id, assistant, status, error, metadata, multitask, request, created_at, updated_at`

func noSuchRun() error { return errs.E(errs.NotFound, "no such run") }

// runPlace is what the secret of a run is sealed for.
func runPlace(uid sandbox.UID, id string) string { return "run " + string(uid) + "/" + id }

// NewRun is a run that is to be added.
type NewRun struct {
	// Run is pending unless it says otherwise; zero times become now. Its Seq is
	// given by the store.
	Run conversation.Run
	// Change, when not nil, is done to the thread together with that. It may be
	// called again, with the thread as it was.
	Change func(*conversation.Thread) error
}

// CreateRun adds a run to its thread and returns it without its secret. It is
// durable. NotFound when there is no such thread, Conflict when it has a run with the
// id.
func (s *Store) CreateRun(ctx context.Context, n NewRun) (r conversation.Run, err error) {
	now := s.now()
	r = n.Run
	r.Secret = ""
	r.CreatedAt = column.FromMicros(column.Micros(orTime(r.CreatedAt, now)))
	r.UpdatedAt = column.FromMicros(column.Micros(orTime(r.UpdatedAt, now)))
	if r.Status == "" {
		r.Status = conversation.RunPending
	}
	secret := ""
	if n.Run.Secret != "" && !r.Status.Ended() {
		secret = s.seal.Seal(runPlace(r.Thread, r.ID), []byte(n.Run.Secret))
	}
	failure, errError := column.Raw(r.Error)
	metadata, errMetadata := column.Metadata(r.Metadata)
	request, err := column.Text(r.Request)
	if err := errors.Join(errError, errMetadata, err); err != nil {
		return conversation.Run{}, err
	}
	err = s.update(ctx, durable, func(t *tx) error {
		thread, err := scanConversation(t.row(selectConversation, r.Thread))
		if err != nil {
			return err
		}
		if err := t.row(`UPDATE conversations SET last_run = last_run + 1 WHERE uid = $1 RETURNING last_run`, r.Thread).Scan(&r.Seq); err != nil {
			return err
		}
		if _, err := t.exec(`INSERT INTO runs (`+runColumns+`, tenant, secret) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)`,
			r.Thread, r.Seq, r.ID, r.AssistantID, r.Status, failure, metadata, r.Multitask, request, column.Micros(r.CreatedAt), column.Micros(r.UpdatedAt),
			thread.Tenant, secret); err != nil {
			return err
		}
		t.told = append(t.told, r.Thread)
		if n.Change == nil {
			return nil
		}
		_, err = t.changeConversation(thread, thread, now, n.Change)
		return err
	})
	if err != nil {
		return conversation.Run{}, err
	}
	return r, nil
}

const selectRun = `SELECT ` + runColumns + ` FROM runs WHERE thread = $1 AND id = $2`

// ConversationRun returns a run of a thread; NotFound when it has none with the id. No
// run that is returned has its secret: see [Store.RunSecret].
func (s *Store) ConversationRun(ctx context.Context, uid sandbox.UID, id string) (conversation.Run, error) {
	r, err := scanRun(s.reads.Row(ctx, selectRun, uid, id))
	return r, s.fault(err)
}

// RunQuery selects runs of a thread; the zero value selects all.
type RunQuery struct {
	Status     conversation.RunStatus // "": any
	Unfinished bool                   // those alone that have not ended
	From       int64                  // their numbers are this or greater
	Oldest     bool                   // the oldest comes first, and not the newest
	Limit      int                    // 0: 100; at most 1000
	Offset     int
}

const LongInput = 16 << 10 // what is longer, as one with images, is left out of lists

func scanRunOfMany(r engine.Row) (n conversation.Run, err error) {
	if n, err = scanRun(r); len(n.Request.Input) > LongInput {
		n.Request.Input = nil
	}
	return n, err
}

// Runs returns those that a query selects, without long inputs. A page ends early when
// what it has is large.
func (s *Store) Runs(ctx context.Context, uid sandbox.UID, q RunQuery) ([]conversation.Run, error) {
	query, args := q.build(uid, runColumns)
	rows, err := s.reads.Rows(ctx, query, args...)
	list, _, err := engine.CollectPage(rows, err, scanRunOfMany, func(r conversation.Run) int64 { return r.Bytes() })
	return list, s.fault(err)
}

// RunsOfAssistant returns runs of a tenant that are of an assistant, in any of its
// threads, without long inputs. At most n; at least one while there are any.
func (s *Store) RunsOfAssistant(ctx context.Context, tenant, assistant string, n int) ([]conversation.Run, error) {
	rows, err := s.reads.Rows(ctx, `SELECT `+runColumns+` FROM runs WHERE tenant = $1 AND assistant = $2 ORDER BY thread, seq LIMIT $3`, tenant, assistant, n)
	list, err := engine.Collect(rows, err, scanRunOfMany)
	return list, s.fault(err)
}

// RunKeys returns the keys of those that a query selects.
func (s *Store) RunKeys(ctx context.Context, uid sandbox.UID, q RunQuery) ([]Key, error) {
	query, args := q.build(uid, `id, octet_length(request) + octet_length(metadata) + octet_length(error)`)
	rows, err := s.reads.Rows(ctx, query, args...)
	list, err := engine.Collect(rows, err, scanKey)
	return list, s.fault(err)
}

func scanKey(r engine.Row) (k Key, err error) { return k, r.Scan(&k.ID, &k.Bytes) }

func (q RunQuery) build(uid sandbox.UID, columns string) (query string, args []any) {
	query, args = `SELECT `+columns+` FROM runs WHERE thread = $1`, []any{uid, limit(q.Limit), max(q.Offset, 0)}
	if q.Status != "" {
		args = append(args, q.Status)
		query += ` AND status = $` + strconv.Itoa(len(args))
	}
	if q.Unfinished {
		query += ` AND status IN ('pending', 'running')`
	}
	if q.From > 0 {
		args = append(args, q.From)
		query += ` AND seq >= $` + strconv.Itoa(len(args))
	}
	order := ` ORDER BY seq DESC`
	if q.Oldest {
		order = ` ORDER BY seq`
	}
	return query + order + ` LIMIT $2 OFFSET $3`, args
}

// UnfinishedRuns returns the runs of all threads that have not ended, those of a
// thread in their order, without long inputs.
func (s *Store) UnfinishedRuns(ctx context.Context) ([]conversation.Run, error) {
	rows, err := s.reads.Rows(ctx, `SELECT `+runColumns+` FROM runs WHERE status IN ('pending', 'running') ORDER BY tenant, thread, seq`)
	list, err := engine.Collect(rows, err, scanRunOfMany)
	return list, s.fault(err)
}

// ChangeRunAndThread changes a run and its thread, in one; UpdatedAt is now unless
// change sets it. What names them, their making and the run's secret stay. It is
// relaxed, and durable when the run has ended with it: then its secret is erased.
// WrongState when the run had ended, with another status. change may be called again,
// with both as they were.
func (s *Store) ChangeRunAndThread(ctx context.Context, uid sandbox.UID, id string, change func(*conversation.Run, *conversation.Thread) error) error {
	return s.EndRun(ctx, uid, id, func(r *conversation.Run, c *conversation.Thread, _ bool) error { return change(r, c) })
}

// EndRun is [Store.ChangeRunAndThread] for a run that ends; busy says that its thread
// has another one that has not. The messages are added when the run ends with it.
func (s *Store) EndRun(ctx context.Context, uid sandbox.UID, id string, change func(r *conversation.Run, c *conversation.Thread, busy bool) error, messages ...WebhookMessage) error {
	return s.changeRun(ctx, uid, id, messages, func(t *tx, r *conversation.Run) error {
		thread, err := scanConversation(t.row(selectConversation, uid))
		if err != nil {
			return err
		}
		unfinished, err := t.unfinishedRuns(uid, id)
		if err != nil {
			return err
		}
		_, err = t.changeConversation(thread, thread, s.now(), func(c *conversation.Thread) error { return change(r, c, unfinished > 0) })
		return err
	})
}

// ChangeIdleConversation is [Store.ChangeConversation] for a thread all of whose runs
// have ended; it does nothing when one has not.
func (s *Store) ChangeIdleConversation(ctx context.Context, uid sandbox.UID, change func(*conversation.Thread) error) error {
	return s.update(ctx, relaxed, func(t *tx) error {
		thread, err := scanConversation(t.row(selectConversation, uid))
		if err != nil {
			return err
		}
		unfinished, err := t.unfinishedRuns(uid, "")
		if err != nil || unfinished > 0 {
			return err
		}
		_, err = t.changeConversation(thread, thread, s.now(), change)
		return err
	})
}

// unfinishedRuns counts the runs of a thread that have not ended, but for one.
func (t *tx) unfinishedRuns(uid sandbox.UID, but string) (n int, err error) {
	err = t.row(`SELECT COUNT(*) FROM runs WHERE thread = $1 AND status IN ('pending', 'running') AND id <> $2`, uid, but).Scan(&n)
	return n, err
}

func (s *Store) changeRun(ctx context.Context, uid sandbox.UID, id string, messages []WebhookMessage, change func(*tx, *conversation.Run) error) error {
	ended := false
	err := s.update(ctx, relaxed, func(t *tx) error {
		was, err := scanRun(t.row(selectRun, uid, id))
		if err != nil {
			return err
		}
		set := was
		set.UpdatedAt = column.FromMicros(column.Micros(s.now()))
		if err := change(t, &set); err != nil {
			return err
		}
		if was.Status.Ended() && set.Status != was.Status {
			return errs.E(errs.WrongState, "the run has ended: %s", was.Status)
		}
		ended = set.Status.Ended() && !was.Status.Ended()
		for _, m := range messages {
			if !ended {
				break
			}
			if err := t.addWebhookMessage(m, s.now()); err != nil {
				return err
			}
		}
		failure, errError := column.Raw(set.Error)
		metadata, errMetadata := column.Metadata(set.Metadata)
		request, err := column.Text(set.Request)
		if err := errors.Join(errError, errMetadata, err); err != nil {
			return err
		}
		_, err = t.exec(`UPDATE runs SET assistant = $3, status = $4, error = $5, metadata = $6, multitask = $7, request = $8, updated_at = $9,
				secret = CASE WHEN $10 = 1 THEN '' ELSE secret END WHERE thread = $1 AND seq = $2`,
			uid, was.Seq, set.AssistantID, set.Status, failure, metadata, set.Multitask, request, column.Micros(set.UpdatedAt), asInt(set.Status.Ended()))
		return err
	})
	if err == nil && ended {
		err = s.flush()
	}
	return err
}

// SizeOfRun is about how many bytes the request of a run, or of none, and messages have.
func (s *Store) SizeOfRun(ctx context.Context, uid sandbox.UID, id string, messages conversation.Refs) (size int64, err error) {
	err = s.reads.Row(ctx, `SELECT COALESCE(SUM(octet_length(request)), 0) FROM runs WHERE thread = $1 AND id = $2`, uid, id).Scan(&size)
	for first, last := range messages.Spans() {
		var more int64
		if err == nil {
			err = s.reads.Row(ctx, `SELECT COALESCE(SUM(octet_length(body)), 0) FROM conversation_messages WHERE thread = $1 AND place BETWEEN $2 AND $3`, uid, first, last).Scan(&more)
		}
		size += more
	}
	return size, s.fault(err)
}

// RunSecret opens the secret of a run; "" when it has none, or has ended.
func (s *Store) RunSecret(ctx context.Context, uid sandbox.UID, id string) (string, error) {
	var sealed string
	err := s.reads.Row(ctx, `SELECT secret FROM runs WHERE thread = $1 AND id = $2`, uid, id).Scan(&sealed)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return "", noSuchRun()
	case err != nil:
		return "", s.fault(err)
	case sealed == "":
		return "", nil
	}
	secret, err := s.seal.Open(runPlace(uid, id), sealed)
	if err != nil {
		return "", errs.E(errs.Internal, "the key that came with the run cannot be opened").
			Hint("the key file does not belong to this database; restore it, or start the run again").Because(err)
	}
	return string(secret), nil
}

// RemoveRun forgets a run. With its checkpoints the thread is as if it had not been:
// its head, when it is one of them, becomes the newest of the others, and messages
// that no other checkpoint has are gone too. Checkpoints of other runs that came of
// them stay.
func (s *Store) RemoveRun(ctx context.Context, uid sandbox.UID, id string, withCheckpoints bool) error {
	return s.update(ctx, durable, func(t *tx) error {
		n, err := t.exec(`DELETE FROM runs WHERE thread = $1 AND id = $2`, uid, id)
		if err != nil {
			return err
		}
		if n == 0 {
			return noSuchRun()
		}
		if !withCheckpoints {
			return nil
		}
		thread, err := scanConversation(t.row(selectConversation, uid))
		if err != nil {
			return err
		}
		return t.dropCheckpoints(thread, id, s.now())
	})
}

func scanRun(r engine.Row) (n conversation.Run, err error) {
	var failure, metadata, request string
	var created, updated int64
	err = r.Scan(&n.Thread, &n.Seq, &n.ID, &n.AssistantID, &n.Status, &failure, &metadata, &n.Multitask, &request, &created, &updated)
	if errors.Is(err, sql.ErrNoRows) {
		return n, noSuchRun()
	}
	if err != nil {
		return n, err
	}
	n.Error, n.CreatedAt, n.UpdatedAt = column.ReadRaw(failure), column.FromMicros(created), column.FromMicros(updated)
	return n, errors.Join(column.Read([]byte(metadata), &n.Metadata), column.Read([]byte(request), &n.Request))
}
