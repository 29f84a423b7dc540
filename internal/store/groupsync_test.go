package store

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestGroupSyncShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		begin, end := make(chan struct{}), make(chan error)
		var syncs, returned, failed atomic.Int64
		g := newGroupSync(func() error {
			syncs.Add(1)
			begin <- struct{}{}
			return <-end
		})
		do := func() {
			if err := g.do(); err != nil {
				failed.Add(1)
			}
			returned.Add(1)
		}
		go do()
		<-begin
		for range 10 { // they come while a sync runs: it may have missed what they wrote
			go do()
		}
		synctest.Wait()
		end <- nil
		<-begin
		synctest.Wait()
		if got := returned.Load(); got != 1 {
			t.Errorf("%d returned after the first sync, want the one that began it", got)
		}
		end <- broken
		synctest.Wait()
		if syncs.Load() != 2 || returned.Load() != 11 || failed.Load() != 10 {
			t.Errorf("%d syncs, %d returned, %d failed; want 2, 11, 10", syncs.Load(), returned.Load(), failed.Load())
		}
	})
}

func TestRunFlushes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		flushes, tidied := 0, 0
		s := &Store{engine: engine{
			flush: func() error { flushes++; return nil },
			tidy:  func(context.Context) error { tidied++; return nil },
		}}
		done := make(chan error)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { done <- s.Run(ctx) }()
		time.Sleep(3*syncInterval + syncInterval/2)
		cancel()
		if err := <-done; err != nil || flushes != 3 || tidied != 3 {
			t.Errorf("Run = %v after %d flushes and %d rounds of tidying, want 3", err, flushes, tidied)
		}
	})
}
