package store

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store/canonical"
	"github.com/cubbyhq/cubby/internal/store/column"
	"github.com/cubbyhq/cubby/internal/store/engine"
)

// ConversationQuery selects threads; the zero value selects all, the oldest first.
type ConversationQuery struct {
	Tenant     *string  // nil: any
	IDs        []string // none: any; at most 1000
	Status     conversation.ThreadStatus
	Metadata   map[string]json.RawMessage // all must be equal
	SortBy     string                     // thread_id, status, created_at, updated_at, state_updated_at; else created_at
	Descending bool
	Limit      int // 0: 100; at most 1000
	Offset     int
}

const conversationBytes = `octet_length(c.metadata) + octet_length(c.config) + octet_length(c.error)`

var conversationOrders = map[string]string{
	"thread_id": "c.id", "status": "c.status", "updated_at": "c.updated_at", "state_updated_at": "c.state_updated_at",
}

// Key names a row that a query selects, for who reads the rows one after the other:
// all of them together may be larger than any memory.
type Key struct {
	UID     sandbox.UID // of a thread
	ID      string      // of the thread, the assistant, the run or the checkpoint
	Version int         // of an assistant, when the row is one of its versions
	Bytes   int64       // about how many the row has
}

// Conversations returns the keys of the threads that a query selects, ties by UID, and
// how many there are without its bounds.
func (s *Store) Conversations(ctx context.Context, q ConversationQuery) (page []Key, total int, err error) {
	where, args, err := q.build()
	if err != nil {
		return nil, 0, err
	}
	// The texts of other queries are too many to be kept compiled.
	rows := s.reads.Rows
	if len(q.IDs) > 0 || len(q.Metadata) > 2 {
		rows = s.reads.RowsOnce
	}
	counts, err := rows(ctx, `SELECT COUNT(*) FROM conversations c`+where, args...)
	n, err := engine.Collect(counts, err, func(r engine.Row) (n int, err error) { return n, r.Scan(&n) })
	if err != nil {
		return nil, 0, s.fault(err)
	}
	order, known := conversationOrders[q.SortBy]
	if !known {
		order = "c.created_at"
	}
	direction := ""
	if q.Descending {
		direction = " DESC"
	}
	found, err := rows(ctx, `SELECT c.uid, c.id, `+conversationBytes+` FROM conversations c`+where+` ORDER BY `+order+direction+`, c.uid`+direction+
		` LIMIT $`+strconv.Itoa(len(args)+1)+` OFFSET $`+strconv.Itoa(len(args)+2), append(args, limit(q.Limit), max(q.Offset, 0))...)
	page, err = engine.Collect(found, err, func(r engine.Row) (k Key, err error) { return k, r.Scan(&k.UID, &k.ID, &k.Bytes) })
	return page, n[0], s.fault(err)
}

// build writes the condition.
func (q ConversationQuery) build() (where string, args []any, err error) {
	arg := func(v any) string {
		args = append(args, v)
		return "$" + strconv.Itoa(len(args))
	}
	var all []string
	if q.Tenant != nil {
		all = append(all, "c.tenant = "+arg(*q.Tenant))
	}
	if len(q.IDs) > maxLimit {
		return "", nil, errs.E(errs.Invalid, "%d ids are asked for, at most %d are possible", len(q.IDs), maxLimit)
	}
	if len(q.IDs) > 0 {
		in := make([]string, len(q.IDs))
		for i, id := range q.IDs {
			in[i] = arg(id)
		}
		all = append(all, "c.id IN ("+strings.Join(in, ", ")+")")
	}
	if q.Status != "" {
		all = append(all, "c.status = "+arg(q.Status))
	}
	want, err := canonical.Entries(q.Metadata, canonical.MaxMatch)
	if err != nil {
		return "", nil, err
	}
	for _, e := range want {
		all = append(all, "EXISTS (SELECT 1 FROM conversation_metadata m WHERE m.thread = c.uid AND m.name = "+arg(e.Name)+
			" AND m.value = "+arg(e.Value)+")")
	}
	if len(all) == 0 {
		return "", nil, nil
	}
	return " WHERE " + strings.Join(all, " AND "), args, nil
}

// staleConversations numbers the threads of each tenant that are not busy, from the
// one that changed last.
const staleConversations = `SELECT ` + conversationColumns + ` FROM (
		SELECT ` + conversationColumns + `, ROW_NUMBER() OVER (PARTITION BY tenant ORDER BY updated_at DESC, uid DESC) AS nth
		FROM conversations WHERE status <> 'busy') c
	WHERE (updated_at < $1 OR nth > $2) AND uid > $3 ORDER BY uid LIMIT $4`

// StaleConversations returns threads that are not busy and have not changed since a
// time, or that are not among the newest of their tenant, by UID, after one of them
// ("": from the first on). A page ends early when what it has is large, and is empty
// after the last. A negative keepNewest keeps all.
func (s *Store) StaleConversations(ctx context.Context, before time.Time, keepNewest int, after sandbox.UID, most int) ([]conversation.Thread, error) {
	if keepNewest < 0 {
		keepNewest = 1 << 31
	}
	rows, err := s.reads.Rows(ctx, staleConversations, column.Micros(before), keepNewest, after, limit(most))
	list, _, err := engine.CollectPage(rows, err, scanConversation, func(c conversation.Thread) int64 { return c.Bytes() })
	return list, s.fault(err)
}
