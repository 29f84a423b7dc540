package agent

import (
	"context"
	"errors"
	"iter"
	"runtime"
	"sync"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/store"
	"github.com/cubbyhq/cubby/internal/tenancy"
)

// List is a page of what was found. Its elements are read one after the other, each
// when its turn comes: all of them together may be larger than any memory.
type List[T any] struct {
	Total int // how many there are without the bounds of the page
	Len   int // of the page; what is gone when its turn comes is left out
	// All has the elements. An error ends it.
	All iter.Seq2[Item[T], error]
}

// Item is an element of a list. It takes room in memory, and its tenant's turn, for
// which others wait: who has it encodes it, calls Release and only then sends it.
type Item[T any] struct {
	Value   T
	release func()
}

// Release gives back the room and the turn. It may be called more than once; the end of
// the context of the list does it too.
func (i Item[T]) Release() {
	if i.release != nil {
		i.release()
	}
}

// newListTurns has the elements of lists read and encoded one after the other: those of
// one tenant keep one processor busy, however many lists it asks for at once, and the
// commands of other tenants have the rest.
func newListTurns() *tenancy.Turns {
	return tenancy.NewTurns(tenancy.Bound{All: max(3, runtime.GOMAXPROCS(0)), Tenant: 1, Reserved: 1})
}

// each reads the rows of keys, each in its tenant's turn. What is gone meanwhile is left
// out. Who has a turn may wait for room, and not the other way round: a row that is
// itself read with room, see [Threads.fill], comes with a Release of its own.
func each[T any](ctx context.Context, s *Service, keys []store.Key, read func(store.Key) (T, error)) iter.Seq2[Item[T], error] {
	return func(yield func(Item[T], error) bool) {
		for _, key := range keys {
			item, err := one(ctx, s, key, read)
			if errors.Is(err, errs.NotFound) {
				continue
			}
			more := yield(item, err)
			item.Release() // who was given it may have left it
			if !more || err != nil {
				return
			}
		}
	}
}

func one[T any](ctx context.Context, s *Service, key store.Key, read func(store.Key) (T, error)) (Item[T], error) {
	var none Item[T]
	done, err := s.listing.Take(ctx, owner(ctx))
	if err != nil {
		return none, err
	}
	leave := func() {}
	if _, own := any(none.Value).(interface{ Release() }); !own {
		if leave, err = s.reading.enter(ctx, owner(ctx), key.Bytes); err != nil {
			done()
			return none, err
		}
	}
	value, err := read(key)
	give := sync.OnceFunc(func() {
		if v, own := any(value).(interface{ Release() }); own {
			v.Release()
		}
		leave()
		done()
	})
	if err != nil {
		give()
		return none, err
	}
	stop := context.AfterFunc(ctx, give)
	return Item[T]{value, func() { stop(); give() }}, nil
}
