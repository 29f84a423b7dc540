package live

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// cancelQueued ends an exec that waits. It reports false when that does not.
func (h *Execs) cancelQueued(ctx context.Context, id string, seq int64) (bool, error) {
	if err := h.rouseFor(ctx, id, seq); err != nil {
		return false, err
	}
	b, err := h.s.cfg.Scope.Find(ctx, id)
	if err != nil {
		return false, err
	}
	r := h.s.Of(b.UID)
	if r == nil {
		return false, nil
	}
	return r.queues.end(ctx, seq, "it was canceled while it waited for its turn")
}

// end ends an exec that waits. It reports false when that does not, or
// may have been started.
func (qs *queues) end(ctx context.Context, seq int64, why string) (bool, error) {
	r, s := qs.run, qs.run.s
	item, ok := qs.take(seq)
	if !ok {
		return false, nil
	}
	if item.begun {
		qs.giveBack(item)
		return false, nil
	}
	ctx = context.WithoutCancel(ctx)
	x, err := s.cfg.Store.Exec(ctx, r.UID, seq)
	if err == nil {
		err = s.endUnstarted(ctx, x, sandbox.Exit{Reason: sandbox.EndNotRun, Message: why})
	}
	if err != nil {
		qs.giveBack(item)
		return false, err
	}
	qs.mu.Lock()
	defer qs.mu.Unlock()
	qs.unqueue(item)
	return true, nil
}

// awaitTurn waits until an exec does not wait in a queue any more.
func (s *Sandboxes) awaitTurn(ctx context.Context, box sandbox.UID, seq int64) error {
	r := s.Of(box)
	if r == nil {
		return nil
	}
	turn := r.queues.turn(seq)
	if turn == nil {
		return nil
	}
	select {
	case <-turn:
	case <-r.ctx.Done():
	case <-ctx.Done():
		return ctx.Err()
	case <-s.cfg.Gate.Ended():
		return gate.ErrShuttingDown()
	}
	return nil
}

// awaitLive waits until an exec that may wait in a queue, or sleep with its
// sandbox, is a live one, or has ended: then it returns it as it is stored.
func (s *Sandboxes) awaitLive(ctx context.Context, box sandbox.UID, seq int64) (*Exec, sandbox.Exec, error) {
	var change <-chan struct{} // is awaited when one more look has found nothing
	for pauses := gate.NewPauses(); ; {
		if err := s.awaitTurn(ctx, box, seq); err != nil {
			return nil, sandbox.Exec{}, err
		}
		if e := s.exec(box, seq); e != nil {
			return e, sandbox.Exec{}, nil
		}
		x, err := s.cfg.Store.Exec(ctx, box, seq)
		if err != nil || x.Status.Finished() {
			return nil, x, err
		}
		switch {
		case change != nil:
			if err := s.awaitChange(ctx, change); err != nil {
				return nil, x, err
			}
			change = nil
		case s.Of(box) == nil:
			change = s.changes.of(box)
		default: // it is about to be one, or to wait
			gate.Pause(ctx, pauses)
		}
	}
}

// await waits for the end of e, at most for wait; a negative one is for ever. It
// returns the exec as it is then, and an error only when ctx or the service ends
// first. An exec that sleeps with its sandbox goes on afterwards, and so does who
// waits for it.
func (s *Sandboxes) await(ctx context.Context, e *Exec, wait time.Duration) (sandbox.Exec, error) {
	waiting, cancel := atMost(ctx, wait)
	defer cancel()
	for {
		select {
		case <-e.done:
			return e.Snapshot(), nil
		case <-e.run.left:
		case <-waiting.Done():
			return e.Snapshot(), ctx.Err()
		case <-s.cfg.Gate.Ended():
			return e.Snapshot(), gate.ErrShuttingDown()
		}
		if e.givenUp() {
			return e.Snapshot(), nil
		}
		next, x, err := s.awaitLive(waiting, e.run.UID, e.seq)
		switch {
		case next != nil:
			e = next
		case err == nil:
			return x, nil
		case waiting.Err() != nil:
			return e.Snapshot(), ctx.Err()
		default:
			return e.Snapshot(), err
		}
	}
}

// atMost is ctx for at most some time; a negative one is for ever.
func atMost(ctx context.Context, wait time.Duration) (context.Context, context.CancelFunc) {
	if wait < 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, wait)
}

// waitQueued is [Execs.Wait] for an exec that may wait in a queue, or sleep.
func (s *Sandboxes) waitQueued(ctx context.Context, box sandbox.UID, seq int64, timeout time.Duration) (sandbox.Exec, error) {
	waiting, cancel := atMost(ctx, timeout)
	defer cancel()
	e, x, err := s.awaitLive(waiting, box, seq)
	if e != nil {
		if x, err = s.await(waiting, e, -1); err == nil || waiting.Err() != nil {
			return x, ctx.Err()
		}
		return x, err
	}
	if waiting.Err() != nil && ctx.Err() == nil {
		return s.cfg.Store.Exec(ctx, box, seq)
	}
	return x, err
}

// LockQueue keeps others from putting commands into a queue until unlock.
func (r *Run) LockQueue(ctx context.Context, name string) (unlock func(), err error) {
	return r.queues.order.Lock(ctx, name)
}

// EmptyQueue ends the commands of a queue that wait without having begun, also one that
// is on its way to the agent.
func (r *Run) EmptyQueue(ctx context.Context, name, why string) error {
	qs := r.queues
	qs.mu.Lock()
	var seqs []int64
	if q := qs.names[name]; q != nil {
		seqs = append(seqs, q.seqs...)
	}
	qs.mu.Unlock()
	soon, cancel := context.WithTimeout(ctx, deliverTime)
	defer cancel()
	var all error
	for _, seq := range seqs {
		// One that somebody has taken is about to run, or waits again.
		for pauses := gate.NewPauses(); ; gate.Pause(soon, pauses) {
			ended, err := qs.end(ctx, seq, why)
			all = errors.Join(all, err)
			if ended || err != nil || soon.Err() != nil || qs.turn(seq) == nil {
				break
			}
		}
	}
	for _, e := range r.execs.all() {
		if queueOf(e.Snapshot().Spec) == name && !e.started() {
			// What is begun meanwhile ends with the kernel.
			_ = e.deliver(soon, syscall.SIGKILL, true, sandbox.EndKilled)
		}
	}
	return all
}

// deliverTime is how long it may take until the agent hears of a command whose turn it is.
const deliverTime = 5 * time.Second
