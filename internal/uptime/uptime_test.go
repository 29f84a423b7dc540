package uptime

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The tests' time is a bubble's: a sleep of it is a step of its clock.
func TestTimers(t *testing.T) {
	const limit = 10 * time.Second
	tests := []struct {
		name string
		do   func(c *Clock)
		want time.Duration // after the beginning, 0: never
	}{
		{"never paused", func(*Clock) {}, limit},
		{"paused", func(c *Clock) { c.Pause() }, 0},
		{"paused and resumed", func(c *Clock) { time.Sleep(4 * time.Second); c.Pause(); time.Sleep(time.Hour); c.Resume() }, time.Hour + limit},
		{"paused twice, resumed twice", func(c *Clock) {
			c.Pause()
			time.Sleep(time.Minute)
			c.Pause()
			time.Sleep(time.Minute)
			c.Resume()
			time.Sleep(time.Second)
			c.Resume()
		}, 2*time.Minute + limit},
		{"nearly over", func(c *Clock) {
			time.Sleep(limit - time.Millisecond)
			c.Pause()
			time.Sleep(time.Hour)
			c.Resume()
		}, time.Hour + limit},
		{"slept often", func(c *Clock) {
			for range 5 {
				time.Sleep(time.Second)
				c.Pause()
				time.Sleep(time.Minute)
				c.Resume()
			}
		}, 5*time.Minute + limit},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, began := New(), time.Now()
				fired := make(chan time.Duration, 1)
				timer := c.AfterFunc(limit, func() { fired <- time.Since(began) })
				tt.do(c)
				time.Sleep(2 * time.Hour)
				synctest.Wait()
				var at time.Duration
				select {
				case at = <-fired:
				default:
				}
				if at != tt.want {
					t.Errorf("fired after %s, want %s", at, tt.want)
				}
				if stopped := timer.Stop(); stopped != (tt.want == 0) {
					t.Errorf("Stop = %t", stopped)
				}
			})
		})
	}
}

// What begins while the clock is paused has all of its time.
func TestTimerOfAPausedClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New()
		time.Sleep(time.Second)
		c.Pause()
		over, _ := c.After(time.Second)
		time.Sleep(time.Hour)
		if now := c.Now(); now != time.Second {
			t.Errorf("the clock says %s while it is paused, want 1s", now)
		}
		c.Resume()
		began := time.Now()
		<-over
		if took := time.Since(began); took != time.Second {
			t.Errorf("over %s after Resume, want 1s", took)
		}
		if now := c.Now(); now != 2*time.Second {
			t.Errorf("the clock says %s, want 2s", now)
		}
	})
}

// A timer that is due in the moment of the pause fires once, after it.
func TestTimerIsDueAtThePause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New()
		fired := 0
		timer := c.AfterFunc(time.Second, func() { fired++ })
		c.mu.Lock() // its goroutine waits for this
		time.Sleep(time.Second)
		c.before, c.paused = c.now(), true
		timer.stop()
		c.mu.Unlock()
		synctest.Wait()
		if fired != 0 {
			t.Errorf("fired %d times while the clock was paused", fired)
		}
		c.Resume()
		time.Sleep(time.Minute)
		synctest.Wait()
		if fired != 1 {
			t.Errorf("fired %d times, want once", fired)
		}
	})
}

func TestStoppedTimerStaysStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New()
		timer := c.AfterFunc(time.Second, func() { t.Error("fired") })
		c.Pause()
		if !timer.Stop() || timer.Stop() {
			t.Error("Stop must report once that it stopped the timer")
		}
		c.Resume()
		time.Sleep(time.Minute)
	})
}

func TestWithTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New()
		slow := errors.New("too slow")
		ctx, cancel := c.WithTimeout(t.Context(), time.Second, slow)
		defer cancel()
		c.Pause()
		time.Sleep(time.Hour)
		if err := ctx.Err(); err != nil {
			t.Errorf("over while the clock was paused: %v", err)
		}
		c.Resume()
		<-ctx.Done()
		if err := context.Cause(ctx); !errors.Is(err, slow) {
			t.Errorf("cause = %v, want %v", err, slow)
		}
		ended, cancel := c.WithTimeout(t.Context(), time.Second, nil)
		cancel()
		if err := ended.Err(); !errors.Is(err, context.Canceled) {
			t.Errorf("after its end: %v", err)
		}
		if n := len(c.timers); n != 0 {
			t.Errorf("%d timers are left", n)
		}
		ctx, cancel = c.WithTimeout(t.Context(), time.Second, nil)
		defer cancel()
		<-ctx.Done()
		if err := context.Cause(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("cause = %v", err)
		}
	})
}
