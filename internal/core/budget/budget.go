// Package budget charges callers for the memory of the daemon that the answers
// to their reads take. What an answer holds is weighed here, by what it is; who
// may have how much the [Memory] behind it decides.
package budget

import (
	"context"

	"github.com/cubbyhq/cubby/internal/auth"
	"github.com/cubbyhq/cubby/internal/tenancy"
)

// Memory bounds what answers take of the daemon's memory, per caller.
// *front.Budget is one. Beyond it, it is errs.Unready.
type Memory interface {
	// Charge counts bytes until the request of ctx has ended.
	Charge(ctx context.Context, bytes int64) error
	// Hold counts them until release.
	Hold(ctx context.Context, bytes int64) (release func(), err error)
}

const (
	// What a byte takes before it has left: of a list, of which there are what
	// was read and the buffer that its answer grows in; of output with the
	// copies on its way.
	listWeight   = 3
	outputWeight = 3
	// Free is what every answer may hold without being counted.
	Free = 16 << 10
)

// reads is how many lists are read at once: how large one is is known when it has
// been read, and only then is it charged. Half of them are for no tenant only, and
// no tenant keeps another one waiting.
var reads = tenancy.Bound{All: 4, Tenant: 2, Reserved: 2}

// Budget charges for answers. The zero value charges nothing.
type Budget struct {
	memory Memory
	turns  *tenancy.Turns
}

// New returns a Budget that charges a Memory; without one it charges nothing.
func New(m Memory) Budget {
	if m == nil {
		return Budget{}
	}
	return Budget{memory: m, turns: tenancy.NewTurns(reads)}
}

// Counts reports whether anything is charged at all.
func (b Budget) Counts() bool { return b.memory != nil }

// Turn waits until a list may be read that is charged before done. It gives up with
// ctx.
func (b Budget) Turn(ctx context.Context) (done func(), err error) {
	if b.turns == nil {
		return func() {}, nil
	}
	return b.turns.Take(ctx, auth.From(ctx).Tenant)
}

// ChargeList counts what a list holds against the caller's memory until its
// request has ended.
func (b Budget) ChargeList(ctx context.Context, bytes int64) error {
	if b.memory == nil || bytes <= Free {
		return nil
	}
	return b.memory.Charge(ctx, bytes*listWeight)
}

// HoldList is ChargeList until release.
func (b Budget) HoldList(ctx context.Context, bytes int64) (release func(), err error) {
	if b.memory == nil || bytes <= Free {
		return func() {}, nil
	}
	return b.memory.Hold(ctx, bytes*listWeight)
}

// ChargeOutput counts output, or a file that is read whole, until the request
// of ctx has ended.
func (b Budget) ChargeOutput(ctx context.Context, bytes int64) error {
	if b.memory == nil || bytes <= Free {
		return nil
	}
	return b.memory.Charge(ctx, bytes*outputWeight)
}
