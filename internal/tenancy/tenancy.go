// Package tenancy shares what a daemon has once among its tenants: [Places],
// beyond which a tenant is refused, and [Turns], for which it waits. Of both one
// tenant has a share, and some are for what belongs to no tenant only, so that
// nobody keeps the others or the operator from theirs. It does not know what a
// place or a turn is for.
package tenancy

// Bound is how many there are of something at once.
type Bound struct {
	All    int
	Tenant int // of one tenant
	// Reserved of them are for no tenant only.
	Reserved int
}

// Nobody may hold as many as are left, or more: a tenant of what is left to all
// tenants, and one of the holders that share a tenant's, of what is left to
// that tenant. So a single holder gets all that the bound gives it, several end
// with equal shares, and one more always finds some.

// holder is who holds: a tenant, "" being none, and one of those that share
// what the tenant may hold, say a sandbox; "" is none that is named.
type holder struct{ tenant, one string }

// ledger says who holds how many.
type ledger struct {
	bound   Bound
	none    int // the most of no tenant
	total   int
	tenants map[string]int
	ones    map[holder]int
}

func newLedger(b Bound, none int) ledger {
	return ledger{bound: b, none: none, tenants: make(map[string]int), ones: make(map[holder]int)}
}

// verdict is why a holder gets no more.
type verdict int

const (
	granted   verdict = iota
	tenantMax         // the tenant has all that one may have
	allMax            // none is left
	tenantFair
	oneFair
)

func (l *ledger) may(h holder) verdict {
	held := l.tenants[h.tenant]
	left, own := min(l.bound.All-l.total, l.none-held), 0
	if h.tenant != "" {
		left = min(l.bound.All-l.total, l.bound.All-l.bound.Reserved-(l.total-l.tenants[""]))
		own = l.bound.Tenant - held
	}
	switch {
	case h.tenant != "" && own <= 0:
		return tenantMax
	case left <= 0:
		return allMax
	case h.tenant != "" && held >= left:
		return tenantFair
	case h.one == "":
		return granted
	case h.tenant != "":
		left = min(left, own)
	}
	if l.ones[h] >= left {
		return oneFair
	}
	return granted
}

func (l *ledger) take(h holder) {
	l.total++
	l.tenants[h.tenant]++
	if h.one != "" {
		l.ones[h]++
	}
}

func (l *ledger) giveBack(h holder) {
	l.total--
	if l.tenants[h.tenant]--; l.tenants[h.tenant] == 0 {
		delete(l.tenants, h.tenant)
	}
	if h.one == "" {
		return
	}
	if l.ones[h]--; l.ones[h] == 0 {
		delete(l.ones, h)
	}
}
