package store

import (
	"context"
	"database/sql"
	"slices"
	"strconv"
	"strings"

	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store/engine"
)

// spansAtOnce is how many spans of messages one statement asks for.
const spansAtOnce = 8

// Statements about one span, and about some.
var (
	selectMessages = spansQuery(`SELECT place, body FROM conversation_messages`)
	countMessages  = spansQuery(`SELECT COUNT(*) FROM conversation_messages`)
)

func spansQuery(query string) (texts [2]string) {
	for i, n := range []int{1, spansAtOnce} {
		parts := make([]string, n)
		for j := range parts {
			parts[j] = query + ` WHERE thread = $1 AND place BETWEEN $` + strconv.Itoa(2*j+2) + ` AND $` + strconv.Itoa(2*j+3)
		}
		texts[i] = strings.Join(parts, " UNION ALL ")
	}
	return texts
}

// eachSpans runs a statement for all spans, some at once.
func eachSpans(texts [2]string, uid sandbox.UID, refs conversation.Refs, do func(query string, args ...any) error) error {
	var spans []int64
	for first, last := range refs.Spans() {
		spans = append(spans, first, last)
	}
	for some := range slices.Chunk(spans, 2*spansAtOnce) {
		args := []any{uid}
		for _, place := range some {
			args = append(args, place)
		}
		query := texts[0]
		if len(some) > 2 {
			query = texts[1]
			for len(args) < 2*spansAtOnce+1 {
				args = append(args, 1, 0) // nothing is there
			}
		}
		if err := do(query, args...); err != nil {
			return err
		}
	}
	return nil
}

// Messages returns the messages of a thread at some places, in their order. Internal
// when one is missing.
func (s *Store) Messages(ctx context.Context, uid sandbox.UID, refs conversation.Refs) ([]conversation.Entry, error) {
	var found []conversation.Entry
	err := eachSpans(selectMessages, uid, refs, func(query string, args ...any) error {
		rows, err := s.reads.Rows(ctx, query, args...)
		some, err := engine.Collect(rows, err, scanMessage)
		found = append(found, some...)
		return err
	})
	if err != nil {
		return nil, s.fault(err)
	}
	at := make(map[int64]int, len(found))
	for i, m := range found {
		at[m.Place] = i
	}
	list := make([]conversation.Entry, 0, len(found))
	for place := range refs.All() {
		i, ok := at[place]
		if !ok {
			return nil, errs.E(errs.Internal, "message %d of the thread is missing", place)
		}
		list = append(list, found[i])
	}
	return list, nil
}

// wantMessages is a Conflict when a message is missing.
func (t *tx) wantMessages(uid sandbox.UID, refs conversation.Refs) error {
	n := 0
	err := eachSpans(countMessages, uid, refs, func(query string, args ...any) error {
		rows, err := t.rows(query, args...)
		counts, err := engine.Collect(rows, err, func(r engine.Row) (n int, err error) { return n, r.Scan(&n) })
		for _, count := range counts {
			n += count
		}
		return err
	})
	if err == nil && n != refs.Len() {
		err = errs.E(errs.Conflict, "the state has messages that the thread has not").
			Hint("its run was taken back meanwhile")
	}
	return err
}

// dropMessages forgets messages that no checkpoint has, of some that were those of
// checkpoints.
func (t *tx) dropMessages(uid sandbox.UID, places []int64) error {
	slices.Sort(places)
	places = slices.Compact(places)
	rows, err := t.rows(`SELECT messages FROM checkpoints WHERE thread = $1`, uid)
	kept, err := engine.Collect(rows, err, scanRefs)
	if err != nil {
		return err
	}
	for _, refs := range kept {
		for first, last := range refs.Spans() {
			from, _ := slices.BinarySearch(places, first)
			to, _ := slices.BinarySearch(places, last+1)
			places = slices.Delete(places, from, to)
		}
	}
	var gone conversation.Refs
	for _, place := range places {
		gone.Add(place)
	}
	for first, last := range gone.Spans() {
		if _, err := t.exec(`DELETE FROM conversation_messages WHERE thread = $1 AND place BETWEEN $2 AND $3`, uid, first, last); err != nil {
			return err
		}
	}
	return nil
}

func scanMessage(r engine.Row) (m conversation.Entry, err error) {
	var body sql.RawBytes // of the row at hand
	if err := r.Scan(&m.Place, &body); err != nil {
		return m, err
	}
	// Not by way of the decoder, which would read it three times.
	if err := m.Message.UnmarshalJSON(body); err != nil {
		return m, errs.E(errs.Internal, "the store is damaged").Because(err)
	}
	return m, nil
}

func scanRefs(r engine.Row) (conversation.Refs, error) {
	var text string
	if err := r.Scan(&text); err != nil {
		return conversation.Refs{}, err
	}
	return conversation.ParseRefs(text)
}
