package front

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/cubbyhq/cubby/internal/auth"
	"github.com/cubbyhq/cubby/internal/errs"
)

// What requests may make the daemon hold, all together. A client of its own,
// which is a tenant or a token without one, has half of it, and all tenants
// together leave a quarter to the operator.
const defaultMemory = 72 << 20

const (
	// freeBody of every body is not counted, nor a write of an answer up to
	// freeWrite: most requests are smaller.
	freeBody  = 16 << 10
	freeWrite = 64 << 10
	// bodyWeight and writeWeight are what a byte takes: what was decoded from
	// a body beside it, what was encoded into an answer beside that.
	bodyWeight  = 2
	writeWeight = 2
	// chargeStep is the piece in which a body that comes is charged.
	chargeStep = 64 << 10
)

// Budget bounds the bytes that the daemon holds for requests: bodies that are
// not streamed, and answers whose clients take their time. Beyond it requests
// are errs.Unready, so that one client's cannot end the daemon.
type Budget struct {
	whole int64

	mu      sync.Mutex
	used    int64            // guarded by mu
	tenants int64            // of used, what tenants hold; guarded by mu
	held    map[client]int64 // guarded by mu
}

// NewBudget returns a budget of so many bytes; 0 is the default for memory.
func NewBudget(whole int64) *Budget {
	if whole == 0 {
		whole = defaultMemory
	}
	return &Budget{whole: whole, held: make(map[client]int64)}
}

// Hold charges n bytes to who makes the request of ctx, until release, which
// may be called more than once.
func (m *Budget) Hold(ctx context.Context, n int64) (release func(), err error) {
	c := clientOf(auth.From(ctx), "")
	if err := m.charge(c, n); err != nil {
		return nil, err
	}
	return sync.OnceFunc(func() { m.give(c, n) }), nil
}

// Charge holds n bytes for the answer to the request of ctx until the request
// has ended; for a call that outlives its request, until ctx has. One that has
// no other is not refused for its size alone: what a request is charged for ends
// at its client's share. Outside of a request nothing is charged.
func (m *Budget) Charge(ctx context.Context, n int64) error {
	a, ok := ctx.Value(accountKey{}).(*account)
	if !ok || a.memory != m {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if n = min(n, m.share()-a.body-a.held); n <= 0 {
		return nil
	}
	if a.closed {
		release, err := m.Hold(ctx, n)
		if err == nil {
			context.AfterFunc(ctx, release)
		}
		return err
	}
	if err := m.charge(a.client, n); err != nil {
		return err
	}
	a.held += n
	return nil
}

// share is what one client may hold.
func (m *Budget) share() int64 { return m.whole / 2 }

// account is what one request has been charged for beside its body and its
// writes. It is in the request's context.
type account struct {
	memory *Budget
	client client

	mu     sync.Mutex
	held   int64 // guarded by mu
	body   int64 // what the request's body is charged for; guarded by mu
	closed bool  // guarded by mu
}

type accountKey struct{}

// covers returns what of n bytes that are to be charged is not yet.
func (a *account) covers(n int64) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return max(0, min(n, a.memory.share()-a.body)-a.held)
}

// charged notes what the request's body takes of its client's share.
func (a *account) charged(n int64) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.body = n
}

func (a *account) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.memory.give(a.client, a.held)
	a.held, a.closed = 0, true
}

func (m *Budget) charge(c client, n int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.held[c]+n > m.share():
		return errs.E(errs.Unready, "the large requests of this %s take all the room that it may have", c.noun()).
			Hint("send fewer at a time, and take their answers").RetryAfter(time.Second)
	case m.used+n > m.whole, c.isTenant() && m.tenants+n > m.whole/4*3:
		return errs.E(errs.Unready, "large requests take all the room that the daemon has for them").
			Hint("try again when others have ended").RetryAfter(time.Second)
	}
	m.add(c, n)
	return nil
}

func (m *Budget) give(c client, n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.add(c, -n)
}

// add is called with mu held.
func (m *Budget) add(c client, n int64) {
	m.used += n
	if c.isTenant() {
		m.tenants += n
	}
	if m.held[c] += n; m.held[c] == 0 {
		delete(m.held, c)
	}
}

// charged is what a body has been charged for.
type charged struct {
	memory  *Budget
	client  client
	account *account // of the request whose body it is, or nil
	bytes   int64
	err     error // why no more of the body is taken
	refuse  func(error)
}

// cover charges for a body of which so many bytes came.
func (c *charged) cover(taken int64) error {
	want := (taken - freeBody) * bodyWeight
	if c.memory == nil || c.err != nil || want <= c.bytes {
		return c.err
	}
	// A body alone is not refused for its size: limits of bodies are.
	more := min(want+chargeStep*bodyWeight, c.memory.share()) - c.bytes
	if more <= 0 {
		return nil
	}
	if c.err = c.memory.charge(c.client, more); c.err != nil {
		// What a door makes of a body that was cut off here is no answer.
		c.refuse(c.err)
		return c.err
	}
	c.bytes += more
	c.account.charged(c.bytes)
	return nil
}

func (c *charged) release() {
	if c.memory != nil {
		c.memory.give(c.client, c.bytes)
	}
	c.memory, c.bytes = nil, 0
	c.account.charged(0)
}

// StreamedBody returns the body of a request whose handler passes it on as it
// comes and does not hold it: it is not charged to the client's memory.
func StreamedBody(r *http.Request) io.ReadCloser {
	if b, ok := r.Body.(*body); ok {
		b.charged.release()
	}
	return r.Body
}
