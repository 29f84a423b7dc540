// Package tenancy shares what a daemon has once among its tenants: [Places],
// beyond which a tenant is refused, and [Turns], for which it waits. Of both one
// tenant has a share, and some are for what belongs to no tenant only, so that
// nobody keeps the others or the operator from theirs. It does not know what a
// place or a turn is for.
package tenancy

import (
	"context"
	"sync"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
)

// Bound is how many there are of something at once.
type Bound struct {
	All    int
	Tenant int // of one tenant
	// Reserved of them are for no tenant only.
	Reserved int
}

// retryAfter is when to try again for a place.
const retryAfter = 5 * time.Second

// Places counts what is held. Its methods are safe for concurrent use.
type Places struct {
	bound Bound
	what  string

	mu    sync.Mutex
	total int            // guarded by mu
	held  map[string]int // by tenant, "" is none; guarded by mu
}

// NewPlaces returns places for what is named, in the plural.
func NewPlaces(what string, b Bound) *Places {
	return &Places{bound: b, what: what, held: make(map[string]int)}
}

// Enter takes a place of a tenant, "" being none, until leave, which may be
// called more than once. It is errs.OverQuota when there is none.
func (p *Places) Enter(tenant string) (leave func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case tenant != "" && p.held[tenant] >= p.bound.Tenant:
		return nil, errs.E(errs.OverQuota, "this tenant has %d %s, which is the most", p.bound.Tenant, p.what).
			Hint("end some, or try again when they have ended").RetryAfter(retryAfter)
	case p.total >= p.bound.All, tenant != "" && p.total-p.held[""] >= p.bound.All-p.bound.Reserved:
		return nil, errs.E(errs.OverQuota, "all tenants together have %d %s, which is the most", p.total, p.what).
			Hint("try again when some have ended").RetryAfter(retryAfter)
	}
	p.total++
	p.held[tenant]++
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.total--
		if p.held[tenant]--; p.held[tenant] == 0 {
			delete(p.held, tenant)
		}
	}), nil
}

// Held returns how many places a tenant has now.
func (p *Places) Held(tenant string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held[tenant]
}

// Turns has what would take too much at once happen one after another. Its
// methods are safe for concurrent use.
type Turns struct {
	bound    Bound
	tenants  chan struct{} // turns of all tenants
	reserved chan struct{} // of no tenant

	mu  sync.Mutex
	own map[string]*ownTurns // by tenant; guarded by mu
}

type ownTurns struct {
	turns chan struct{}
	users int // who has one or waits; guarded by Turns.mu
}

// NewTurns returns turns, of which at least one is reserved.
func NewTurns(b Bound) *Turns {
	b.Reserved = max(1, b.Reserved)
	return &Turns{
		bound: b, tenants: make(chan struct{}, max(1, b.All-b.Reserved)), reserved: make(chan struct{}, b.Reserved),
		own: make(map[string]*ownTurns),
	}
}

// Take waits for a turn of a tenant, "" being none, and holds it until done,
// which is called once. The error is that of ctx, when it ends first.
func (t *Turns) Take(ctx context.Context, tenant string) (done func(), err error) {
	if tenant == "" {
		return take(ctx, t.reserved)
	}
	t.mu.Lock()
	own := t.own[tenant]
	if own == nil {
		own = &ownTurns{turns: make(chan struct{}, t.bound.Tenant)}
		t.own[tenant] = own
	}
	own.users++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if own.users--; own.users == 0 {
			delete(t.own, tenant)
		}
	}
	// The tenant's own first: who waits for it holds nothing of the others'.
	doneOwn, err := take(ctx, own.turns)
	if err != nil {
		leave()
		return nil, err
	}
	doneAll, err := take(ctx, t.tenants)
	if err != nil {
		doneOwn()
		leave()
		return nil, err
	}
	return func() { doneAll(); doneOwn(); leave() }, nil
}

func take(ctx context.Context, turns chan struct{}) (done func(), err error) {
	select {
	case turns <- struct{}{}:
		return func() { <-turns }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
