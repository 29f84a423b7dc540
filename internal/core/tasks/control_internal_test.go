package tasks

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A task is killed although neither its end nor its sandbox can be reached at first.
func TestKillThatFailsAtFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		dead, asked := false, 0
		var kills []time.Duration
		killUntilEnded(t.Context(), cancelTime, killPause, func(wait time.Duration) bool {
			if asked++; asked < 3 {
				return false // an error, at once
			}
			if !dead {
				time.Sleep(wait)
			}
			return dead
		}, func() error {
			if kills = append(kills, time.Since(begun)); len(kills) < 3 {
				return errors.New("the sandbox does not answer")
			}
			dead = true
			return nil
		})
		if len(kills) != 3 || kills[0] != cancelTime || time.Since(begun) != cancelTime+2*killPause {
			t.Errorf("killed after %v, and done after %s", kills, time.Since(begun))
		}
	})
}

// A task that ends by itself is not killed, and one that cannot be killed is left to
// the next daemon.
func TestKillIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		killUntilEnded(t.Context(), cancelTime, killPause, func(time.Duration) bool { return true }, func() error {
			t.Error("killed")
			return nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		kills := 0
		killUntilEnded(ctx, 0, killPause, func(time.Duration) bool { return false }, func() error { kills++; return nil })
		if kills < 100 {
			t.Errorf("tried %d times in an hour", kills)
		}
	})
}
