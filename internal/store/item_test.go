package store

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/store/column"
	"github.com/cubbyhq/cubby/internal/store/engine"
)

func item(namespace, key, value string) conversation.Item {
	return conversation.Item{Namespace: strings.Split(namespace, "."), Key: key, Value: json.RawMessage(value)}
}

// listed are the names of the items below a prefix, in all pages.
func listed(t *testing.T, s *Store, tenant string, prefix ...string) string {
	t.Helper()
	var names []string
	for after := (ItemCursor{}); ; {
		page, next, err := s.Items(t.Context(), tenant, prefix, after, true)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			return strings.Join(names, " ")
		}
		for _, i := range page {
			names = append(names, strings.Join(i.Namespace, ".")+"/"+i.Key)
		}
		after = next
	}
}

func usage(t *testing.T, s *Store, tenant string) string {
	t.Helper()
	var items, bytes, counted, sum int64
	if err := s.reads.Row(t.Context(), `SELECT items, bytes FROM item_usage WHERE tenant = $1`, tenant).Scan(&items, &bytes); err != nil {
		t.Fatal(err)
	}
	if err := s.reads.Row(t.Context(), `SELECT COUNT(*), COALESCE(SUM(bytes), 0) FROM items WHERE tenant = $1`, tenant).Scan(&counted, &sum); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d of %d, %d of %d", items, counted, bytes, sum)
}

func TestItems(t *testing.T) {
	s, c := fresh(t)
	ctx := t.Context()
	made := item("a.b", "k", `{"n":1}`)
	made.Fields = json.RawMessage(`["n"]`)
	for _, i := range []conversation.Item{made, item("a", "k", `{}`), item("a.b.c", "k", `{}`), item("a-b", "k", `{}`), item("ab", "k", `{}`)} {
		if err := s.SetItem(ctx, "acme", i, ItemBounds{}); err != nil {
			t.Fatal(err)
		}
	}
	made.CreatedAt = column.FromMicros(column.Micros(c.Now()))
	made.UpdatedAt = made.CreatedAt
	made.Bytes = int64(len("a.b") + len("k") + len(made.Value) + len(made.Fields) + itemOverhead)
	if got, err := s.Item(ctx, "acme", made.Namespace, "k", true); err != nil || cmp.Diff(made, got) != "" {
		t.Errorf("Item: %v\n%s", err, cmp.Diff(made, got))
	}
	_, err := s.Item(ctx, "beta", made.Namespace, "k", true)
	wantKind(t, "Item of another tenant", err, errs.NotFound)
	c.advance(time.Second)
	made.Value = json.RawMessage(`{"n":2}`)
	if err := s.SetItem(ctx, "acme", made, ItemBounds{}); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Item(ctx, "acme", made.Namespace, "k", true); err != nil || string(got.Value) != `{"n":2}` || !got.CreatedAt.Equal(made.CreatedAt) || !got.UpdatedAt.After(made.UpdatedAt) {
		t.Errorf("Item that was set again = %+v, %v", got, err)
	}
	for _, tt := range []struct{ prefix, want string }{
		{"", "a.b/k a/k a.b.c/k a-b/k ab/k"}, {"a", "a.b/k a/k a.b.c/k"}, {"a.b", "a.b/k a.b.c/k"}, {"a.b.c", "a.b.c/k"}, {"b", ""},
	} {
		var prefix []string
		if tt.prefix != "" {
			prefix = strings.Split(tt.prefix, ".")
		}
		if got := listed(t, s, "acme", prefix...); got != tt.want {
			t.Errorf("Items below %q = %s, want %s", tt.prefix, got, tt.want)
		}
	}
	namespaces, err := s.Namespaces(ctx, "acme", []string{"a"}, []string{"a"})
	if diff := cmp.Diff([][]string{{"a", "b"}, {"a", "b", "c"}}, namespaces); diff != "" || err != nil {
		t.Errorf("Namespaces: %v\n%s", err, diff)
	}
	if namespaces, err = s.Namespaces(ctx, "acme", nil, nil); err != nil || len(namespaces) != 5 || len(namespaces[1]) != 2 {
		t.Errorf("Namespaces = %v, %v", namespaces, err)
	}
	for range 2 { // the second time it is gone
		if err := s.RemoveItem(ctx, "acme", []string{"a"}, "k"); err != nil {
			t.Error(err)
		}
	}
	if got := usage(t, s, "acme"); !strings.HasPrefix(got, "4 of 4, ") {
		t.Errorf("usage = %s", got)
	}
}

// TestPagesOfItems: what does not fit in a page is on the next one, once.
func TestPagesOfItems(t *testing.T) {
	s, _ := fresh(t)
	var want []string
	large := `{"text":"` + strings.Repeat("x", engine.PageBytes/2) + `"}`
	for i := range 7 {
		key := fmt.Sprintf("k%d", i)
		want = append(want, "a/"+key)
		if err := s.SetItem(t.Context(), "", item("a", key, large), ItemBounds{}); err != nil {
			t.Fatal(err)
		}
	}
	if page, _, err := s.Items(t.Context(), "", nil, ItemCursor{}, true); err != nil || len(page) > 3 {
		t.Errorf("a page of %d, %v", len(page), err)
	}
	if got := listed(t, s, ""); got != strings.Join(want, " ") {
		t.Errorf("Items = %s", got)
	}
}

// TestItemsExpire: an item with a TTL is gone after it, and what it took is given back.
func TestItemsExpire(t *testing.T) {
	s, c := fresh(t)
	ctx := t.Context()
	set := func(key string, ttl time.Duration, b ItemBounds) error {
		i := item("a", key, `{}`)
		i.TTL = ttl
		return s.SetItem(ctx, "acme", i, b)
	}
	for key, ttl := range map[string]time.Duration{"short": time.Minute, "long": time.Hour, "ever": 0} {
		if err := set(key, ttl, ItemBounds{}); err != nil {
			t.Fatal(err)
		}
	}
	c.advance(50 * time.Second)
	for _, renew := range []bool{true, false} {
		if _, err := s.Item(ctx, "acme", []string{"a"}, "short", renew); err != nil {
			t.Errorf("Item: %v", err)
		}
		c.advance(50 * time.Second)
	}
	c.advance(20 * time.Second)
	_, err := s.Item(ctx, "acme", []string{"a"}, "short", true)
	wantKind(t, "Item that has expired", err, errs.NotFound)
	if got := listed(t, s, "acme"); got != "a/ever a/long" {
		t.Errorf("Items = %s", got)
	}
	// A full store makes room of it, also when it is the one that is set.
	if err := set("short", time.Minute, ItemBounds{Items: 3}); err != nil {
		t.Error(err)
	}
	c.advance(time.Hour)
	for _, key := range []string{"x", "y"} {
		if err := set(key, time.Minute, ItemBounds{Items: 3}); err != nil {
			t.Error(err)
		}
	}
	wantKind(t, "one too many", set("z", 0, ItemBounds{Items: 3}), errs.OverQuota)
	wantKind(t, "one that is there", set("x", time.Minute, ItemBounds{Items: 3}), nil)
	wantKind(t, "bytes", set("z", 0, ItemBounds{Bytes: 500}), errs.OverQuota)
	if got := usage(t, s, "acme"); !strings.HasPrefix(got, "3 of 3, ") {
		t.Errorf("usage = %s", got)
	}
	c.advance(time.Hour)
	if n, err := s.ForgetExpiredItems(ctx, 1); n != 1 || err != nil {
		t.Errorf("ForgetExpiredItems = %d, %v", n, err)
	}
	if n, err := s.ForgetExpiredItems(ctx, 100); n != 1 || err != nil {
		t.Errorf("ForgetExpiredItems = %d, %v", n, err)
	}
	if got := usage(t, s, "acme"); !strings.HasPrefix(got, "1 of 1, ") {
		t.Errorf("usage = %s", got)
	}
}
