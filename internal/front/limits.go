package front

import (
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/cubbyhq/cubby/internal/errs"
)

// What clients may hold and try. A client is a token's name, or an address
// where nobody authenticates.
const (
	// maxOpen bounds the requests that are open at once: streams, waits and
	// transfers hold a connection and memory for as long as they last.
	maxOpen          = 4096
	maxOpenPerClient = 1024

	// Wrong tokens of one address: so many at once, then one in guessEvery.
	guessBurst = 20
	guessEvery = time.Second
	// maxGuessers bounds the addresses that are remembered.
	maxGuessers = 10_000
)

// limits counts what clients do. The zero value is ready.
type limits struct {
	mu       sync.Mutex
	total    int                          // guarded by mu
	open     map[string]int               // by client; guarded by mu
	guessers map[netip.Addr]*rate.Limiter // guarded by mu
	now      func() time.Time             // nil: time.Now
}

// enter counts a request of a client until leave. It is OverQuota when there
// are too many.
func (l *limits) enter(client string) (leave func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.open[client] >= maxOpenPerClient:
		return nil, errs.E(errs.OverQuota, "this client has %d requests open at once", maxOpenPerClient).
			Hint("end streams and waits that are not needed").RetryAfter(time.Second)
	case l.total >= maxOpen:
		return nil, errs.E(errs.OverQuota, "the daemon has %d requests open at once", maxOpen).
			Hint("try again when other clients have ended theirs").RetryAfter(time.Second)
	}
	if l.open == nil {
		l.open = make(map[string]int)
	}
	l.open[client]++
	l.total++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.total--
		if l.open[client]--; l.open[client] == 0 {
			delete(l.open, client)
		}
	}, nil
}

// guessed notes a wrong token from an address. It is OverQuota when these come
// too fast; right ones are not held up by them.
func (l *limits) guessed(remote string) error {
	now := time.Now
	if l.now != nil {
		now = l.now
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.guessers) >= maxGuessers {
		clear(l.guessers)
	}
	if l.guessers == nil {
		l.guessers = make(map[netip.Addr]*rate.Limiter)
	}
	from := network(remote)
	if l.guessers[from] == nil {
		l.guessers[from] = rate.NewLimiter(rate.Every(guessEvery), guessBurst)
	}
	if l.guessers[from].AllowN(now(), 1) {
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

// client names who a request is counted for.
func client(principal string, r *http.Request) string {
	if principal != "" {
		return principal
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return ""
	}
	return "@" + host // no token has such a name
}
