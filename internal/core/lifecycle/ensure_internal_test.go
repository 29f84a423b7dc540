package lifecycle

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

// TestNoStartIsGivenUpThatSomebodyWaitsFor: one who asks for it just as the last of
// the others leaves keeps it going, or begins another.
func TestNoStartIsGivenUpThatSomebodyWaitsFor(t *testing.T) {
	untilGivenUp := func(ctx context.Context) (sandbox.Sandbox, Ensured, error) {
		<-ctx.Done()
		return sandbox.Sandbox{}, "", ctx.Err()
	}
	// A lock that was waited for this long goes to the next in line, and not to
	// who just had it.
	const inLine = 2 * time.Millisecond
	var w wakes
	key := wakeKey{sandbox.NewUID(), UseAny}
	for range 20 {
		first := w.join(t.Context(), key, untilGivenUp)
		var second *wakeFlight
		var both sync.WaitGroup
		w.mu.Lock()
		both.Go(first.leave)
		time.Sleep(inLine)
		both.Go(func() { second = w.join(t.Context(), key, untilGivenUp) })
		time.Sleep(inLine)
		w.mu.Unlock()
		w.mu.Lock()
		time.Sleep(inLine)
		w.mu.Unlock()
		both.Wait()
		w.mu.Lock()
		goesOn := w.now[key] == second
		w.mu.Unlock()
		second.leave()
		<-first.done
		<-second.done
		if !goesOn {
			t.Fatal("a start was given up that somebody waits for")
		}
	}
}
