package history

import (
	"context"
	"slices"
	"sync"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Told is an event that is told to all who follow it.
type Told struct {
	sandbox.Event
	// More: another event follows at once. What is sent can wait for it.
	More bool

	form *form
}

// form is an event as it is sent.
type form struct {
	once sync.Once
	text []byte
	err  error
}

// Form returns what encode makes of the event. It is called once for all followers,
// who are sent the same.
func (t Told) Form(encode func(sandbox.Event) ([]byte, error)) ([]byte, error) {
	t.form.once.Do(func() { t.form.text, t.form.err = encode(t.Event) })
	return t.form.text, t.form.err
}

func tell(events []sandbox.Event) []Told {
	list := make([]Told, len(events))
	for i, e := range events {
		list[i] = Told{Event: e, form: new(form)}
	}
	return list
}

const (
	// page is how many events a follower takes at once.
	page = 200
	// tailBytes bounds what is kept of a sandbox's events for who follows next.
	tailBytes = 256 << 10
)

// tails are the newest events of the sandboxes that are followed: what one follower has
// read, the others need not.
type tails struct {
	mu  sync.Mutex
	all map[sandbox.UID]*tail // guarded by mu
}

// tail has the events of one sandbox after the cursor from, up to the cursor to.
type tail struct {
	followers int // guarded by the mu of tails

	mu       sync.Mutex
	from, to int64  // guarded by mu
	events   []Told // guarded by mu
	bytes    int64  // guarded by mu
	// None followed when that many notices had been given; nothing is known while
	// complete is false.
	notices  uint64 // guarded by mu
	complete bool   // guarded by mu
}

// enter returns the tail of a sandbox for a follower, until leave.
func (t *tails) enter(box sandbox.UID) (of *tail, leave func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all == nil {
		t.all = make(map[sandbox.UID]*tail)
	}
	of = t.all[box]
	if of == nil {
		of = new(tail)
		t.all[box] = of
	}
	of.followers++
	return of, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if of.followers--; of.followers == 0 {
			delete(t.all, box)
		}
	}
}

// next returns events of a sandbox after a cursor; none means that there were none when
// the last notice of some was given, or, to be sure, when it was called. Until done they
// may take more memory than their follower holds. The sandbox's events are watched, so
// that notices of them count.
func (h *Events) next(ctx context.Context, t *tail, box sandbox.UID, after int64, sure bool) (events []Told, done func(), err error) {
	nothing := func() {}
	if t.behind(after) {
		return h.read(ctx, box, after)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if after > t.to {
		t.from, t.to, t.events, t.bytes, t.complete = after, after, nil, 0, false
	}
	if t.from <= after && after < t.to {
		i, _ := slices.BinarySearchFunc(t.events, after+1, func(e Told, cursor int64) int { return int(min(max(e.Cursor-cursor, -1), 1)) })
		return slices.Clone(t.events[i:min(i+page, len(t.events))]), nothing, nil
	}
	if after < t.from { // it has just fallen behind
		return h.read(ctx, box, after)
	}
	notices := h.store.EventNotices(box)
	if !sure && t.complete && t.notices == notices {
		return nil, nothing, nil
	}
	if events, done, err = h.read(ctx, box, after); err != nil {
		return nil, nil, err
	}
	t.complete, t.notices = len(events) == 0, notices
	t.add(events)
	return events, done, nil
}

// behind reports whether events after a cursor are not kept any more: who is far behind
// reads by itself.
func (t *tail) behind(after int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return after < t.from
}

// add is called with mu held.
func (t *tail) add(events []Told) {
	for _, e := range events {
		t.events, t.to, t.bytes = append(t.events, e), e.Cursor, t.bytes+e.Bytes()
	}
	n := 0
	for ; t.bytes > tailBytes || len(t.events)-n > page; n++ {
		t.from, t.bytes = t.events[n].Cursor, t.bytes-t.events[n].Bytes()
	}
	t.events = slices.Delete(t.events, 0, n)
}

// read reads events from the store.
func (h *Events) read(ctx context.Context, box sandbox.UID, after int64) ([]Told, func(), error) {
	done, err := h.budget.Turn(ctx)
	if err != nil {
		return nil, nil, err
	}
	events, err := h.store.Events(ctx, box, after, page)
	if err != nil {
		done()
		return nil, nil, err
	}
	return tell(events), done, nil
}
