package live

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cubbyhq/cubby/internal/driver"
)

// slowKiller is a driver that does not come to an end.
type slowKiller struct{}

func (slowKiller) KillOthers(ctx context.Context, _ driver.Handle, _ []int64) error {
	<-ctx.Done()
	return ctx.Err()
}

// A host that was slow ended other commands too: those that had begun since the
// agent said whom to spare.
func TestKillByASlowHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if err := killOthers(t.Context(), slowKiller{}, nil, nil); err != nil {
			t.Errorf("killOthers = %v, want nil: the agent is asked again", err)
		}
		if took := time.Since(began); took != spareFor {
			t.Errorf("the host went by one answer for %v, want %v", took, spareFor)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := killOthers(ctx, slowKiller{}, nil, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("killOthers whose caller waits no more = %v, want that", err)
		}
	})
}
