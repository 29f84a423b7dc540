package store

import (
	"context"
	"time"

	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store/column"
	"github.com/cubbyhq/cubby/internal/store/engine"
)

// ConversationUse is about how many bytes a thread has in the database, with all that
// is below it. What it tells is in journals.
type ConversationUse struct {
	Thread sandbox.UID
	Tenant string
	Bytes  int64
}

// ConversationUses returns the use of all threads, or of those of one tenant.
func (s *Store) ConversationUses(ctx context.Context, tenant *string) ([]ConversationUse, error) {
	query, args := `SELECT thread, tenant, bytes FROM conversation_use`, []any{}
	if tenant != nil {
		query, args = query+` WHERE tenant = $1`, append(args, *tenant)
	}
	rows, err := s.reads.Rows(ctx, query, args...)
	list, err := engine.Collect(rows, err, func(r engine.Row) (u ConversationUse, err error) { return u, r.Scan(&u.Thread, &u.Tenant, &u.Bytes) })
	return list, s.fault(err)
}

// AssistantBytes is about how many bytes the assistants of a tenant have, with their
// versions.
func (s *Store) AssistantBytes(ctx context.Context, tenant string) (bytes int64, err error) {
	err = s.reads.Row(ctx, `SELECT (SELECT COALESCE(SUM(512 + octet_length(description) + octet_length(config) + octet_length(context) + octet_length(metadata)), 0)
			FROM assistants WHERE tenant = $1) + (SELECT COALESCE(SUM(256 + octet_length(description) + octet_length(config) + octet_length(context) + octet_length(metadata)), 0)
			FROM assistant_versions WHERE tenant = $1)`, tenant).Scan(&bytes)
	return bytes, s.fault(err)
}

// RestingConversations returns the threads of a tenant that wait for nobody and have
// not changed since a time, the longest unused first.
func (s *Store) RestingConversations(ctx context.Context, tenant string, before time.Time) ([]sandbox.UID, error) {
	rows, err := s.reads.Rows(ctx, `SELECT uid FROM conversations WHERE tenant = $1 AND status <> 'busy' AND status <> $2 AND updated_at < $3
			ORDER BY updated_at, uid`, tenant, conversation.ThreadInterrupted, column.Micros(before))
	list, err := engine.Collect(rows, err, func(r engine.Row) (uid sandbox.UID, err error) { return uid, r.Scan(&uid) })
	return list, s.fault(err)
}

// TrimConversation forgets how a thread became what it is: its runs, all of which have
// ended, its checkpoints but for the head, and the messages that are not in its state.
// It returns about how many bytes that was. WrongState when something goes on in it, or
// waits.
func (s *Store) TrimConversation(ctx context.Context, uid sandbox.UID) (freed int64, err error) {
	err = s.update(ctx, relaxed, func(t *tx) error {
		thread, err := scanConversation(t.row(selectConversation, uid))
		if err != nil {
			return err
		}
		unfinished, err := t.unfinishedRuns(uid, "")
		if err != nil {
			return err
		}
		if unfinished > 0 || thread.Status == conversation.ThreadBusy || thread.Status == conversation.ThreadInterrupted {
			return errs.E(errs.WrongState, "the thread is %s", thread.Status)
		}
		var before, after int64
		if err := t.row(selectUse, uid).Scan(&before); err != nil {
			return err
		}
		if err := t.dropHistory(thread); err != nil {
			return err
		}
		err = t.row(selectUse, uid).Scan(&after)
		freed = before - after
		return err
	})
	return freed, err
}

const selectUse = `SELECT bytes FROM conversation_use WHERE thread = $1`

func (t *tx) dropHistory(thread conversation.Thread) error {
	if _, err := t.exec(`DELETE FROM runs WHERE thread = $1`, thread.UID); err != nil {
		return err
	}
	gone, err := t.exec(`DELETE FROM checkpoints WHERE thread = $1 AND id <> $2`, thread.UID, thread.Head)
	if err != nil || gone == 0 {
		return err
	}
	rows, err := t.rows(`SELECT place FROM conversation_messages WHERE thread = $1`, thread.UID)
	places, err := engine.Collect(rows, err, func(r engine.Row) (place int64, err error) { return place, r.Scan(&place) })
	if err != nil {
		return err
	}
	return t.dropMessages(thread.UID, places)
}
