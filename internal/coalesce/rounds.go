package coalesce

import "sync"

// Rounds lets callers who come together share one round of something that all of
// them want done after they came.
type Rounds struct {
	do func() error

	turn chan struct{} // holds a token while none is under way
	mu   sync.Mutex
	next *round // the round that has not begun; guarded by mu
}

type round struct {
	done chan struct{}
	err  error // valid after done
}

// NewRounds are rounds of do.
func NewRounds(do func() error) *Rounds {
	g := &Rounds{do: do, turn: make(chan struct{}, 1)}
	g.turn <- struct{}{}
	return g
}

// Do returns after a round that began after it was called, with the round's error.
func (g *Rounds) Do() error {
	g.mu.Lock()
	if r := g.next; r != nil {
		g.mu.Unlock()
		<-r.done
		return r.err
	}
	r := &round{done: make(chan struct{})}
	g.next = r
	g.mu.Unlock()

	<-g.turn
	defer func() { g.turn <- struct{}{} }()
	g.mu.Lock()
	g.next = nil // who comes from here on may want what came after it began
	g.mu.Unlock()
	r.err = g.do()
	close(r.done)
	return r.err
}
