package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store/canonical"
	"github.com/cubbyhq/cubby/internal/store/column"
	"github.com/cubbyhq/cubby/internal/store/engine"
)

const checkpointColumns = `id, parent, source, step, nodes, tasks, metadata, run, messages, created_at, approval`

func noSuchCheckpoint() error { return errs.E(errs.NotFound, "no such checkpoint") }

// CommitRequest is a step of a thread.
type CommitRequest struct {
	Thread sandbox.UID
	// Checkpoint is what is added; a zero CreatedAt becomes now. Its Messages are
	// those of State.
	Checkpoint conversation.Checkpoint
	// State are the messages of the checkpoint, in order. Those without a place are
	// added to the thread.
	State []conversation.Entry
	// Head makes it the thread's, whose StateUpdatedAt becomes now.
	Head bool
	// Durable makes it one; it is relaxed otherwise.
	Durable bool
	// Change, when not nil, is done to the thread together with all that. It may be
	// called again, with the thread as it was.
	Change func(*conversation.Thread) error
}

// Commit adds a checkpoint to a thread, with the messages that it adds, and returns
// both as they are stored. NotFound when there is no such thread; Conflict when it
// has a checkpoint with the id, or lacks a message of the state.
func (s *Store) Commit(ctx context.Context, r CommitRequest) (made conversation.Checkpoint, state []conversation.Entry, err error) {
	// Large texts are not made while others wait.
	bodies := make([]string, len(r.State))
	var old conversation.Refs
	added := 0
	for i, m := range r.State {
		if m.Place != 0 {
			old.Add(m.Place)
			continue
		}
		if bodies[i], err = column.Text(m.Message); err != nil {
			return made, nil, err
		}
		added++
	}
	now := s.now()
	strength := relaxed
	if r.Durable {
		strength = durable
	}
	err = s.update(ctx, strength, func(t *tx) error {
		was, err := scanConversation(t.row(selectConversation, r.Thread))
		if err != nil {
			return err
		}
		if err := t.wantMessages(r.Thread, old); err != nil {
			return err
		}
		made, state = r.Checkpoint, slices.Clone(r.State)
		made.CreatedAt = column.FromMicros(column.Micros(orTime(made.CreatedAt, now)))
		if err := t.placeMessages(r.Thread, state, bodies, added); err != nil {
			return err
		}
		made.Messages = conversation.Refs{}
		for _, m := range state {
			made.Messages.Add(m.Place)
		}
		if err := t.addCheckpoint(r.Thread, made); err != nil {
			return err
		}
		if !r.Head && r.Change == nil {
			return nil
		}
		set := was
		if r.Head {
			set.Head, set.StateUpdatedAt = made.ID, column.FromMicros(column.Micros(now))
		}
		_, err = t.changeConversation(was, set, now, r.Change)
		return err
	})
	if err != nil {
		return conversation.Checkpoint{}, nil, err
	}
	return made, state, nil
}

// placeMessages adds the messages of a state that have no place, and gives them one.
func (t *tx) placeMessages(uid sandbox.UID, state []conversation.Entry, bodies []string, added int) error {
	if added == 0 {
		return nil
	}
	var last int64
	if err := t.row(`UPDATE conversations SET last_place = last_place + $2 WHERE uid = $1 RETURNING last_place`, uid, added).Scan(&last); err != nil {
		return err
	}
	place := last - int64(added)
	for i := range state {
		if state[i].Place != 0 {
			continue
		}
		place++
		if _, err := t.exec(`INSERT INTO conversation_messages (thread, place, body) VALUES ($1, $2, $3)`, uid, place, bodies[i]); err != nil {
			return err
		}
		state[i].Place = place
	}
	return nil
}

func (t *tx) addCheckpoint(uid sandbox.UID, c conversation.Checkpoint) error {
	if _, err := canonical.Entries(c.Metadata, canonical.MaxMetadata); err != nil {
		return err
	}
	next, errNext := column.List(c.Next)
	tasks, errTasks := column.List(c.Tasks)
	metadata, errMetadata := column.Metadata(c.Metadata)
	approval, err := encodeApproval(c.Approval)
	if err := errors.Join(errNext, errTasks, errMetadata, err); err != nil {
		return err
	}
	_, err = t.exec(`INSERT INTO checkpoints (thread, `+checkpointColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`,
		uid, c.ID, c.Parent, c.Source, c.Step, next, tasks, metadata, c.RunID, c.Messages.String(), column.Micros(c.CreatedAt), approval)
	return err
}

const selectCheckpoint = `SELECT ` + checkpointColumns + ` FROM checkpoints WHERE thread = $1 AND id = $2`

// Checkpoint returns a checkpoint of a thread; NotFound when it has none with the id.
func (s *Store) Checkpoint(ctx context.Context, uid sandbox.UID, id string) (conversation.Checkpoint, error) {
	c, err := scanCheckpoint(s.reads.Row(ctx, selectCheckpoint, uid, id))
	return c, s.fault(err)
}

// CheckpointQuery selects checkpoints of a thread; the zero value selects all.
type CheckpointQuery struct {
	Before   string                     // with smaller ids; "": from the greatest on
	RunID    string                     // "": any
	Metadata map[string]json.RawMessage // all must be equal
	Limit    int                        // 0: 100; at most 1000
}

// checkpointBatch is how many are looked at once when not all of them are wanted.
const checkpointBatch = 200

// Checkpoints returns the keys of those that a query selects, the greatest id, which is
// the newest, first.
func (s *Store) Checkpoints(ctx context.Context, uid sandbox.UID, q CheckpointQuery) ([]Key, error) {
	want, err := canonical.Entries(q.Metadata, canonical.MaxMatch)
	if err != nil {
		return nil, err
	}
	n := limit(q.Limit)
	batch, about := n, `''`
	if len(want) > 0 {
		batch, about = checkpointBatch, `metadata`
	}
	type listed struct {
		Key

		selected bool
	}
	var page []Key
	for before := q.Before; ; {
		query, args := `SELECT id, octet_length(metadata) + octet_length(tasks) + octet_length(messages), `+about+` FROM checkpoints
			WHERE thread = $1`, []any{uid, batch}
		and := func(condition string, value any) {
			args = append(args, value)
			query += " AND " + condition + " $" + strconv.Itoa(len(args))
		}
		if before != "" {
			and("id <", before)
		}
		if q.RunID != "" {
			and("run <> '' AND run =", q.RunID) // in these words, or the index does not count
		}
		rows, err := s.reads.Rows(ctx, query+` ORDER BY id DESC LIMIT $2`, args...)
		some, err := engine.Collect(rows, err, func(r engine.Row) (k listed, err error) {
			var metadata sql.RawBytes // of the row at hand
			if err := r.Scan(&k.ID, &k.Bytes, &metadata); err != nil || len(want) == 0 {
				k.selected = true
				return k, err
			}
			var of map[string]json.RawMessage
			if err := column.Read(metadata, &of); err != nil {
				return k, err
			}
			k.selected, err = canonical.Has(of, want)
			return k, err
		})
		if err != nil {
			return nil, s.fault(err)
		}
		for _, c := range some {
			if c.selected {
				page = append(page, c.Key)
			}
			if len(page) == n {
				return page, nil
			}
			before = c.ID
		}
		if len(some) < batch {
			return page, nil
		}
	}
}

// AnnotateCheckpoint sets names of a checkpoint's metadata, and leaves the others. It
// is relaxed.
func (s *Store) AnnotateCheckpoint(ctx context.Context, uid sandbox.UID, id string, metadata map[string]json.RawMessage) (c conversation.Checkpoint, err error) {
	err = s.update(ctx, relaxed, func(t *tx) error {
		if c, err = scanCheckpoint(t.row(selectCheckpoint, uid, id)); err != nil {
			return err
		}
		if c.Metadata == nil {
			c.Metadata = make(map[string]json.RawMessage, len(metadata))
		}
		maps.Copy(c.Metadata, metadata)
		if _, err := canonical.Entries(c.Metadata, canonical.MaxMetadata); err != nil {
			return err
		}
		text, err := column.Metadata(c.Metadata)
		if err != nil {
			return err
		}
		_, err = t.exec(`UPDATE checkpoints SET metadata = $3 WHERE thread = $1 AND id = $2`, uid, id, text)
		return err
	})
	return c, err
}

// dropCheckpoints forgets the checkpoints of a run, and the messages that only they
// have. When the thread's head is one of them, the newest that is left becomes it: the
// head before the run, which need not be where the run began.
func (t *tx) dropCheckpoints(thread conversation.Thread, run string, now time.Time) error {
	rows, err := t.rows(`SELECT `+checkpointColumns+` FROM checkpoints WHERE thread = $1 AND run <> '' AND run = $2 ORDER BY id`, thread.UID, run)
	gone, err := engine.Collect(rows, err, scanCheckpoint)
	if err != nil || len(gone) == 0 {
		return err
	}
	if _, err := t.exec(`DELETE FROM checkpoints WHERE thread = $1 AND run <> '' AND run = $2`, thread.UID, run); err != nil {
		return err
	}
	var places []int64
	before := conversation.Refs{}
	for _, c := range gone {
		// Most have what the one before has, and some more.
		if c.Messages.String() != before.String() {
			places = slices.AppendSeq(places, c.Messages.All())
		}
		before = c.Messages
	}
	if err := t.dropMessages(thread.UID, places); err != nil {
		return err
	}
	if !slices.ContainsFunc(gone, func(c conversation.Checkpoint) bool { return c.ID == thread.Head }) {
		return nil
	}
	set := thread
	set.StateUpdatedAt = column.FromMicros(column.Micros(now))
	if err := t.row(`SELECT COALESCE(MAX(id), '') FROM checkpoints WHERE thread = $1`, thread.UID).Scan(&set.Head); err != nil {
		return err
	}
	_, err = t.changeConversation(thread, set, now, nil)
	return err
}

func scanCheckpoint(r engine.Row) (c conversation.Checkpoint, err error) {
	var next, tasks, metadata, messages, approval string
	var created int64
	err = r.Scan(&c.ID, &c.Parent, &c.Source, &c.Step, &next, &tasks, &metadata, &c.RunID, &messages, &created, &approval)
	if errors.Is(err, sql.ErrNoRows) {
		return c, noSuchCheckpoint()
	}
	if err != nil {
		return c, err
	}
	c.CreatedAt = column.FromMicros(created)
	if c.Messages, err = conversation.ParseRefs(messages); err != nil {
		return c, err
	}
	if approval != "" {
		if err := column.Read([]byte(approval), &c.Approval); err != nil {
			return c, err
		}
	}
	return c, errors.Join(column.Read([]byte(next), &c.Next), column.Read([]byte(tasks), &c.Tasks), column.Read([]byte(metadata), &c.Metadata))
}

// PauseCheckpoint stores the tasks of a checkpoint, which say why they wait or failed,
// and its approval. NotFound when the thread has none with the id.
func (s *Store) PauseCheckpoint(ctx context.Context, uid sandbox.UID, c conversation.Checkpoint) error {
	tasks, errTasks := column.List(c.Tasks)
	approval, err := encodeApproval(c.Approval)
	if err := errors.Join(errTasks, err); err != nil {
		return err
	}
	return s.update(ctx, durable, func(t *tx) error {
		n, err := t.exec(`UPDATE checkpoints SET tasks = $3, approval = $4 WHERE thread = $1 AND id = $2`, uid, c.ID, tasks, approval)
		if err == nil && n == 0 {
			err = noSuchCheckpoint()
		}
		return err
	})
}

func encodeApproval(a *conversation.Approval) (string, error) {
	if a == nil {
		return "", nil
	}
	return column.Text(a)
}
