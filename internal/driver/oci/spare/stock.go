package spare

import (
	"context"
	"sync"
	"time"
)

// Stock keeps things that are all of one kind, that which is wanted. They are made
// ahead and not for whoever wants one. Safe for concurrent use.
type Stock[Kind comparable, T any] struct {
	lives   func(T) bool
	discard func(T)
	count   int           // how many are kept
	after   time.Duration // a wish; see NewStock

	making sync.WaitGroup
	ctx    context.Context // ended by Close
	end    context.CancelFunc

	mu     sync.Mutex
	ready  []T                              // guarded by mu
	kind   Kind                             // of all of them; guarded by mu
	create func(context.Context) (T, error) // makes one of the kind; guarded by mu
	other  *Kind                            // what was wanted last, of another kind; guarded by mu
	last   time.Time                        // when one was wanted; guarded by mu
	busy   bool                             // somebody makes more; guarded by mu
	quiet  time.Time                        // none are made before; guarded by mu
	closed bool                             // guarded by mu
}

// NewStock keeps count things, as long as they live; discard takes one away. They are made
// when none was wanted for some time, which leaves those who wanted them the processors:
// at the latest patience times that after the first wish.
func NewStock[Kind comparable, T any](count int, after time.Duration, lives func(T) bool, discard func(T)) *Stock[Kind, T] {
	s := &Stock[Kind, T]{lives: lives, discard: discard, count: count, after: after}
	s.ctx, s.end = context.WithCancel(context.Background())
	return s
}

// Want has things of a kind made, by create, if there are none. Those of another kind go
// when this one is wanted twice in a row: two kinds in turn do not have each other
// discarded.
func (s *Stock[Kind, T]) Want(kind Kind, create func(context.Context) (T, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.count == 0 {
		return
	}
	s.last = time.Now()
	if s.kind != kind && len(s.ready) > 0 {
		if s.other == nil || *s.other != kind {
			s.other = &kind
			return
		}
		useless := s.ready
		s.ready = nil
		s.making.Go(func() { s.discardAll(useless) })
	}
	s.kind, s.create, s.other = kind, create, nil
	if !s.busy && !time.Now().Before(s.quiet) {
		s.busy = true
		s.making.Go(s.refill)
	}
}

// Take is Want that returns one that is ready, which is the caller's.
func (s *Stock[Kind, T]) Take(kind Kind, create func(context.Context) (T, error)) (one T, found bool) {
	s.Want(kind, create)
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.closed && s.kind == kind && len(s.ready) > 0 {
		first := s.ready[0]
		s.ready = s.ready[1:]
		if s.lives(first) {
			return first, true
		}
		s.making.Go(func() { s.discard(first) })
	}
	return one, false
}

// patience is for how many times its pause a stock waits for one.
const patience = 8

func (s *Stock[Kind, T]) refill() {
	for latest := time.Now().Add(patience * s.after); s.pause(latest); {
	}
	for s.makeOne() {
	}
}

// pause waits until nothing was wanted for a while. It reports whether something was
// meanwhile, and there is time to wait again.
func (s *Stock[Kind, T]) pause(latest time.Time) bool {
	s.mu.Lock()
	until := s.last.Add(s.after)
	s.mu.Unlock()
	if until.After(latest) {
		until = latest
	}
	t := time.NewTimer(time.Until(until))
	defer t.Stop()
	select {
	case <-s.ctx.Done():
		return false
	case <-t.C:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Before(s.last.Add(s.after)) && time.Now().Before(latest)
}

// makeOne is a step of refill, which reports whether there is another.
func (s *Stock[Kind, T]) makeOne() bool {
	s.mu.Lock()
	kind, create := s.kind, s.create
	if s.closed || len(s.ready) >= s.count || time.Now().Before(s.quiet) {
		s.busy = false
		s.mu.Unlock()
		return false
	}
	s.mu.Unlock()
	one, err := create(s.ctx)
	s.mu.Lock()
	switch {
	case err != nil:
		s.busy = false // the next one who wants one has it tried again
		s.mu.Unlock()
		return false
	case s.closed || s.kind != kind || time.Now().Before(s.quiet):
		s.mu.Unlock()
		s.discard(one)
		return true
	}
	s.ready = append(s.ready, one)
	s.mu.Unlock()
	return true
}

// Size is how many things are ready, and how many shall be: none before a kind was
// wanted.
func (s *Stock[Kind, T]) Size() (ready, wanted int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.create != nil && !s.closed {
		wanted = s.count
	}
	return len(s.ready), wanted
}

// GiveUp discards what is ready, and has none made for a time. It returns how many there
// were.
func (s *Stock[Kind, T]) GiveUp(quiet time.Duration) int {
	s.mu.Lock()
	given := s.ready
	s.ready, s.quiet = nil, time.Now().Add(quiet)
	s.mu.Unlock()
	s.discardAll(given)
	return len(given)
}

func (s *Stock[Kind, T]) discardAll(list []T) {
	for _, one := range list {
		s.discard(one)
	}
}

// Close discards all that were not taken, and ends with what goes on in the background.
func (s *Stock[Kind, T]) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.end()
	s.making.Wait()
	s.GiveUp(0)
}
