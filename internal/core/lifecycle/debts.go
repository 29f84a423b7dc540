package lifecycle

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

// debts are what acts leave to the reconciler.
type debts struct {
	wake  chan struct{} // asks for a reconciliation soon
	slept atomic.Bool   // somebody has to look at what sleepers take of the disk

	mu      sync.Mutex
	faults  []Problem                   // of the last reconciliation; guarded by mu
	others  []Problem                   // drivers that have sandboxes and are not here; guarded by mu
	settled bool                        // no reconciliation has to look at every row; guarded by mu
	untold  map[sandbox.UID]sandbox.Why // why what the store could not note ended; guarded by mu
}

func newDebts() *debts {
	d := &debts{wake: make(chan struct{}, 1), untold: make(map[sandbox.UID]sandbox.Why)}
	d.slept.Store(true) // those of an earlier daemon
	return d
}

// reconcileSoon asks for a reconciliation before its time.
func (d *debts) reconcileSoon() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// lookAtAll asks for a reconciliation that looks at every row soon, because an
// act left something that no watcher sees.
func (d *debts) lookAtAll() {
	d.mu.Lock()
	d.settled = false
	d.mu.Unlock()
	d.reconcileSoon()
}

// begin begins a turn, which looks at every row when full.
func (d *debts) begin() (full bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	full = !d.settled
	d.settled = true // unless somebody says otherwise meanwhile
	return full
}

// end ends a turn with what went wrong in it, and with what another turn would
// not change: whose sandboxes were left alone.
func (d *debts) end(full bool, faults, others []Problem) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults, d.others = faults, others
	if full && len(faults) > 0 {
		d.settled = false
	}
}

// faulty reports whether something went wrong in the last turn that may go well in
// the next.
func (d *debts) faulty() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.faults) > 0
}

// problems are all those of the last turn.
func (d *debts) problems() []Problem {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Concat(d.faults, d.others)
}

// owe keeps the why of an end that the store could not note, for the
// reconciliation that makes up for it.
func (d *debts) owe(uid sandbox.UID, why sandbox.Why) {
	d.mu.Lock()
	d.untold[uid] = why
	d.mu.Unlock()
	d.lookAtAll()
}

// owed returns the why that is owed for a sandbox.
func (d *debts) owed(uid sandbox.UID) (why sandbox.Why, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	why, ok = d.untold[uid]
	return why, ok
}

// told ends what is owed for a sandbox.
func (d *debts) told(uid sandbox.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.untold, uid)
}
