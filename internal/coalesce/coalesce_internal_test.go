package coalesce

import (
	"context"
	"sync"
	"testing"
	"time"
)

// TestNoCallIsGivenUpThatSomebodyWaitsFor: one who asks for it just as the last of
// the others leaves keeps it going, or begins another.
func TestNoCallIsGivenUpThatSomebodyWaitsFor(t *testing.T) {
	untilGivenUp := func(ctx context.Context) (string, error) {
		<-ctx.Done()
		return "", ctx.Err()
	}
	// A lock that was waited for this long goes to the next in line, and not to
	// who just had it.
	const inLine = 2 * time.Millisecond
	var w Calls[string, string]
	const key = "a"
	for range 20 {
		first := w.Join(t.Context(), key, untilGivenUp)
		var second *Call[string, string]
		var both sync.WaitGroup
		w.mu.Lock()
		both.Go(first.Leave)
		time.Sleep(inLine)
		both.Go(func() { second = w.Join(t.Context(), key, untilGivenUp) })
		time.Sleep(inLine)
		w.mu.Unlock()
		w.mu.Lock()
		time.Sleep(inLine)
		w.mu.Unlock()
		both.Wait()
		w.mu.Lock()
		goesOn := w.now[key] == second
		w.mu.Unlock()
		second.Leave()
		<-first.done
		<-second.done
		if !goesOn {
			t.Fatal("a call was given up that somebody waits for")
		}
	}
}

// TestACallEndsWithTheLastWhoWaits and all who wait hear how it ended.
func TestACallEndsWithTheLastWhoWaits(t *testing.T) {
	var c Calls[int, int]
	release := make(chan struct{})
	begun := 0
	do := func(ctx context.Context) (int, error) {
		begun++
		select {
		case <-release:
			return 7, nil
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	first := c.Join(ctx, 1, do)
	second := c.Join(t.Context(), 1, do)
	if first != second || c.Waiting(func(int) bool { return true }) != 2 {
		t.Fatal("two callers do not wait for one call")
	}
	cancel() // of the first, who leaves
	first.Leave()
	close(release)
	<-second.Done()
	if v, err := second.Result(); v != 7 || err != nil || begun != 1 {
		t.Errorf("Result = %d, %v after %d calls; want 7 of one", v, err, begun)
	}
	second.Leave()
	third := c.Join(t.Context(), 1, func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() })
	if third == second {
		t.Error("a call that has ended is joined")
	}
	third.Leave()
	<-third.Done()
	if _, err := third.Result(); err == nil {
		t.Error("a call that nobody waits for goes on")
	}
}
