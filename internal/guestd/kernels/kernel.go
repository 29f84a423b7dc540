package kernels

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/guestd/proc"
	"github.com/cubbyhq/cubby/internal/kernel"
)

// A kernel's life is one goroutine's: it starts the process, runs the cells
// one after another and ends it. Everybody else leaves orders and ends what it
// waits for.
type liveKernel struct {
	s    *Set
	wake chan struct{} // a token when there is something to do
	gone chan struct{} // closed when nothing is left of it

	mu       sync.Mutex // below Set.mu
	name     string     // "": it is the spare one
	asked    *guestv1.KernelSpec
	created  time.Time
	kind     kernelKind
	status   guestv1.KernelStatus
	reason   string // why it is dead
	started  time.Time
	count    int64 // cells of the present process
	restarts int64
	modules  []string // that are imported in a process that takes the place of an unused one
	lost     string   // why the state is not that of the cell before; "": it is
	used     bool     // a cell ran in the present process
	leaving  bool     // a cell asked for the end of the present process
	came     bool     // it was up once
	process  *kernelProcess
	abort    context.CancelFunc // ends the start or the question that is under way; nil: none is
	queue    []*Cell
	current  *Cell
	draining *Cell // the one before, while its output waits for the host
	restart  []chan error
	asks     []*ask
	stale    bool          // its process may have the environment of before
	copies   []chan string // who wait for the end of what its random generators share with others
	ending   *proc.Cause   // the order to end
}

func newLiveKernel(s *Set, name string, asked *guestv1.KernelSpec) *liveKernel {
	return &liveKernel{
		s: s, name: name, asked: asked, created: s.cfg.Now(),
		status: guestv1.KernelStatus_KERNEL_STATUS_STARTING,
		wake:   make(chan struct{}, 1), gone: make(chan struct{}),
	}
}

func (k *liveKernel) stir() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// run is the kernel's life.
func (k *liveKernel) run() {
	defer close(k.gone)
	for k.step() {
	}
	k.s.mu.Lock()
	k.forget()
	k.s.mu.Unlock()
	k.mu.Lock()
	process, waiting, ending := k.process, k.restart, k.ending
	cells, copies := k.queue, k.copies
	k.queue, k.restart, k.copies = nil, nil, nil
	k.mu.Unlock()
	for _, c := range cells {
		c.refuse(ending)
	}
	if process != nil {
		process.kill()
		<-process.done
	}
	for _, w := range waiting {
		w <- errs.E(errs.NotFound, "the kernel %q was deleted", k.name)
	}
	for _, w := range copies {
		w <- ""
	}
}

// step does the next thing that is to be done, or waits for one. It is false
// at the end.
func (k *liveKernel) step() bool {
	k.mu.Lock()
	process, draining := k.process, k.draining
	if draining != nil && draining.isDrained() {
		k.draining, draining = nil, nil
	}
	switch {
	case k.ending != nil:
		k.mu.Unlock()
		return false
	case len(k.restart) > 0:
		waiting := k.restart
		k.restart = nil
		k.mu.Unlock()
		if process != nil {
			k.stop(process, "the kernel was restarted")
		}
		k.answer(waiting, k.begin(nil))
		return true
	case process != nil && !process.isDone() && (k.leaving || process.hasEnded()):
		// No cell is given to a process that is on its way out.
		k.mu.Unlock()
		process.expire()
		return true
	case process != nil && process.isDone():
		k.died("the kernel ended between two cells: " + process.howEnded())
		k.mu.Unlock()
		return true
	case k.stale || len(k.copies) > 0:
		waiting := k.copies
		k.stale, k.copies = false, nil
		k.mu.Unlock()
		k.refresh(process, waiting)
		return true
	case len(k.asks) > 0:
		a := k.asks[0]
		k.asks = k.asks[1:]
		k.mu.Unlock()
		k.put(process, a)
		return true
	case len(k.queue) > 0 && draining == nil:
		if process == nil {
			k.mu.Unlock()
			k.answer(nil, k.begin(nil))
			return true
		}
		c := k.queue[0]
		k.queue = k.queue[1:]
		k.current, k.status = c, guestv1.KernelStatus_KERNEL_STATUS_BUSY
		k.mu.Unlock()
		k.execute(process, c)
		return true
	}
	k.mu.Unlock()
	var died, drained <-chan struct{}
	if process != nil {
		died = process.done
	}
	if draining != nil {
		drained = draining.drained
	}
	select {
	case <-k.wake:
	case <-died:
	case <-drained:
	}
	return true
}

// begin starts the process and imports modules in it. It is one also when that
// fails.
func (k *liveKernel) begin(modules []string) error {
	ctx, cancel := context.WithCancel(k.s.life)
	defer cancel()
	k.mu.Lock()
	if k.ending != nil {
		k.mu.Unlock()
		return errNoMore
	}
	k.abort, k.status = cancel, guestv1.KernelStatus_KERNEL_STATUS_STARTING
	asked := k.asked
	k.mu.Unlock()
	process, kind, err := k.s.startKernel(ctx, asked)
	if err == nil {
		process.prepare(ctx, kind)
		if err := process.load(ctx, kind, modules); err != nil {
			k.s.cfg.Log.Debug("modules were not imported again", "kernel", kind.spec, "err", err)
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.abort = nil
	if err != nil {
		k.status, k.reason = guestv1.KernelStatus_KERNEL_STATUS_DEAD, errs.Public(startError(err)).Message
		return err
	}
	if k.came {
		k.restarts++
	}
	k.process, k.kind, k.came, k.used, k.count = process, kind, true, false, 0
	k.status, k.reason, k.started = guestv1.KernelStatus_KERNEL_STATUS_IDLE, "", k.s.cfg.Now()
	return nil
}

var errNoMore = errs.E(errs.WrongState, "the kernel is being ended")

// forget gives the name free. s.mu is held.
func (k *liveKernel) forget() {
	if k.s.spare == k {
		k.s.spare = nil
	}
	if k.s.kernels[k.name] == k { // named under s.mu
		delete(k.s.kernels, k.name)
	}
}

// answer tells how a start went to those who wait for it. Cells that waited
// for one that failed end with it, and a kernel that never was up does too: who
// hears of it can have another of its name at once.
func (k *liveKernel) answer(waiting []chan error, err error) {
	k.s.mu.Lock()
	defer k.s.mu.Unlock()
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil && (k.ending != nil || len(k.restart) > 0) {
		// A later order ended the start.
		k.restart = append(waiting, k.restart...)
		return
	}
	if err != nil && !k.came {
		k.ending = &proc.Cause{Text: "the kernel did not come up"}
		k.forget()
	}
	for _, w := range waiting {
		w <- err
	}
	if err == nil {
		return
	}
	for _, c := range k.queue {
		c.notStarted(err)
	}
	k.queue = nil
}

// died notes the end of the process. k.mu is held.
func (k *liveKernel) died(reason string) {
	if k.used && k.lost == "" {
		k.lost = reason
	}
	k.process, k.used, k.leaving = nil, false, false
	k.status, k.reason = guestv1.KernelStatus_KERNEL_STATUS_DEAD, reason
}

// stop ends a process that runs no cell.
func (k *liveKernel) stop(process *kernelProcess, reason string) {
	process.leave()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.died(reason)
}

// execute runs one cell.
func (k *liveKernel) execute(process *kernelProcess, c *Cell) {
	k.mu.Lock()
	lost := k.lost
	k.lost, k.used = "", true
	k.mu.Unlock()
	if lost != "" {
		c.out.record(kernel.Output{Kernel: &kernel.Notice{Restarted: true, Reason: lost}})
	}
	exit, died, leaves := c.run(process)
	k.mu.Lock()
	k.leaving = leaves
	k.current, k.draining = nil, c
	k.count++
	k.status = guestv1.KernelStatus_KERNEL_STATUS_IDLE
	if died != "" {
		k.died(died)
	}
	k.mu.Unlock()
	k.s.running.Go(func() { c.finish(exit) })
}

// submit adds a cell; false when the kernel is being ended.
func (k *liveKernel) submit(c *Cell) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ending != nil {
		return false
	}
	k.queue = append(k.queue, c)
	k.stir()
	return true
}

// withdraw takes a cell out of the queue; false when it is not in it.
func (k *liveKernel) withdraw(c *Cell) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, q := range k.queue {
		if q == c {
			k.queue = append(k.queue[:i:i], k.queue[i+1:]...)
			return true
		}
	}
	return false
}

// end orders the end of the kernel; running and queued cells end with this cause.
func (k *liveKernel) end(b proc.Cause) {
	k.mu.Lock()
	if k.ending == nil {
		k.ending = &b
	}
	c := k.unblock()
	k.mu.Unlock()
	if c != nil {
		c.endWithKernel(b)
	}
	k.stir()
}

// unblock ends a start or a question that is under way and returns the cell that runs. k.mu
// is held.
func (k *liveKernel) unblock() *Cell {
	if k.abort != nil {
		k.abort()
	}
	return k.current
}

// again starts the kernel anew, or for the first time, and returns when it
// answers.
func (k *liveKernel) again(ctx context.Context) error {
	done := make(chan error, 1)
	k.mu.Lock()
	k.restart = append(k.restart, done)
	c := k.unblock()
	k.mu.Unlock()
	if c != nil {
		c.endWithKernel(proc.Cause{
			Reason: guestv1.ExitReason_EXIT_REASON_KILLED,
			Text:   "the kernel was restarted under the cell: its state is lost",
		})
	}
	k.stir()
	select {
	case err := <-done:
		return err
	case <-k.gone:
		// The answer may have come with the end.
		select {
		case err := <-done:
			return err
		default:
			return errs.E(errs.NotFound, "the kernel %q was deleted", k.name)
		}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// interrupt ends the cell that runs.
func (k *liveKernel) interrupt() {
	k.mu.Lock()
	c := k.current
	k.mu.Unlock()
	if c != nil {
		c.interrupt(proc.Cause{Reason: guestv1.ExitReason_EXIT_REASON_KILLED, Text: "interrupted"})
	}
}

func (k *liveKernel) message() *guestv1.Kernel {
	k.mu.Lock()
	defer k.mu.Unlock()
	m := &guestv1.Kernel{
		Name: k.name, Language: shortText(canonicalLanguage(k.kind.language)), Spec: k.kind.spec,
		DisplayName: shortText(k.kind.display), Status: k.status, Reason: k.reason,
		ExecutionCount: k.count, Restarts: k.restarts, Waiting: int64(len(k.queue)),
		CreatedAt: timestamppb.New(k.created),
	}
	if m.Language == "" {
		m.Language = shortText(canonicalLanguage(k.asked.GetLanguage()))
	}
	if k.process != nil {
		m.Pid = int64(k.process.tree.PID())
		m.StartedAt = timestamppb.New(k.started)
	}
	return m
}

// isGone reports whether err says that the kernel or the connection to it
// ended.
func isGone(err error) bool { return errors.Is(err, kernel.ErrGone) }
