package agent

import (
	"context"
	"sync"
)

// room bounds the bytes of the states that runs work on, all together: a run that goes
// on holds its state several times, as it is, as a request and as what is sent. A
// tenant has half of it. Who comes when there is none waits.
type room struct {
	whole int64 // 0: no bound

	mu    sync.Mutex
	used  int64            // guarded by mu
	held  map[string]int64 // by tenant; guarded by mu
	given chan struct{}    // closed when some is given back; guarded by mu
}

// small is what every state may have: most are smaller, and wait for nobody.
const small = 256 << 10

func newRoom(whole int64) *room {
	return &room{whole: whole, held: map[string]int64{}, given: make(chan struct{})}
}

// enter takes room for a state of n bytes, until leave, which may be called more than
// once. A state that is larger than all that a tenant may have takes that. The error is
// that of ctx.
func (r *room) enter(ctx context.Context, tenant string, n int64) (leave func(), err error) {
	if n <= small || r.whole == 0 {
		return func() {}, nil
	}
	share := r.whole / 2
	n = min(n, share)
	for {
		r.mu.Lock()
		given := r.given
		if r.held[tenant]+n <= share && r.used+n <= r.whole {
			r.add(tenant, n)
			r.mu.Unlock()
			return sync.OnceFunc(func() { r.leave(tenant, n) }), nil
		}
		r.mu.Unlock()
		select {
		case <-given:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (r *room) leave(tenant string, n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.add(tenant, -n)
	close(r.given)
	r.given = make(chan struct{})
}

// add is called with mu held.
func (r *room) add(tenant string, n int64) {
	r.used += n
	if r.held[tenant] += n; r.held[tenant] == 0 {
		delete(r.held, tenant)
	}
}

// Room is memory for what the caller is shown, until release, which may be called more
// than once; the end of ctx is one too. A caller for whom there is none waits.
func (s *Service) Room(ctx context.Context, bytes int64) (release func(), err error) {
	leave, err := s.reading.enter(ctx, owner(ctx), bytes)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, leave)
	return func() { stop(); leave() }, nil
}
