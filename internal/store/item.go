package store

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/store/column"
	"github.com/cubbyhq/cubby/internal/store/engine"
)

// namespaceEnd is between the labels of a namespace in its column, and sorts before all
// that a label may have.
const namespaceEnd = "\x1f"

const itemColumns = `namespace, key, value, fields, bytes, ttl, created_at, updated_at`

func noSuchItem() error { return errs.E(errs.NotFound, "no such item") }

// ItemBounds bound the items of a tenant; 0 is no bound.
type ItemBounds struct {
	Items int
	Bytes int64
}

// itemOverhead is counted for each item beside its texts.
const itemOverhead = 200

// SetItem stores an item in place of the one with its name, which keeps its CreatedAt.
// OverQuota when that would be more than the tenant may have.
func (s *Store) SetItem(ctx context.Context, tenant string, i conversation.Item, b ItemBounds) error {
	namespace := strings.Join(i.Namespace, namespaceEnd)
	value, errValue := column.Text(i.Value)
	fields, err := column.Raw(i.Fields)
	if err := errors.Join(errValue, err); err != nil {
		return err
	}
	size := int64(len(namespace) + len(i.Key) + len(value) + len(fields) + itemOverhead)
	return s.update(ctx, durable, func(t *tx) error {
		now := s.now()
		// One that has expired and is still there is another item.
		if err := t.dropItem(tenant, namespace, i.Key, ` AND expires_at > 0 AND expires_at <= $4`, column.Micros(now)); err != nil {
			return err
		}
		var was int64
		more := 0
		err := t.row(`SELECT bytes FROM items WHERE tenant = $1 AND namespace = $2 AND key = $3`, tenant, namespace, i.Key).Scan(&was)
		if errors.Is(err, sql.ErrNoRows) {
			more, err = 1, nil
		}
		if err != nil {
			return err
		}
		if err := t.chargeItems(tenant, more, size-was, now, b); err != nil {
			return err
		}
		_, err = t.exec(`INSERT INTO items (tenant, namespace, key, value, fields, bytes, ttl, expires_at, created_at, updated_at)
				VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $9)
				ON CONFLICT (tenant, namespace, key) DO UPDATE SET value = excluded.value, fields = excluded.fields, bytes = excluded.bytes,
					ttl = excluded.ttl, updated_at = excluded.updated_at, expires_at = excluded.expires_at`,
			tenant, namespace, i.Key, value, fields, size, i.TTL.Microseconds(), expiry(now, i.TTL), column.Micros(now))
		return err
	})
}

// dropItem removes an item if there is one for which more is true.
func (t *tx) dropItem(tenant, namespace, key, more string, args ...any) error {
	var bytes int64
	err := t.row(`DELETE FROM items WHERE tenant = $1 AND namespace = $2 AND key = $3`+more+` RETURNING bytes`,
		append([]any{tenant, namespace, key}, args...)...).Scan(&bytes)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	return t.chargeItems(tenant, -1, -bytes, time.Time{}, ItemBounds{})
}

// expiry is the column of when something that lives so long is gone.
func expiry(now time.Time, ttl time.Duration) int64 {
	if ttl <= 0 {
		return 0
	}
	return column.Micros(now.Add(ttl))
}

// chargeItems adds to what a tenant has. OverQuota when that is too much, also after
// what has expired is gone.
func (t *tx) chargeItems(tenant string, items int, bytes int64, now time.Time, b ItemBounds) error {
	const charge = `INSERT INTO item_usage (tenant, items, bytes) VALUES ($1, $2, $3)
		ON CONFLICT (tenant) DO UPDATE SET items = item_usage.items + excluded.items, bytes = item_usage.bytes + excluded.bytes RETURNING items, bytes`
	var n int
	var size int64
	full := func() error {
		if items > 0 && b.Items > 0 && n > b.Items {
			return errs.E(errs.OverQuota, "the store has all %d items that it may have", b.Items).
				Hint("delete some, give items a ttl, or let the operator raise max-store-items-per-tenant")
		}
		if bytes > 0 && b.Bytes > 0 && size > b.Bytes {
			return errs.E(errs.OverQuota, "the store has no room for %d bytes: %d are the most", bytes, b.Bytes).
				Hint("delete some items, give them a ttl, or let the operator raise max-store-bytes-per-tenant")
		}
		return nil
	}
	if err := t.row(charge, tenant, items, bytes).Scan(&n, &size); err != nil {
		return err
	}
	if full() == nil {
		return nil
	}
	const expired = `DELETE FROM items WHERE tenant = $1 AND expires_at > 0 AND expires_at <= $2 RETURNING bytes`
	rows, err := t.rows(expired, tenant, column.Micros(now))
	gone, err := engine.Collect(rows, err, func(r engine.Row) (bytes int64, err error) { return bytes, r.Scan(&bytes) })
	if err != nil {
		return err
	}
	var freed int64
	for _, bytes := range gone {
		freed += bytes
	}
	if err := t.row(charge, tenant, -len(gone), -freed).Scan(&n, &size); err != nil {
		return err
	}
	return full()
}

// Item returns an item of a tenant; with renew its TTL begins anew. NotFound when there
// is none, or it has expired.
func (s *Store) Item(ctx context.Context, tenant string, namespace []string, key string, renew bool) (conversation.Item, error) {
	now := s.now()
	i, err := scanItem(s.reads.Row(ctx, `SELECT `+itemColumns+` FROM items WHERE tenant = $1 AND namespace = $2 AND key = $3 AND (expires_at = 0 OR expires_at > $4)`,
		tenant, strings.Join(namespace, namespaceEnd), key, column.Micros(now)))
	if err != nil || i.TTL == 0 || !renew {
		return i, s.fault(err)
	}
	return i, s.update(ctx, relaxed, func(t *tx) error {
		_, err := t.exec(`UPDATE items SET expires_at = $4 + ttl WHERE tenant = $1 AND namespace = $2 AND key = $3 AND ttl > 0 AND expires_at > $4`,
			tenant, strings.Join(namespace, namespaceEnd), key, column.Micros(now))
		return err
	})
}

// ItemBytes is about how many an item has. NotFound when there is none.
func (s *Store) ItemBytes(ctx context.Context, tenant string, namespace []string, key string) (bytes int64, err error) {
	err = s.reads.Row(ctx, `SELECT bytes FROM items WHERE tenant = $1 AND namespace = $2 AND key = $3`, tenant, strings.Join(namespace, namespaceEnd), key).Scan(&bytes)
	if errors.Is(err, sql.ErrNoRows) {
		err = noSuchItem()
	}
	return bytes, s.fault(err)
}

// RemoveItem forgets an item; that there is none is no error.
func (s *Store) RemoveItem(ctx context.Context, tenant string, namespace []string, key string) error {
	return s.update(ctx, durable, func(t *tx) error {
		return t.dropItem(tenant, strings.Join(namespace, namespaceEnd), key, "")
	})
}

// ItemCursor is where a page of items ends; the zero value is before the first.
type ItemCursor struct {
	namespace, key string
	updated        int64
	at             time.Time // of the first page: what expires meanwhile stays in the list
}

// Items returns a page of the items of a tenant in a namespace and below it, the newest
// first, and where the next page begins; without values they have no Value. A page is
// short when its items are large, and empty at the end.
func (s *Store) Items(ctx context.Context, tenant string, prefix []string, after ItemCursor, values bool) (page []conversation.Item, next ItemCursor, err error) {
	if after.at.IsZero() {
		after.at, after.updated = s.now(), 1<<62
	}
	columns := itemColumns
	if !values { // the index has the rest in order, and no value is sorted
		columns = `namespace, key, '', '', bytes, ttl, created_at, updated_at`
	}
	within, args := below(prefix, []any{tenant, column.Micros(after.at), after.updated, after.namespace, after.key})
	rows, err := s.reads.Rows(ctx, `SELECT `+columns+` FROM items WHERE tenant = $1 AND (expires_at = 0 OR expires_at > $2)
			AND updated_at <= $3 AND (updated_at < $3 OR namespace > $4 OR namespace = $4 AND key > $5)`+within+`
			ORDER BY updated_at DESC, namespace, key LIMIT 1000`, args...)
	page, _, err = engine.CollectPage(rows, err, scanItem, func(i conversation.Item) int64 { return int64(len(i.Value) + len(i.Key) + itemOverhead) })
	if err != nil {
		return nil, after, s.fault(err)
	}
	if len(page) > 0 {
		last := page[len(page)-1]
		after.namespace, after.key, after.updated = strings.Join(last.Namespace, namespaceEnd), last.Key, column.Micros(last.UpdatedAt)
	}
	return page, after, nil
}

// ItemPageBytes is about how much a page of [Store.Items] takes, and NamespacePageBytes
// one of [Store.Namespaces].
const (
	ItemPageBytes      = engine.PageBytes
	NamespacePageBytes = 128 << 10
)

// below is the condition that a namespace is one with a prefix.
func below(prefix []string, args []any) (string, []any) {
	if len(prefix) == 0 {
		return "", args
	}
	top := strings.Join(prefix, namespaceEnd)
	args = append(args, top, top+namespaceEnd, top+" ") // a space is what comes next
	at := func(back int) string { return "$" + strconv.Itoa(len(args)-back) }
	return ` AND (namespace = ` + at(2) + ` OR namespace >= ` + at(1) + ` AND namespace < ` + at(0) + `)`, args
}

// Namespaces returns a page of the namespaces of a tenant that begin with labels, in
// their order, after one of them (none: from the first on). It is empty at the end, and
// takes about NamespacePageBytes at most.
func (s *Store) Namespaces(ctx context.Context, tenant string, prefix, after []string) ([][]string, error) {
	within, args := below(prefix, []any{tenant, column.Micros(s.now()), strings.Join(after, namespaceEnd)})
	rows, err := s.reads.Rows(ctx, `SELECT DISTINCT namespace FROM items WHERE tenant = $1 AND (expires_at = 0 OR expires_at > $2) AND namespace > $3`+within+`
			ORDER BY namespace LIMIT 100`, args...)
	list, err := engine.Collect(rows, err, func(r engine.Row) ([]string, error) {
		var joined string
		err := r.Scan(&joined)
		return strings.Split(joined, namespaceEnd), err
	})
	return list, s.fault(err)
}

// ForgetExpiredItems removes items that have expired, at most so many. It returns how
// many there were.
func (s *Store) ForgetExpiredItems(ctx context.Context, most int) (n int, err error) {
	err = s.update(ctx, relaxed, func(t *tx) error {
		rows, err := t.rows(`DELETE FROM items WHERE (tenant, namespace, key) IN (
				SELECT tenant, namespace, key FROM items WHERE expires_at > 0 AND expires_at <= $1 ORDER BY expires_at LIMIT $2) RETURNING tenant, bytes`,
			column.Micros(s.now()), most)
		type share struct {
			tenant string
			bytes  int64
		}
		gone, err := engine.Collect(rows, err, func(r engine.Row) (g share, err error) { return g, r.Scan(&g.tenant, &g.bytes) })
		if err != nil {
			return err
		}
		n = len(gone)
		items, bytes := map[string]int{}, map[string]int64{}
		for _, g := range gone {
			items[g.tenant]--
			bytes[g.tenant] -= g.bytes
		}
		for tenant := range items {
			if err := t.chargeItems(tenant, items[tenant], bytes[tenant], time.Time{}, ItemBounds{}); err != nil {
				return err
			}
		}
		return nil
	})
	return n, err
}

func scanItem(r engine.Row) (i conversation.Item, err error) {
	var namespace, value, fields string
	var ttl, created, updated int64
	err = r.Scan(&namespace, &i.Key, &value, &fields, &i.Bytes, &ttl, &created, &updated)
	if errors.Is(err, sql.ErrNoRows) {
		return i, noSuchItem()
	}
	if err != nil {
		return i, err
	}
	i.Namespace, i.Value, i.Fields = strings.Split(namespace, namespaceEnd), []byte(value), column.ReadRaw(fields)
	i.TTL, i.CreatedAt, i.UpdatedAt = time.Duration(ttl)*time.Microsecond, column.FromMicros(created), column.FromMicros(updated)
	return i, nil
}
