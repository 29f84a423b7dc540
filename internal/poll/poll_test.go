package poll

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, calls := time.Now(), []time.Duration{}
		err := Until(t.Context(), time.Millisecond, 5*time.Millisecond, func() (bool, error) {
			calls = append(calls, time.Since(began))
			return len(calls) == 6, nil
		})
		if err != nil || len(calls) != 6 || calls[1] != time.Millisecond || calls[2] != 3*time.Millisecond || calls[5]-calls[4] != 5*time.Millisecond {
			t.Errorf("called at %v, %v", calls, err)
		}

		broken := errors.New("broken")
		if err := Until(t.Context(), time.Millisecond, time.Second, func() (bool, error) { return false, broken }); !errors.Is(err, broken) {
			t.Errorf("got %v, want done's error as it is", err)
		}

		// For longer than the library would by itself.
		cause := errors.New("the time is up")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Hour, cause)
		defer cancel()
		if err := Until(ctx, time.Millisecond, time.Second, func() (bool, error) { return false, nil }); !errors.Is(err, cause) {
			t.Errorf("got %v, want the cause of the context's end", err)
		}
		asked := false
		if err := Until(ctx, time.Millisecond, time.Second, func() (bool, error) { asked = true; return true, nil }); err != nil || !asked {
			t.Errorf("after the end: %v, asked %v", err, asked)
		}
	})
}
