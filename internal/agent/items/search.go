package items

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"slices"

	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/store"
)

// Search selects items.
type Search struct {
	Prefix        []string                   // of their namespaces
	Filter        map[string]json.RawMessage // of their values; see [filter]
	Query         string                     // words; "": any
	Limit, Offset int
	Renew         bool // the TTLs of what is found begin anew
}

// Found is an item that was found. It takes room in memory: who has it encodes it, calls
// Release and only then sends it.
type Found struct {
	conversation.Item

	Score   *float64 // the share of the query's words that it has; nil without a query
	Release func()
}

// Search finds items, the newest first; with a query those that have any of its words,
// the most of them first. Each is read when its turn comes: all together may be larger
// than any memory. Invalid when the search cannot be made.
func (s *Items) Search(ctx context.Context, q Search) (iter.Seq2[Found, error], error) {
	want, errFilter := parseFilter(q.Filter)
	words, err := parseQuery(q.Query)
	if err := errors.Join(checkNamespace(q.Prefix), errFilter, err); err != nil {
		return nil, err
	}
	skip, most := q.Offset, q.Limit
	if len(words) > 0 {
		skip, most = 0, 0 // which are the best shows when all were looked at
	}
	list, err := s.find(ctx, q.Prefix, want, words, skip, most)
	if err != nil {
		return nil, err
	}
	if len(words) > 0 {
		slices.SortStableFunc(list, func(a, b Found) int { return cmp.Compare(*b.Score, *a.Score) })
		list = list[min(q.Offset, len(list)):]
		list = list[:min(q.Limit, len(list))]
	}
	return s.read(ctx, list, q.Renew), nil
}

// find returns the items that a search wants, without their values: after some that are
// skipped, at most so many, unless that is 0. The caller's memory is charged for them.
func (s *Items) find(ctx context.Context, prefix []string, want filter, words query, skip, most int) (list []Found, err error) {
	values := len(want)+len(words) > 0
	if values {
		release, err := s.memory.Room(ctx, store.ItemPageBytes+maxValue)
		if err != nil {
			return nil, err
		}
		defer release()
	}
	for after := (store.ItemCursor{}); ; {
		page, next, err := s.store.Items(ctx, tenant(ctx), prefix, after, values)
		if err != nil || len(page) == 0 {
			return list, err
		}
		var bytes int64
		for _, i := range page {
			found := Found{Item: i}
			if values {
				fields := fieldsIn(i)
				if !want.matches(fields) {
					continue
				}
				if len(words) > 0 {
					score := words.score(i, fields)
					if score == 0 {
						continue
					}
					found.Score = &score
				}
			}
			if skip > 0 {
				skip--
				continue
			}
			found.Value, found.Fields = nil, nil
			bytes += nameBytes + int64(len(i.Key))
			for _, label := range i.Namespace {
				bytes += int64(len(label))
			}
			if list = append(list, found); len(list) == most {
				break
			}
		}
		if err := s.memory.Budget.ChargeList(ctx, bytes); err != nil || most > 0 && len(list) == most {
			return list, err
		}
		after = next
	}
}

// read yields the items that were found with their values; one that went meanwhile is
// left out.
func (s *Items) read(ctx context.Context, list []Found, renew bool) iter.Seq2[Found, error] {
	return func(yield func(Found, error) bool) {
		for _, found := range list {
			err := s.fill(ctx, &found, renew)
			if errors.Is(err, errs.NotFound) {
				continue
			}
			more := yield(found, err)
			found.Release()
			if !more || err != nil {
				return
			}
		}
	}
}

// fill reads an item whose name and size are known, when there is room for it.
func (s *Items) fill(ctx context.Context, found *Found, renew bool) (err error) {
	found.Release = func() {}
	release, err := s.memory.Room(ctx, found.Bytes)
	if err != nil {
		return err
	}
	if found.Item, err = s.store.Item(ctx, tenant(ctx), found.Namespace, found.Key, renew); err != nil {
		release()
		return err
	}
	found.Release = release
	return nil
}

// fieldsIn are those of an item's value.
func fieldsIn(i conversation.Item) map[string]any {
	v, err := decode(i.Value)
	if err != nil {
		return nil // what was stored could be read
	}
	fields, _ := v.(map[string]any)
	return fields
}
