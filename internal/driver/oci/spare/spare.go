// Package spare keeps things ready that take longer to make than somebody should
// wait for them.
package spare

import (
	"sync"
	"time"
)

// Spares are things of one kind. They are made ahead once the first one was taken.
// Safe for concurrent use.
type Spares[T any] struct {
	create  func() (T, error)
	discard func(T)
	count   int           // how many are kept
	after   time.Duration // a taking; see New

	making sync.WaitGroup
	ending chan struct{} // closed by Close

	mu      sync.Mutex
	spare   []T  // guarded by mu
	filling bool // somebody makes more; guarded by mu
	closed  bool // guarded by mu
}

// New keeps count things that create makes and discard takes away. They are made
// some time after one was taken, which leaves whoever took it the processors.
func New[T any](count int, after time.Duration, create func() (T, error), discard func(T)) *Spares[T] {
	return &Spares[T]{create: create, discard: discard, count: count, after: after, ending: make(chan struct{})}
}

// Take returns one of those that are ready, or makes one. It is the caller's.
func (s *Spares[T]) Take() (T, error) {
	s.mu.Lock()
	if !s.closed && !s.filling {
		s.filling = true
		s.making.Go(s.refill)
	}
	if n := len(s.spare); n > 0 {
		one := s.spare[n-1]
		s.spare = s.spare[:n-1]
		s.mu.Unlock()
		return one, nil
	}
	s.mu.Unlock()
	return s.create()
}

func (s *Spares[T]) refill() {
	select {
	case <-s.ending:
	case <-time.After(s.after):
	}
	for {
		s.mu.Lock()
		if s.closed || len(s.spare) >= s.count {
			s.filling = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		one, err := s.create()
		s.mu.Lock()
		if err != nil {
			s.filling = false // the next one who takes one is told
			s.mu.Unlock()
			return
		}
		s.spare = append(s.spare, one)
		s.mu.Unlock()
	}
}

// Close discards all that were not taken. Take makes each one from then on.
func (s *Spares[T]) Close() {
	s.mu.Lock()
	if !s.closed {
		close(s.ending)
	}
	s.closed = true
	s.mu.Unlock()
	s.making.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.spare {
		s.discard(one)
	}
	s.spare = nil
}
