package tenancy

import (
	"sync"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
)

// retryAfter is when to try again for a place.
const retryAfter = 5 * time.Second

// Places counts what is held. Its methods are safe for concurrent use.
type Places struct {
	what string

	mu   sync.Mutex
	held ledger // guarded by mu
}

// NewPlaces returns places for what is named, in the plural.
func NewPlaces(what string, b Bound) *Places {
	return &Places{what: what, held: newLedger(b, b.All)}
}

// Enter takes a place of a tenant, "" being none, until leave, which may be
// called more than once. It is errs.OverQuota when there is none.
func (p *Places) Enter(tenant string) (leave func(), err error) { return p.EnterFor(tenant, "") }

// EnterFor is Enter for one of the sandboxes that share a tenant's places, or
// those of no tenant.
func (p *Places) EnterFor(tenant, box string) (leave func(), err error) {
	h := holder{tenant, box}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch p.held.may(h) {
	case tenantMax:
		return nil, errs.E(errs.OverQuota, "this tenant has %d %s, which is the most", p.held.tenants[tenant], p.what).
			Hint("end some, or try again when they have ended").RetryAfter(retryAfter)
	case tenantFair:
		return nil, errs.E(errs.OverQuota, "this tenant has %d %s, and no more than that are left to all", p.held.tenants[tenant], p.what).
			Hint("end some, or try again when they have ended").RetryAfter(retryAfter)
	case oneFair:
		return nil, errs.E(errs.OverQuota, "this sandbox has %d %s, and no more than that are left to all", p.held.ones[h], p.what).
			Hint("end some, or try again when they have ended").RetryAfter(retryAfter)
	case allMax:
		return nil, errs.E(errs.OverQuota, "all tenants together have %d %s, which is the most", p.held.total, p.what).
			Hint("try again when some have ended").RetryAfter(retryAfter)
	case granted:
	}
	p.held.take(h)
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.held.giveBack(h)
	}), nil
}

// Held returns how many places a tenant has now.
func (p *Places) Held(tenant string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held.tenants[tenant]
}
