package spare

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestSparesAreReady: the first one is made for whoever wants it, and those after it
// are there.
func TestSparesAreReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var made, discarded atomic.Int32
		s := New(2, time.Second, func() (int32, error) { return made.Add(1), nil }, func(int32) { discarded.Add(1) })
		if one, err := s.Take(); one != 1 || err != nil {
			t.Fatalf("Take = %d, %v", one, err)
		}
		time.Sleep(999 * time.Millisecond)
		synctest.Wait()
		if made.Load() != 1 {
			t.Errorf("%d were made in the first second, want the one that was taken", made.Load())
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if made.Load() != 3 {
			t.Errorf("%d were made, want the one that was taken and two spares", made.Load())
		}
		if one, err := s.Take(); one != 3 || err != nil {
			t.Errorf("Take = %d, %v, want a spare", one, err)
		}
		s.Close()
		if discarded.Load() != 1 {
			t.Errorf("%d were discarded, want the spare that nobody took", discarded.Load())
		}
		if one, err := s.Take(); one != 4 || err != nil {
			t.Errorf("after Close Take = %d, %v, want a new one", one, err)
		}
		s.Close()
	})
}

// TestAFailureIsTold to whoever takes one, and is tried again for the next.
func TestAFailureIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failure := errors.New("no")
		var now atomic.Pointer[error]
		now.Store(&failure)
		s := New(1, time.Second, func() (int, error) { return 7, *now.Load() }, func(int) {})
		defer s.Close()
		for range 2 {
			if _, err := s.Take(); !errors.Is(err, failure) {
				t.Errorf("Take = %v, want %v", err, failure)
			}
			time.Sleep(2 * time.Second)
		}
		var none error
		now.Store(&none)
		if one, err := s.Take(); one != 7 || err != nil {
			t.Errorf("Take = %d, %v", one, err)
		}
	})
}
