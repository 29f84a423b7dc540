package lifecycle

import (
	"sync"
	"time"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

// lifetimeReason says in the sandbox's reason and its event why it was
// destroyed.
const lifetimeReason = "its max_lifetime was over"

// decideLifetime reports whether a sandbox's time is over. It does not matter
// what it does or whether it runs.
func decideLifetime(limit, age time.Duration) bool { return limit > 0 && age >= limit }

// lifetimes knows the sandboxes whose lifetime is bounded, whether they run or
// not, so that nobody has to read every row to find those whose time is over.
type lifetimes struct {
	mu   sync.Mutex
	born map[sandbox.UID]lifetime // guarded by mu
}

// lifetime is when a sandbox was made, by the service's own clock that does not
// step, and how long it may be.
type lifetime struct {
	born  time.Duration
	limit time.Duration
}

// note takes a sandbox in, or its changed limit. What is known of its birth
// stays: the wall clock may have stepped since.
func (l *lifetimes) note(b sandbox.Sandbox, now time.Time, uptime time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b.Spec.MaxLifetime <= 0 || !b.State.Live() {
		delete(l.born, b.UID)
		return
	}
	if l.born == nil {
		l.born = make(map[sandbox.UID]lifetime)
	}
	known, ok := l.born[b.UID]
	if !ok {
		known.born = uptime - max(0, now.Sub(b.CreatedAt))
	}
	known.limit = b.Spec.MaxLifetime
	l.born[b.UID] = known
}

func (l *lifetimes) forget(uid sandbox.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.born, uid)
}

// over returns the sandboxes whose time is over.
func (l *lifetimes) over(uptime time.Duration) (all []sandbox.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for uid, life := range l.born {
		if decideLifetime(life.limit, uptime-life.born) {
			all = append(all, uid)
		}
	}
	return all
}

func (l *lifetimes) isOver(uid sandbox.UID, uptime time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	life, ok := l.born[uid]
	return ok && decideLifetime(life.limit, uptime-life.born)
}
