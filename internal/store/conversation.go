package store

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store/canonical"
	"github.com/cubbyhq/cubby/internal/store/column"
	"github.com/cubbyhq/cubby/internal/store/engine"
)

// A conversation is a thread of the agent. [Thread] is another thing: what the
// sandboxes of a tenant have in common.

const conversationColumns = `uid, id, tenant, owner, metadata, config, status, error, head, created_at, updated_at, state_updated_at`

func noSuchConversation() error { return errs.E(errs.NotFound, "no such thread") }

// CreateConversation adds a thread; zero times become now, and no status is idle.
// Conflict when its tenant has one with its id.
func (s *Store) CreateConversation(ctx context.Context, c conversation.Thread) error {
	now := s.now()
	c.CreatedAt, c.UpdatedAt, c.StateUpdatedAt = orTime(c.CreatedAt, now), orTime(c.UpdatedAt, now), orTime(c.StateUpdatedAt, now)
	if c.Status == "" {
		c.Status = conversation.ThreadIdle
	}
	values, err := conversationValues(c)
	if err != nil {
		return err
	}
	err = s.update(ctx, durable, func(t *tx) error {
		if _, err := t.exec(`INSERT INTO conversations (`+conversationColumns+`, last_run, last_place)
				VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, 0, 0)`, values...); err != nil {
			return err
		}
		return t.setConversationMetadata(c)
	})
	if errors.Is(err, errs.Conflict) {
		return errs.E(errs.Conflict, "the thread exists already").Because(err)
	}
	return err
}

// Conversation returns a thread of a tenant; NotFound when it has none with the id.
func (s *Store) Conversation(ctx context.Context, tenant, id string) (conversation.Thread, error) {
	c, err := scanConversation(s.reads.Row(ctx, `SELECT `+conversationColumns+` FROM conversations WHERE tenant = $1 AND id = $2`, tenant, id))
	return c, s.fault(err)
}

const selectConversation = `SELECT ` + conversationColumns + ` FROM conversations WHERE uid = $1`

// ConversationOf returns a thread by its UID, whoever's it is.
func (s *Store) ConversationOf(ctx context.Context, uid sandbox.UID) (conversation.Thread, error) {
	c, err := scanConversation(s.reads.Row(ctx, selectConversation, uid))
	return c, s.fault(err)
}

// ChangeConversation changes a thread; UpdatedAt is now unless change sets it. What
// names it, its owner and its making stay. It is relaxed.
func (s *Store) ChangeConversation(ctx context.Context, uid sandbox.UID, change func(*conversation.Thread) error) (changed conversation.Thread, err error) {
	err = s.update(ctx, relaxed, func(t *tx) error {
		was, err := scanConversation(t.row(selectConversation, uid))
		if err != nil {
			return err
		}
		changed, err = t.changeConversation(was, was, s.now(), change)
		return err
	})
	return changed, err
}

// changeConversation writes what became of a thread: set is what it is before change,
// which may be nil.
func (t *tx) changeConversation(was, set conversation.Thread, now time.Time, change func(*conversation.Thread) error) (conversation.Thread, error) {
	before, err := column.Metadata(was.Metadata) // change may write into the map
	if err != nil {
		return was, err
	}
	set.UpdatedAt = column.FromMicros(column.Micros(now))
	if change != nil {
		if err := change(&set); err != nil {
			return was, err
		}
	}
	set.UID, set.ID, set.Tenant, set.Owner, set.CreatedAt = was.UID, was.ID, was.Tenant, was.Owner, was.CreatedAt
	values, err := conversationValues(set)
	if err != nil {
		return was, err
	}
	if _, err := t.exec(`UPDATE conversations SET id = $2, tenant = $3, owner = $4, metadata = $5, config = $6, status = $7, error = $8,
			head = $9, created_at = $10, updated_at = $11, state_updated_at = $12 WHERE uid = $1`, values...); err != nil {
		return was, err
	}
	if values[4] == before {
		return set, nil
	}
	if _, err := t.exec(`DELETE FROM conversation_metadata WHERE thread = $1`, set.UID); err != nil {
		return was, err
	}
	return set, t.setConversationMetadata(set)
}

func (t *tx) setConversationMetadata(c conversation.Thread) error {
	list, err := canonical.Entries(c.Metadata, canonical.MaxMetadata)
	if err != nil {
		return err
	}
	for _, e := range list {
		if _, err := t.exec(`INSERT INTO conversation_metadata (thread, name, value) VALUES ($1, $2, $3)`, c.UID, e.Name, e.Value); err != nil {
			return err
		}
	}
	return nil
}

// RemoveConversation forgets a thread with its messages, checkpoints and runs.
// NotFound when there is none.
func (s *Store) RemoveConversation(ctx context.Context, uid sandbox.UID) error {
	return s.update(ctx, durable, func(t *tx) error {
		n, err := t.exec(`DELETE FROM conversations WHERE uid = $1`, uid)
		if err == nil && n == 0 {
			err = noSuchConversation()
		}
		t.told = append(t.told, uid)
		return err
	})
}

// conversationValues are those of conversationColumns.
func conversationValues(c conversation.Thread) ([]any, error) {
	if _, err := canonical.Entries(c.Metadata, canonical.MaxMetadata); err != nil {
		return nil, err
	}
	config, errConfig := column.Raw(c.Config)
	failure, errError := column.Raw(c.Error)
	metadata, err := column.Metadata(c.Metadata)
	if err := errors.Join(errConfig, errError, err); err != nil {
		return nil, err
	}
	return []any{
		c.UID, c.ID, c.Tenant, c.Owner, metadata, config, c.Status, failure, c.Head,
		column.Micros(c.CreatedAt), column.Micros(c.UpdatedAt), column.Micros(c.StateUpdatedAt),
	}, nil
}

func scanConversation(r engine.Row) (c conversation.Thread, err error) {
	var metadata, config, failure string
	var created, updated, state int64
	err = r.Scan(&c.UID, &c.ID, &c.Tenant, &c.Owner, &metadata, &config, &c.Status, &failure, &c.Head, &created, &updated, &state)
	if errors.Is(err, sql.ErrNoRows) {
		return c, noSuchConversation()
	}
	if err != nil {
		return c, err
	}
	c.Config, c.Error = column.ReadRaw(config), column.ReadRaw(failure)
	c.CreatedAt, c.UpdatedAt, c.StateUpdatedAt = column.FromMicros(created), column.FromMicros(updated), column.FromMicros(state)
	return c, column.Read([]byte(metadata), &c.Metadata)
}
