package store

import "sync"

// groupSync lets callers that come together share one sync: do returns after a
// sync that began after do was called.
type groupSync struct {
	sync func() error

	turn chan struct{} // holds a token while no sync runs
	mu   sync.Mutex
	next *syncRound // the round that has not begun; guarded by mu
}

type syncRound struct {
	done chan struct{}
	err  error // valid after done
}

func newGroupSync(sync func() error) *groupSync {
	g := &groupSync{sync: sync, turn: make(chan struct{}, 1)}
	g.turn <- struct{}{}
	return g
}

func (g *groupSync) do() error {
	g.mu.Lock()
	if r := g.next; r != nil {
		g.mu.Unlock()
		<-r.done
		return r.err
	}
	r := &syncRound{done: make(chan struct{})}
	g.next = r
	g.mu.Unlock()

	<-g.turn
	defer func() { g.turn <- struct{}{} }()
	g.mu.Lock()
	g.next = nil // who comes from here on may have written after the sync began
	g.mu.Unlock()
	r.err = g.sync()
	close(r.done)
	return r.err
}
