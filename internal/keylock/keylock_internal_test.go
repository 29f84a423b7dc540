package keylock

import (
	"context"
	"errors"
	"sync"
	"testing"
)

func TestLocks(t *testing.T) {
	var k Locks
	ctx := context.Background()
	var wg sync.WaitGroup
	counts := map[string]*int{"a": new(int), "b": new(int)}
	for key, n := range counts {
		for range 100 {
			wg.Go(func() {
				unlock, err := k.Lock(ctx, key)
				if err != nil {
					t.Error(err)
					return
				}
				defer unlock()
				*n++ // the race detector watches
			})
		}
	}
	wg.Wait()
	if *counts["a"] != 100 || *counts["b"] != 100 {
		t.Errorf("counted %d and %d, want 100", *counts["a"], *counts["b"])
	}
	if len(k.locks) != 0 {
		t.Errorf("%d locks are left, want none", len(k.locks))
	}
}

func TestLocksWaitEndsWithItsContext(t *testing.T) {
	var k Locks
	unlock, err := k.Lock(context.Background(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := k.TryLock("a"); ok {
		t.Error("TryLock took a lock that is held")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := k.Lock(ctx, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("Lock = %v, want canceled", err)
	}
	unlock()
	unlock() // a second one does nothing
	again, ok := k.TryLock("a")
	if !ok {
		t.Fatal("TryLock of a free lock failed")
	}
	again()
	if len(k.locks) != 0 {
		t.Errorf("%d locks are left, want none", len(k.locks))
	}
}

func TestWait(t *testing.T) {
	var k Locks
	unlock := k.Wait("a")
	entered := make(chan struct{})
	go func() {
		defer k.Wait("a")()
		close(entered)
	}()
	k.Wait("b")() // another key's is free
	select {
	case <-entered:
		t.Error("two hold the same lock")
	default:
	}
	unlock()
	<-entered
}
