package spare

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// shop is where a stock has its things from: numbers of a kind.
type shop struct {
	*Stock[string, int]

	mu        sync.Mutex
	made      []string
	dead      map[int]bool
	discarded []int
	err       error
}

const rest = time.Second

func newShop(count int) *shop {
	s := &shop{dead: make(map[int]bool)}
	s.Stock = NewStock[string](count, rest, func(n int) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return !s.dead[n]
	}, func(n int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.discarded = append(s.discarded, n)
	})
	return s
}

// take takes one of a kind, 0: none, and waits until others are made.
func (s *shop) take(kind string) int {
	n, found := s.Take(kind, func(context.Context) (int, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.err != nil {
			return 0, s.err
		}
		s.made = append(s.made, kind)
		return len(s.made), nil
	})
	if !found && n != 0 {
		panic("one that was not found")
	}
	time.Sleep(rest + time.Millisecond)
	synctest.Wait()
	return n
}

func (s *shop) check(t *testing.T, made []string, discarded ...int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.made, made) || !slices.Equal(s.discarded, discarded) {
		t.Errorf("made %v, discarded %v; want %v and %v", s.made, s.discarded, made, discarded)
	}
}

func TestStock(t *testing.T) {
	tests := map[string]func(*testing.T, *shop){
		"nobody waits for the first, and the next is there": func(t *testing.T, s *shop) {
			if ready, wanted := s.Size(); ready != 0 || wanted != 0 {
				t.Errorf("Size = %d, %d, before any was wanted", ready, wanted)
			}
			if n := s.take("a"); n != 0 {
				t.Errorf("took %d of an empty stock", n)
			}
			if ready, wanted := s.Size(); ready != 2 || wanted != 2 {
				t.Errorf("Size = %d, %d, want 2, 2", ready, wanted)
			}
			if n := s.take("a"); n != 1 {
				t.Errorf("took %d, want 1", n)
			}
			s.check(t, []string{"a", "a", "a"})
		},
		"others, of what is wanted twice in a row": func(t *testing.T, s *shop) {
			s.take("a")
			for range 2 {
				if n := s.take("b"); n != 0 {
					t.Errorf("took %d, of another kind", n)
				}
			}
			if n := s.take("b"); n != 3 {
				t.Errorf("took %d, want 3", n)
			}
			s.check(t, []string{"a", "a", "b", "b", "b"}, 1, 2)
		},
		"two kinds in turn keep theirs": func(t *testing.T, s *shop) {
			s.take("a")
			for want := 1; want <= 3; want++ {
				if n := s.take("b"); n != 0 {
					t.Errorf("took %d, of another kind", n)
				}
				if n := s.take("a"); n != want {
					t.Errorf("took %d, want %d", n, want)
				}
			}
			s.check(t, []string{"a", "a", "a", "a", "a"})
		},
		"the kind of today when none is left": func(t *testing.T, s *shop) {
			s.take("a")
			s.GiveUp(0)
			s.take("b")
			if n := s.take("b"); n != 3 {
				t.Errorf("took %d, want 3", n)
			}
		},
		"none that is dead": func(t *testing.T, s *shop) {
			s.take("a")
			s.mu.Lock()
			s.dead[1] = true
			s.mu.Unlock()
			if n := s.take("a"); n != 2 {
				t.Errorf("took %d, want 2", n)
			}
			s.check(t, []string{"a", "a", "a", "a"}, 1)
		},
		"what failed is tried again when it is wanted": func(t *testing.T, s *shop) {
			s.err = errors.New("no")
			s.take("a")
			s.mu.Lock()
			s.err = nil
			s.mu.Unlock()
			if n := s.take("a"); n != 0 {
				t.Errorf("took %d of what failed", n)
			}
			if n := s.take("a"); n != 1 {
				t.Errorf("took %d, want 1", n)
			}
		},
		"given up, and none made for a while": func(t *testing.T, s *shop) {
			s.take("a")
			if n := s.GiveUp(time.Minute); n != 2 {
				t.Errorf("gave up %d, want 2", n)
			}
			if n := s.take("a"); n != 0 {
				t.Errorf("took %d of what was given up", n)
			}
			s.check(t, []string{"a", "a"}, 1, 2)
			time.Sleep(time.Minute)
			s.take("a")
			if n := s.take("a"); n != 3 {
				t.Errorf("took %d, want 3", n)
			}
		},
		"none after the end": func(t *testing.T, s *shop) {
			s.take("a")
			s.Close()
			s.check(t, []string{"a", "a"}, 1, 2)
			if n := s.take("a"); n != 0 {
				t.Errorf("took %d after the end", n)
			}
			s.check(t, []string{"a", "a"}, 1, 2)
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newShop(2)
				defer s.Close()
				test(t, s)
			})
		})
	}
}

// TestAnEndIsHeard by what makes things, and Close does not wait for them.
func TestAnEndIsHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(1)
		s.Want("a", func(ctx context.Context) (int, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		})
		time.Sleep(rest + time.Millisecond)
		s.Close()
		s.check(t, nil)
	})
}

// TestAStockWaitsForAPause of those who want one, and not for ever.
func TestAStockWaitsForAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(1)
		defer s.Close()
		begun := time.Now()
		var made atomic.Int64 // after begun
		create := func(context.Context) (int, error) { made.Store(int64(time.Since(begun))); return 1, nil }
		for range 3 {
			s.Want("a", create)
			time.Sleep(rest / 2)
		}
		time.Sleep(rest)
		synctest.Wait()
		if got := time.Duration(made.Load()); got != 2*rest {
			t.Errorf("made after %v, want %v: a pause after the last wish", got, 2*rest)
		}
		s.GiveUp(0)
		before := time.Since(begun)
		for made.Store(0); made.Load() == 0; time.Sleep(rest / 2) {
			s.Want("a", create)
		}
		if got := time.Duration(made.Load()) - before; got != patience*rest {
			t.Errorf("made after %v, want %v: it is wanted all the time", got, patience*rest)
		}
	})
}

// TestAStockOfNone makes none.
func TestAStockOfNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShop(0)
		defer s.Close()
		s.take("a")
		if n := s.take("a"); n != 0 {
			t.Errorf("took %d", n)
		}
		s.check(t, nil)
	})
}

// TestAStockThatEndsMeanwhile discards what is made when nobody can take it any more, or
// nobody wants it.
func TestAStockThatEndsMeanwhile(t *testing.T) {
	for name, end := range map[string]func(s *shop){
		"given up":     func(s *shop) { s.GiveUp(time.Hour) },
		"another kind": func(s *shop) { s.Want("b", func(context.Context) (int, error) { return 0, errors.New("no") }) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newShop(1)
				defer s.Close()
				s.Want("a", func(context.Context) (int, error) { time.Sleep(rest); return 7, nil })
				time.Sleep(rest + rest/2)
				end(s)
				time.Sleep(rest)
				synctest.Wait()
				s.check(t, nil, 7)
			})
		})
	}
}
