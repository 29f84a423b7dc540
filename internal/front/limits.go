package front

import (
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/cubbyhq/cubby/internal/auth"
	"github.com/cubbyhq/cubby/internal/errs"
)

// What clients may hold and try.
const (
	// maxOpen bounds the requests that are open at once: streams, waits and
	// transfers hold a connection and memory for as long as they last.
	maxOpen          = 4096
	maxOpenPerClient = 1024
	// operatorOpen of them are for tokens without a tenant only: whoever looks
	// after the daemon gets in whatever the tenants do.
	operatorOpen = 512

	// Wrong tokens of one address: so many at once, then one in guessEvery.
	guessBurst = 20
	guessEvery = time.Second
	// maxGuessers bounds the addresses that are remembered.
	maxGuessers = 10_000
)

// limits counts what clients do. The zero value is ready.
type limits struct {
	mu      sync.Mutex
	total   int            // guarded by mu
	tenants int            // of total, those of tenants; guarded by mu
	open    map[client]int // guarded by mu
}

// Guesses counts the wrong tokens of addresses. The zero value is ready, and its
// methods may be called from any goroutine.
type Guesses struct {
	mu       sync.Mutex
	guessers map[netip.Addr]*rate.Limiter // guarded by mu
	now      func() time.Time             // nil: time.Now
}

// enter counts a request of a client until leave. It is OverQuota when there
// are too many.
func (l *limits) enter(c client) (leave func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.open[c] >= maxOpenPerClient:
		return nil, errs.E(errs.OverQuota, "this %s has %d requests open at once", c.noun(), maxOpenPerClient).
			Hint("end streams and waits that are not needed").RetryAfter(time.Second)
	case l.total >= maxOpen, c.isTenant() && l.tenants >= maxOpen-operatorOpen:
		return nil, errs.E(errs.OverQuota, "the daemon has %d requests open at once", l.total).
			Hint("try again when other clients have ended theirs").RetryAfter(time.Second)
	}
	if l.open == nil {
		l.open = make(map[client]int)
	}
	l.count(c, 1)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.count(c, -1)
	}, nil
}

// count is called with mu held.
func (l *limits) count(c client, n int) {
	l.total += n
	if c.isTenant() {
		l.tenants += n
	}
	if l.open[c] += n; l.open[c] == 0 {
		delete(l.open, c)
	}
}

// Wrong notes a wrong token from an address. It is OverQuota when these come
// too fast; right ones are not held up by them.
func (g *Guesses) Wrong(remote string) error {
	now := time.Now
	if g.now != nil {
		now = g.now
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.guessers) >= maxGuessers {
		clear(g.guessers)
	}
	if g.guessers == nil {
		g.guessers = make(map[netip.Addr]*rate.Limiter)
	}
	from := network(remote)
	if g.guessers[from] == nil {
		g.guessers[from] = rate.NewLimiter(rate.Every(guessEvery), guessBurst)
	}
	if g.guessers[from].AllowN(now(), 1) {
		return nil
	}
	return errs.E(errs.OverQuota, "too many wrong tokens from this address").RetryAfter(guessEvery)
}

// network is who an address belongs to: one IPv4 address, or the /64 that an
// IPv6 host can choose its addresses from.
func network(remote string) netip.Addr {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Addr{}
	}
	addr := at.Addr().Unmap()
	if addr.Is6() {
		if p, err := addr.WithZone("").Prefix(64); err == nil {
			return p.Addr()
		}
	}
	return addr
}

// client is who shares a bound: all tokens of a tenant together, else one
// token, else one address where nobody authenticates.
type client struct{ tenant, token, address string }

func clientOf(p auth.Principal, remote string) client {
	switch {
	case p.Tenant != "":
		return client{tenant: p.Tenant}
	case p.Name != "":
		return client{token: p.Name}
	}
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return client{}
	}
	return client{address: host}
}

func (c client) isTenant() bool { return c.tenant != "" }

func (c client) noun() string {
	if c.isTenant() {
		return "tenant"
	}
	return "client"
}
