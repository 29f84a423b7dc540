package tenancy

import (
	"context"
	"slices"
	"sync"
)

// Turns has what would take too much at once happen one after another. What
// belongs to no tenant has those that are reserved for it. Its methods are safe
// for concurrent use.
type Turns struct {
	mu   sync.Mutex
	held ledger // guarded by mu
	// queues have who waits, the one that is next first; guarded by mu. None is
	// empty, and none of those that wait could have a turn.
	queues []*queue
}

// queue is who waits of one holder, in the order of their coming.
type queue struct {
	holder holder
	wait   []chan struct{} // closed when it is their turn
}

// NewTurns returns turns, of which at least one is reserved.
func NewTurns(b Bound) *Turns {
	b.Reserved = max(1, b.Reserved)
	b.All = max(b.All, b.Reserved+1)
	return &Turns{held: newLedger(b, b.Reserved)}
}

// Take waits for a turn of a tenant, "" being none, and holds it until done,
// which is called once. The error is that of ctx, when it ends first.
func (t *Turns) Take(ctx context.Context, tenant string) (done func(), err error) {
	return t.TakeFor(ctx, tenant, "")
}

// TakeFor is Take for one of the sandboxes that share a tenant's turns, or
// those of no tenant.
func (t *Turns) TakeFor(ctx context.Context, tenant, box string) (done func(), err error) {
	h := holder{tenant, box}
	t.mu.Lock()
	i := slices.IndexFunc(t.queues, func(q *queue) bool { return q.holder == h })
	if i < 0 && t.held.may(h) == granted {
		t.held.take(h)
		t.mu.Unlock()
		return t.done(h), nil
	}
	if i < 0 {
		i = len(t.queues)
		t.queues = append(t.queues, &queue{holder: h})
	}
	mine := make(chan struct{})
	t.queues[i].wait = append(t.queues[i].wait, mine)
	t.mu.Unlock()
	select {
	case <-mine:
		return t.done(h), nil
	case <-ctx.Done():
	}
	if !t.forget(h, mine) { // it has just come
		t.done(h)()
	}
	return nil, ctx.Err()
}

// forget takes somebody out of the queue, unless it is not there any more.
func (t *Turns) forget(h holder, waiting chan struct{}) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, q := range t.queues {
		if q.holder != h {
			continue
		}
		at := slices.Index(q.wait, waiting)
		if at < 0 {
			return false
		}
		q.wait = slices.Delete(q.wait, at, at+1)
		if len(q.wait) == 0 {
			t.queues = slices.Delete(t.queues, i, i+1)
		}
		return true
	}
	return false
}

// done gives a turn back, and to whoever is next and may have one.
func (t *Turns) done(h holder) func() {
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.held.giveBack(h)
		var rest, served []*queue
		for _, q := range t.queues {
			if t.held.may(q.holder) != granted {
				rest = append(rest, q)
				continue
			}
			t.held.take(q.holder)
			close(q.wait[0])
			if q.wait = q.wait[1:]; len(q.wait) > 0 {
				served = append(served, q)
			}
		}
		t.queues = append(rest, served...)
	}
}
