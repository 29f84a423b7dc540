// Package items is the long-term store of the agent's tenants, as LangGraph has one: JSON
// objects under keys in namespaces, which are lists of labels. Items belong to a tenant
// and to no thread; each tenant's are bounded in number and in bytes.
//
// There is no embedding of texts: a search with a query compares words.
package items

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cubbyhq/cubby/internal/auth"
	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/core/budget"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/store"
)

// The bounds of one item.
const (
	maxLabels = 32
	maxName   = 1024 // bytes of a namespace, and of a key
	maxValue  = 2 << 20
)

// Items are those of all tenants; a caller has its tenant's. They hold no state.
type Items struct {
	store  *store.Store
	bounds store.ItemBounds
	memory Memory
}

// Memory is what callers may take of the daemon's.
type Memory struct {
	// Room is for the value of an item, until release; a caller for whom there is none
	// waits.
	Room func(ctx context.Context, bytes int64) (release func(), err error)
	// Budget is charged for the names of what was found, until the request has ended.
	Budget budget.Budget
}

// nameBytes is about what an item takes in a list beside its names.
const nameBytes = 512

// New returns the items of a store.
func New(s *store.Store, b store.ItemBounds, m Memory) *Items { return &Items{s, b, m} }

// NewItem is what an item is made from.
type NewItem struct {
	Namespace []string
	Key       string
	Value     json.RawMessage
	// Index says what of the value is searched: false is nothing, a list of paths these,
	// and null or true everything.
	Index json.RawMessage
	// TTL is in minutes; nil: for ever.
	TTL *float64
}

// Put stores an item in place of the one that has its name. Invalid when it cannot be
// one, TooLarge when its value is too long, OverQuota when the tenant has too many.
func (s *Items) Put(ctx context.Context, n NewItem) error {
	if err := errors.Join(checkNamespace(n.Namespace), checkKey(n.Key)); err != nil {
		return err
	}
	if len(n.Namespace) == 0 {
		return errs.E(errs.Invalid, "namespace: it has no label")
	}
	if n.Namespace[0] == "langgraph" {
		return errs.E(errs.Invalid, "namespace: the first label cannot be %q", "langgraph")
	}
	var value map[string]json.RawMessage
	if json.Unmarshal(n.Value, &value) != nil || value == nil {
		return errs.E(errs.Invalid, "value: not an object").Hint("delete the item to remove it")
	}
	if len(n.Value) > maxValue {
		return errs.E(errs.TooLarge, "value: %d bytes, at most %d are possible", len(n.Value), maxValue).Hint("keep large files in a sandbox")
	}
	i := conversation.Item{Namespace: n.Namespace, Key: n.Key, Value: n.Value}
	var err error
	if i.Fields, err = fieldsOf(n.Index); err != nil {
		return err
	}
	if n.TTL != nil {
		if i.TTL, err = minutes(*n.TTL); err != nil {
			return err
		}
	}
	return s.store.SetItem(ctx, tenant(ctx), i, s.bounds)
}

// minutes reads a TTL. Ten years stand for ever.
func minutes(n float64) (time.Duration, error) {
	const longest = 10 * 365 * 24 * time.Hour
	if !(n > 0) || math.IsInf(n, 0) { // not a number is neither
		return 0, errs.E(errs.Invalid, "ttl: not a number of minutes above 0")
	}
	return time.Duration(max(min(n*float64(time.Minute), float64(longest)), float64(time.Millisecond))), nil
}

// Get returns an item. With renew its TTL begins anew. NotFound when there is none.
func (s *Items) Get(ctx context.Context, namespace []string, key string, renew bool) (Found, error) {
	if err := errors.Join(checkNamespace(namespace), checkKey(key)); err != nil {
		return Found{}, err
	}
	bytes, err := s.store.ItemBytes(ctx, tenant(ctx), namespace, key)
	if err != nil {
		return Found{}, err
	}
	found := Found{Item: conversation.Item{Namespace: namespace, Key: key, Bytes: bytes}}
	return found, s.fill(ctx, &found, renew)
}

// Delete forgets an item; that there is none is no error.
func (s *Items) Delete(ctx context.Context, namespace []string, key string) error {
	if err := errors.Join(checkNamespace(namespace), checkKey(key)); err != nil {
		return err
	}
	return s.store.RemoveItem(ctx, tenant(ctx), namespace, key)
}

// Namespaces selects namespaces. In Prefix and Suffix the label * stands for any.
type Namespaces struct {
	Prefix, Suffix []string
	MaxDepth       int // longer ones are cut to it; 0: none is
	Limit, Offset  int
}

// Namespaces yields those that have items, in their order, each once.
func (s *Items) Namespaces(ctx context.Context, q Namespaces) iter.Seq2[[]string, error] {
	return func(yield func([]string, error) bool) {
		if err := errors.Join(checkNamespace(q.Prefix), checkNamespace(q.Suffix)); err != nil {
			yield(nil, err)
			return
		}
		// A page is held while a client takes its time.
		if err := s.memory.Budget.ChargeList(ctx, store.NamespacePageBytes); err != nil {
			yield(nil, err)
			return
		}
		skip, left := q.Offset, q.Limit
		var after, last []string
		for left > 0 {
			page, err := s.store.Namespaces(ctx, tenant(ctx), fixed(q.Prefix), after)
			if err != nil {
				yield(nil, err)
				return
			}
			if len(page) == 0 {
				return
			}
			for _, found := range page {
				after = found
				if len(found) < len(q.Prefix) || len(found) < len(q.Suffix) ||
					!alike(q.Prefix, found[:len(q.Prefix)]) || !alike(q.Suffix, found[len(found)-len(q.Suffix):]) {
					continue
				}
				if q.MaxDepth > 0 && len(found) > q.MaxDepth {
					found = found[:q.MaxDepth]
				}
				if last != nil && same(last, found) {
					continue
				}
				if last = found; skip > 0 {
					skip--
					continue
				}
				if !yield(found, nil) {
					return
				}
				if left--; left == 0 {
					return
				}
			}
		}
	}
}

// fixed are the labels of a prefix before the first that stands for any.
func fixed(prefix []string) []string {
	for i, label := range prefix {
		if label == "*" {
			return prefix[:i]
		}
	}
	return prefix
}

func alike(pattern, labels []string) bool {
	for i, p := range pattern {
		if p != "*" && p != labels[i] {
			return false
		}
	}
	return true
}

func same(a, b []string) bool { return len(a) == len(b) && alike(a, b) && alike(b, a) }

// tenant is the one whose items the caller has.
func tenant(ctx context.Context) string { return auth.From(ctx).Tenant }

// checkNamespace refuses what LangGraph does, and what has no place in an index.
func checkNamespace(labels []string) error {
	if len(labels) > maxLabels {
		return errs.E(errs.Invalid, "namespace: %d labels, at most %d are possible", len(labels), maxLabels)
	}
	n := 0
	for _, label := range labels {
		n += len(label) + 1
		if label == "" || strings.Contains(label, ".") || strings.ContainsFunc(label, func(r rune) bool { return r < ' ' }) || !utf8.ValidString(label) {
			return errs.E(errs.Invalid, "namespace: labels cannot be empty or contain periods or control characters: %.80q", label)
		}
	}
	if n > maxName {
		return errs.E(errs.Invalid, "namespace: over %d bytes", maxName)
	}
	return nil
}

func checkKey(key string) error {
	if key == "" || len(key) > maxName || strings.Contains(key, "\x00") || !utf8.ValidString(key) {
		return errs.E(errs.Invalid, "key: not 1 to %d bytes of text", maxName)
	}
	return nil
}
