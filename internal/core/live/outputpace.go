package live

import (
	"context"
	"time"

	"github.com/cubbyhq/cubby/internal/auth"
	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/journal"
	"github.com/cubbyhq/cubby/internal/tenancy"
)

// Every piece of output wakes all who follow it, each with a read and a write
// for a few bytes. Where many followers are of one tenant, each waits between
// two small pieces for as long as the tenant's others may take, so that all of
// them together are woken some 4,000 times a second. What comes meanwhile is one
// larger piece; whoever reads a backlog does not wait.
const (
	unpacedFollowers = 64
	followerPace     = 250 * time.Microsecond // for each of the tenant's
	smallPiece       = 4 << 10
)

// outputFollowerBound is what the doors let in anyway.
var outputFollowerBound = tenancy.Bound{All: 4096, Tenant: 1024, Reserved: 512}

// outputFollower is one of those who follow output.
type outputFollower struct {
	s      *Sandboxes
	tenant string // the caller's
	leave  func()
}

func (s *Sandboxes) followOutput(ctx context.Context) (*outputFollower, error) {
	f := &outputFollower{s: s, tenant: auth.From(ctx).Tenant}
	var err error
	f.leave, err = s.outputs.Enter(f.tenant)
	return f, err
}

// pause waits after an entry.
func (f *outputFollower) pause(ctx context.Context, e journal.Entry) {
	n := f.s.outputs.Held(f.tenant)
	if n > unpacedFollowers && e.Exit == nil && !e.More && len(e.Output.Data) < smallPiece {
		gate.Sleep(ctx, time.Duration(n)*followerPace)
	}
}
