// Package cell runs code in the kernels of sandboxes, and assembles what a cell
// shows out of its journal: texts under bounds, values, updates of displays. It
// trusts nothing that a kernel says.
package cell

import (
	"context"
	"errors"

	"github.com/cubbyhq/cubby/internal/core/budget"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/journal"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Reader reads what cells have shown from their journals.
type Reader struct {
	Journals *journal.Journals
	Budget   budget.Budget
	Caps     Caps // of the texts of executions
}

// Execution returns a cell with what it has shown so far. Of missing only the
// counts of bytes are read that its journal has cut; the caller asks for them
// before this call, for the journal may be gone a moment later.
func (r *Reader) Execution(ctx context.Context, x sandbox.Exec, missing sandbox.Exit, caps Caps) (Execution, error) {
	o := newOutput(caps)
	err := r.read(ctx, x, o)
	if errors.Is(err, errs.NotFound) && !x.Unlogged() {
		o.recall(x.Result)
		e := o.execution(x, caps, sandbox.Exit{})
		e.Pruned = true
		return e, nil
	}
	if err != nil && !errors.Is(err, errs.NotFound) {
		return Execution{}, err
	}
	return o.execution(x, caps, missing), nil
}

// read gives what the journal has of a cell to o, and charges for it.
func (r *Reader) read(ctx context.Context, x sandbox.Exec, o *output) error {
	charged := int64(0)
	for entry, err := range r.Journals.Read(ctx, x.Box, x.Seq, 0, false) {
		if err != nil {
			return err
		}
		if entry.Exit == nil {
			if charged, err = r.charge(ctx, o, entry.Output, charged); err != nil {
				return err
			}
			o.add(entry.Output)
		}
	}
	return nil
}

// chargeStep is the piece in which an execution is charged.
const chargeStep = 64 << 10

// charge counts what an execution holds while its log is read: of long texts only
// the beginning, of rich output all that is shown. It is called before each piece
// of the log with what has been charged, and returns what is then.
func (r *Reader) charge(ctx context.Context, o *output, piece sandbox.Output, charged int64) (int64, error) {
	more := o.held() + int64(len(piece.Data)) - charged
	if !r.Budget.Counts() || o.brief || more <= budget.Free {
		return charged, nil
	}
	more += chargeStep
	return charged + more, r.Budget.ChargeOutput(ctx, more)
}
