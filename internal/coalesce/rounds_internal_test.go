package coalesce

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

func TestRoundsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		begin, end := make(chan struct{}), make(chan error)
		var rounds, returned, failed atomic.Int64
		g := NewRounds(func() error {
			rounds.Add(1)
			begin <- struct{}{}
			return <-end
		})
		do := func() {
			if err := g.Do(); err != nil {
				failed.Add(1)
			}
			returned.Add(1)
		}
		go do()
		<-begin
		for range 10 { // they come while a round is under way: it may have missed what they wrote
			go do()
		}
		synctest.Wait()
		end <- nil
		<-begin
		synctest.Wait()
		if got := returned.Load(); got != 1 {
			t.Errorf("%d returned after the first round, want the one that began it", got)
		}
		end <- broken
		synctest.Wait()
		if rounds.Load() != 2 || returned.Load() != 11 || failed.Load() != 10 {
			t.Errorf("%d rounds, %d returned, %d failed; want 2, 11, 10", rounds.Load(), returned.Load(), failed.Load())
		}
	})
}
