package core

import (
	"context"
	"errors"
	"time"

	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/core/scope"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/guest"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// The commands of a session run one after another, and so do the cells of a
// kernel. Those that wait are pending
// execs of the store and little more here, so that there can be many and the
// next daemon goes on with them: no goroutine, no timer and no open journal
// each, and none of the places that maxExecs bounds.

const (
	// maxQueued bounds the commands of a sandbox that wait.
	maxQueued = 10_000
	// maxQueuedSecrets bounds the secrets that wait with them, in bytes: they
	// are in memory only.
	maxQueuedSecrets = 16 << 20
	// maxQueuedText bounds what the store keeps of them, in bytes.
	maxQueuedText = 64 << 20
)

// queue is a session or a kernel with commands that wait or run. One goroutine
// starts them.
type queue struct {
	name    string  // see queueOf
	seqs    []int64 // that wait, in order; those that are not in run.queued any more have ended
	waiting int     // how many of them have not
	running int64   // 0: none
}

// queued is an exec that waits for its turn.
type queued struct {
	uid     sandbox.UID
	seq     int64
	queue   *queue
	exec    *sandbox.Exec     // of one that found the queue empty; the store has the others
	secrets map[string]string // which no store has
	text    int               // see textOf
	begun   bool              // an earlier daemon may have started it
	taken   bool              // somebody starts or ends it
	turn    chan struct{}     // closed when it does not wait any more; nil: nobody asked
}

// enqueue numbers a command of a session and puts it into the session's queue.
func (s *Service) enqueue(ctx context.Context, id string, spec sandbox.ExecSpec) (sandbox.Exec, error) {
	leave, err := s.gate.Enter(ctx)
	if err != nil {
		return sandbox.Exec{}, err
	}
	defer leave()
	if err := spec.Validate(); err != nil {
		return sandbox.Exec{}, err
	}
	b, r, err := s.findRunning(ctx, id)
	if err != nil {
		return sandbox.Exec{}, err
	}
	return r.enqueue(ctx, b, spec)
}

// enqueue numbers a command that is valid and puts it into its queue.
func (r *run) enqueue(ctx context.Context, b sandbox.Sandbox, spec sandbox.ExecSpec) (sandbox.Exec, error) {
	s := r.s
	if err := s.cfg.Disks.Admit(); err != nil {
		return sandbox.Exec{}, err
	}
	// The order of the numbers is the order of the queue.
	unlock, err := r.sessions.Lock(ctx, queueOf(spec))
	if err != nil {
		return sandbox.Exec{}, err
	}
	defer unlock()
	x := sandbox.Exec{
		UID: sandbox.NewUID(), Box: b.UID, Spec: completeExec(spec, b.Spec),
		Status: sandbox.ExecPending, Actor: scope.Actor(ctx), CreatedAt: s.now(),
	}
	busy, err := r.reserveQueued(x)
	if err != nil {
		return sandbox.Exec{}, err
	}
	var events []sandbox.Event
	if busy {
		events = append(events, event.Waits(x))
	}
	ctx = context.WithoutCancel(ctx)
	if x.Seq, err = s.cfg.Store.CreateExec(ctx, x, events...); err != nil {
		r.unreserveQueued(x)
		return sandbox.Exec{}, err
	}
	if end := r.addQueued(x, !busy); end != nil {
		return sandbox.Exec{}, errors.Join(errs.E(errs.WrongState, "the sandbox is ending"),
			s.endUnstarted(ctx, x, sandbox.Exit{Reason: end.reason, Message: end.message}))
	}
	x.Spec.Env, x.Spec.Secrets = nil, nil
	return x, nil
}

// runQueued is [Service.RunExec] for a command of a session.
func (s *Service) runQueued(ctx context.Context, id string, spec sandbox.ExecSpec, wait time.Duration, caps OutputCaps) (Result, error) {
	x, err := s.enqueue(ctx, id, spec)
	if err != nil {
		return Result{}, err
	}
	ended, err := s.waitQueued(ctx, x.Box, x.Seq, wait)
	if err != nil {
		return Result{Exec: x}, err
	}
	return s.result(ctx, ended, caps)
}

// reserveQueued takes a place in a queue; it is given back by addQueued's end
// of the exec or by unreserveQueued. It tells whether the command will wait.
func (r *run) reserveQueued(x sandbox.Exec) (busy bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ending != nil {
		return false, errs.E(errs.WrongState, "the sandbox is ending")
	}
	if len(r.queued)+r.queueing >= maxQueued || r.queuedSecrets+size(x.Spec.Secrets) > maxQueuedSecrets {
		return false, errs.E(errs.OverQuota, "%d commands of this sandbox wait for their turn already", len(r.queued)+r.queueing).
			Hint("wait for one to end, or cancel one").RetryAfter(time.Second)
	}
	if r.queuedText+textOf(x.Spec) > maxQueuedText {
		return false, errs.E(errs.OverQuota, "the %d commands of this sandbox that wait for their turn have %d MiB together, which is the most", len(r.queued)+r.queueing, maxQueuedText>>20).
			Hint("wait for one to end, or put what is long into files").RetryAfter(time.Second)
	}
	r.queueing++
	r.queuedText += textOf(x.Spec)
	r.queuedSecrets += size(x.Spec.Secrets)
	return r.busy(queueOf(x.Spec)), nil
}

func (r *run) unreserveQueued(x sandbox.Exec) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queueing--
	r.queuedText -= textOf(x.Spec)
	r.queuedSecrets -= size(x.Spec.Secrets)
}

// textOf is how much text a command has that waits.
func textOf(x sandbox.ExecSpec) int {
	n := len(x.Shell) + len(x.Detail) + size(x.Env)
	for _, arg := range x.Argv {
		n += len(arg)
	}
	return n
}

func size(secrets map[string]string) (n int) {
	for name, value := range secrets {
		n += len(name) + len(value)
	}
	return n
}

// addQueued turns the place of reserveQueued into a place in the queue. When
// the sandbox has ended meanwhile it says how, and the exec is for the caller
// to finish.
func (r *run) addQueued(x sandbox.Exec, keep bool) *ending {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queueing--
	if r.ending != nil {
		r.queuedText -= textOf(x.Spec)
		r.queuedSecrets -= size(x.Spec.Secrets)
		return r.ending
	}
	r.requeue(x, keep)
	r.usedNow()
	return nil
}

// requeue puts an exec at the end of its queue, with what is needed to start
// it if keep says so. The caller holds mu.
func (r *run) requeue(x sandbox.Exec, keep bool) {
	name := queueOf(x.Spec)
	q := r.queues[name]
	if q == nil {
		q = &queue{name: name}
		r.queues[name] = q
		r.s.gate.Spawn(func(context.Context) { r.serve(q) })
	}
	item := &queued{uid: x.UID, seq: x.Seq, queue: q, secrets: x.Spec.Secrets, text: textOf(x.Spec)}
	if keep {
		item.exec = &x
	}
	q.seqs = append(q.seqs, x.Seq)
	q.waiting++
	r.queued[x.Seq] = item
}

// unqueue says that an exec does not wait any more. The caller holds mu.
func (r *run) unqueue(item *queued) {
	delete(r.queued, item.seq)
	item.queue.waiting--
	r.queuedText -= item.text
	r.queuedSecrets -= size(item.secrets)
	if item.turn != nil {
		close(item.turn)
	}
}

// turn returns a channel that is closed when an exec does not wait in a queue
// any more; nil when it does not wait now.
func (r *run) turn(seq int64) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	item := r.queued[seq]
	if item == nil {
		return nil
	}
	if item.turn == nil {
		item.turn = make(chan struct{})
	}
	return item.turn
}

// take gives the caller the say over an exec that waits; false when it does
// not wait, or somebody else has it. The exec stays in its queue.
func (r *run) take(seq int64) (*queued, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	item := r.queued[seq]
	if item == nil || item.taken {
		return nil, false
	}
	item.taken = true
	return item, true
}

func (r *run) giveBack(item *queued) {
	r.mu.Lock()
	defer r.mu.Unlock()
	item.taken = false
}

// serve runs the commands of a queue until it is empty. It leaves them to the
// next daemon when the service ends, and to who ends the sandbox when that does.
func (r *run) serve(q *queue) {
	pauses := gate.NewPauses()
	for {
		item := r.next(q)
		if item == nil {
			return
		}
		var e *liveExec
		var err error = errs.E(errs.Unavailable, "somebody cancels it")
		if got, ok := r.take(item.seq); ok {
			e, err = r.startQueued(r.ctx, got)
			if err != nil {
				r.giveBack(got)
			}
		}
		if r.isOver() || r.ctx.Err() != nil {
			return
		}
		if err != nil {
			// Whatever keeps it from being started, those behind it wait too.
			pause := pauses.NextBackOff()
			if r.sleep(pause); pause == gate.RetryLast {
				r.s.log.Warn("start the next command of a queue; it is tried again", telemetry.KeyUID, r.uid, telemetry.KeySeq, item.seq, telemetry.KeyErr, err)
			}
			continue
		}
		pauses.Reset()
		r.mu.Lock()
		r.unqueue(item)
		if e != nil {
			q.running = e.seq
		}
		r.mu.Unlock()
		if e == nil {
			continue
		}
		select {
		case <-e.done:
		case <-r.ctx.Done():
			return
		}
		r.mu.Lock()
		q.running = 0
		r.mu.Unlock()
	}
}

// busy reports whether a queue has commands that wait or run. The caller
// holds mu.
func (r *run) busy(name string) bool {
	q := r.queues[name]
	return q != nil && (q.waiting > 0 || r.runs(q) != 0)
}

// runs returns the exec of a queue that runs now, 0 when none does. The caller
// holds mu.
func (r *run) runs(q *queue) int64 {
	if e := r.execs[q.running]; e != nil && !e.givenUp() {
		return e.seq
	}
	return 0
}

// next returns the first of a queue; nil when it is empty, and then it is one
// no more.
func (r *run) next(q *queue) *queued {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(q.seqs) > 0 {
		if item := r.queued[q.seqs[0]]; item != nil {
			return item
		}
		q.seqs = q.seqs[1:]
	}
	delete(r.queues, q.name)
	return nil
}

// startQueued starts an exec whose turn it is, or takes it up where an earlier
// daemon left it: the agent knows it if that had started it. Nil without an
// error is one that has ended. It is to be tried again after any error.
func (r *run) startQueued(ctx context.Context, item *queued) (*liveExec, error) {
	s := r.s
	x, start, err := s.loadQueued(ctx, r.uid, item)
	if err != nil || x.Status.Finished() {
		return nil, err
	}
	if err := r.reserve(); err != nil {
		return nil, err
	}
	log, err := s.openJournal(x)
	if err != nil {
		r.unreserve()
		exit := sandbox.Exit{Reason: sandbox.EndDiskFull, Message: "the host cannot keep the command's output"}
		s.log.Error("open the journal of a command", telemetry.KeyUID, x.Box, telemetry.KeySeq, x.Seq, telemetry.KeyErr, err)
		return nil, s.endUnstarted(ctx, x, exit)
	}
	if log.Exit() != nil {
		r.unreserve()
		telemetry.Close(s.log, log)
		// Only the store had not heard of it.
		return nil, s.endLost(ctx, x, ending{})
	}
	e := newLiveExec(r, x, log)
	if !r.register(e, func() { e.pump(start) }) {
		e.finish(e.lost(), time.Time{})
		telemetry.Close(s.log, log)
		return nil, nil
	}
	return e, nil
}

// loadQueued returns an exec with what it is to be started with; nil when the
// agent is only to be asked for it.
func (s *Service) loadQueued(ctx context.Context, box sandbox.UID, item *queued) (sandbox.Exec, *guest.Start, error) {
	if item.exec != nil {
		return *item.exec, startOf(item.exec.Spec), nil
	}
	x, err := s.cfg.Store.Exec(ctx, box, item.seq)
	if errors.Is(err, errs.NotFound) {
		return sandbox.Exec{Status: sandbox.ExecError}, nil, nil
	}
	if err != nil || x.Status != sandbox.ExecPending || x.Spec.NeedsSecrets && item.secrets == nil {
		return x, nil, err
	}
	if x.Spec.Env, err = s.cfg.Store.ExecEnv(ctx, box, item.seq); err != nil {
		return x, nil, err
	}
	x.Spec.Secrets = item.secrets
	return x, startOf(x.Spec), nil
}

// cancelQueued ends an exec that waits. It reports false when that does not.
func (s *Service) cancelQueued(ctx context.Context, id string, seq int64) (bool, error) {
	b, err := s.scope.Find(ctx, id)
	if err != nil {
		return false, err
	}
	r := s.runOf(b.UID)
	if r == nil {
		return false, nil
	}
	return r.endQueued(ctx, seq, "it was canceled while it waited for its turn")
}

// endQueued ends an exec that waits. It reports false when that does not, or
// may have been started.
func (r *run) endQueued(ctx context.Context, seq int64, why string) (bool, error) {
	s := r.s
	item, ok := r.take(seq)
	if !ok {
		return false, nil
	}
	if item.begun {
		r.giveBack(item)
		return false, nil
	}
	ctx = context.WithoutCancel(ctx)
	x, err := s.cfg.Store.Exec(ctx, r.uid, seq)
	if err == nil {
		err = s.endUnstarted(ctx, x, sandbox.Exit{Reason: sandbox.EndNotRun, Message: why})
	}
	if err != nil {
		r.giveBack(item)
		return false, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unqueue(item)
	return true, nil
}

// awaitTurn waits until an exec does not wait in a queue any more.
func (s *Service) awaitTurn(ctx context.Context, box sandbox.UID, seq int64) error {
	r := s.runOf(box)
	if r == nil {
		return nil
	}
	turn := r.turn(seq)
	if turn == nil {
		return nil
	}
	select {
	case <-turn:
	case <-r.ctx.Done():
	case <-ctx.Done():
		return ctx.Err()
	case <-s.gate.Ended():
		return gate.ErrShuttingDown()
	}
	return nil
}

// awaitLive waits until an exec that may wait in a queue is a live one, or has
// ended: then it returns it as it is stored.
func (s *Service) awaitLive(ctx context.Context, box sandbox.UID, seq int64) (*liveExec, sandbox.Exec, error) {
	for pauses := gate.NewPauses(); ; gate.Pause(ctx, pauses) {
		if err := s.awaitTurn(ctx, box, seq); err != nil {
			return nil, sandbox.Exec{}, err
		}
		if e := s.live(box, seq); e != nil {
			return e, sandbox.Exec{}, nil
		}
		x, err := s.cfg.Store.Exec(ctx, box, seq)
		if err != nil || x.Status.Finished() {
			return nil, x, err
		}
		// It is about to end with its sandbox, or not reached yet.
	}
}

// waitQueued is [Service.WaitExec] for an exec that may wait in a queue.
func (s *Service) waitQueued(ctx context.Context, box sandbox.UID, seq int64, timeout time.Duration) (sandbox.Exec, error) {
	waiting := ctx
	if timeout >= 0 {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	e, x, err := s.awaitLive(waiting, box, seq)
	if e != nil {
		if err = s.await(waiting, e, -1); err == nil || waiting.Err() != nil {
			return e.snapshot(), ctx.Err()
		}
	}
	if waiting.Err() != nil && ctx.Err() == nil {
		return s.cfg.Store.Exec(ctx, box, seq)
	}
	return x, err
}
