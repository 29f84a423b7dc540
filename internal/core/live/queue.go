package live

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/cubbyhq/cubby/internal/core/scope"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/keylock"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// The commands of a session run one after another, and so do the cells of a
// kernel. Those that wait are pending execs of the store and little more here, so
// that there can be many and the next daemon goes on with them: no goroutine, no
// timer and no open journal each, and none of the places that [MaxExecs] bounds.

const (
	// maxQueued bounds the commands of a sandbox that wait.
	maxQueued = 10_000
	// maxQueuedSecrets bounds the secrets that wait with them, in bytes: they
	// are in memory only.
	maxQueuedSecrets = 16 << 20
	// maxQueuedText bounds what the store keeps of them, in bytes.
	maxQueuedText = 64 << 20
)

// queues are those of one sandbox.
type queues struct {
	run *Run
	// order is held by those who put commands into a queue, by its name.
	order keylock.Locks

	mu      sync.Mutex
	names   map[string]*queue // that have commands, by name; guarded by mu
	waiting map[int64]*queued // by seq; guarded by mu
	coming  int               // commands that have no seq yet; guarded by mu
	secrets int               // bytes of secrets that wait; guarded by mu
	text    int               // as much of what textOf counts; guarded by mu
}

func newQueues(r *Run) *queues {
	return &queues{run: r, names: make(map[string]*queue), waiting: make(map[int64]*queued)}
}

// queue is a session or a kernel with commands that wait or run. One goroutine
// starts them.
type queue struct {
	name    string  // see queueOf
	seqs    []int64 // that wait, in order; those that are not in queues.waiting any more have ended
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

// queueOf names the queue whose commands run one after another: a session's or
// a kernel's; "" is none. A session's name has no colon.
func queueOf(x sandbox.ExecSpec) string {
	if x.Cell != nil {
		return KernelQueue(x.Cell.Kernel)
	}
	return x.Session
}

// KernelQueue is the name of the queue of a kernel's cells.
func KernelQueue(kernel string) string { return "kernel:" + kernel }

// ofKernel reports whether a queue is a kernel's.
func (q *queue) ofKernel() bool { return strings.HasPrefix(q.name, KernelQueue("")) }

// enqueue numbers a command of a session and puts it into the session's queue.
func (s *Sandboxes) enqueue(ctx context.Context, id string, spec sandbox.ExecSpec) (sandbox.Exec, error) {
	leave, err := s.cfg.Gate.Enter(ctx)
	if err != nil {
		return sandbox.Exec{}, err
	}
	defer leave()
	if err := spec.Validate(); err != nil {
		return sandbox.Exec{}, err
	}
	b, r, done, err := s.Use(ctx, id)
	if err != nil {
		return sandbox.Exec{}, err
	}
	defer done()
	return r.Enqueue(ctx, b, spec)
}

// Enqueue numbers a valid command of a session, or a cell, and puts it into its
// queue.
func (r *Run) Enqueue(ctx context.Context, b sandbox.Sandbox, spec sandbox.ExecSpec) (sandbox.Exec, error) {
	s, qs := r.s, r.queues
	if err := cmp.Or(s.cfg.Disks.Admit(), r.Guest.Takes(ctx, spec)); err != nil {
		return sandbox.Exec{}, err
	}
	// The order of the numbers is the order of the queue.
	unlock, err := qs.order.Lock(ctx, queueOf(spec))
	if err != nil {
		return sandbox.Exec{}, err
	}
	defer unlock()
	x := sandbox.Exec{
		UID: sandbox.NewUID(), Box: b.UID, Spec: completeExec(ctx, spec, b.Spec),
		Status: sandbox.ExecPending, Actor: scope.Actor(ctx), CreatedAt: s.cfg.Now(),
	}
	numbered, err := r.execs.number()
	if err != nil {
		return sandbox.Exec{}, err
	}
	defer numbered()
	busy, err := qs.reserve(x)
	if err != nil {
		return sandbox.Exec{}, err
	}
	var events []sandbox.Event
	if busy {
		events = append(events, event.Waits(x))
	}
	ctx = context.WithoutCancel(ctx)
	if x.Seq, err = s.cfg.Store.CreateExec(ctx, x, events...); err != nil {
		qs.unreserve(x)
		return sandbox.Exec{}, err
	}
	if end := qs.add(x, !busy); end != nil {
		return sandbox.Exec{}, errors.Join(errEnding(),
			s.endUnstarted(ctx, x, end.exit()))
	}
	x.Spec.Env, x.Spec.Secrets = nil, nil
	return x, nil
}

// reserve takes a place in a queue, which add uses and unreserve gives back. It
// tells whether the command will wait.
func (qs *queues) reserve(x sandbox.Exec) (busy bool, err error) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if len(qs.waiting)+qs.coming >= maxQueued || qs.secrets+size(x.Spec.Secrets) > maxQueuedSecrets {
		return false, errs.E(errs.OverQuota, "%d commands of this sandbox wait for their turn already", len(qs.waiting)+qs.coming).
			Hint("wait for one to end, or cancel one").RetryAfter(time.Second)
	}
	if qs.text+textOf(x.Spec) > maxQueuedText {
		return false, errs.E(errs.OverQuota, "the %d commands of this sandbox that wait for their turn have %d MiB together, which is the most", len(qs.waiting)+qs.coming, maxQueuedText>>20).
			Hint("wait for one to end, or put what is long into files").RetryAfter(time.Second)
	}
	qs.coming++
	qs.text += textOf(x.Spec)
	qs.secrets += size(x.Spec.Secrets)
	return qs.isBusy(queueOf(x.Spec)), nil
}

func (qs *queues) unreserve(x sandbox.Exec) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	qs.coming--
	qs.text -= textOf(x.Spec)
	qs.secrets -= size(x.Spec.Secrets)
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

// add turns the place of reserve into a place in the queue. When the sandbox has
// ended meanwhile it says how, and the exec is for the caller to finish.
func (qs *queues) add(x sandbox.Exec, keep bool) *Ending {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	qs.coming--
	if end := qs.run.execs.endingNow(); end != nil {
		qs.text -= textOf(x.Spec)
		qs.secrets -= size(x.Spec.Secrets)
		return end
	}
	qs.requeue(x, keep)
	qs.run.activity.Used()
	return nil
}

// requeue puts an exec at the end of its queue, with what is needed to start
// it if keep says so. The caller holds mu.
func (qs *queues) requeue(x sandbox.Exec, keep bool) *queued {
	name := queueOf(x.Spec)
	q := qs.names[name]
	if q == nil {
		q = &queue{name: name}
		qs.names[name] = q
		qs.run.s.cfg.Gate.Spawn(func(context.Context) { qs.serve(q) })
	}
	item := &queued{uid: x.UID, seq: x.Seq, queue: q, secrets: x.Spec.Secrets, text: textOf(x.Spec)}
	if keep {
		item.exec = &x
	}
	q.seqs = append(q.seqs, x.Seq)
	q.waiting++
	qs.waiting[x.Seq] = item
	return item
}

// unqueue says that an exec does not wait any more. The caller holds mu.
func (qs *queues) unqueue(item *queued) {
	delete(qs.waiting, item.seq)
	item.queue.waiting--
	qs.text -= item.text
	qs.secrets -= size(item.secrets)
	if item.turn != nil {
		close(item.turn)
	}
}

// turn returns a channel that is closed when an exec does not wait in a queue
// any more; nil when it does not wait now.
func (qs *queues) turn(seq int64) <-chan struct{} {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	item := qs.waiting[seq]
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
func (qs *queues) take(seq int64) (*queued, bool) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	item := qs.waiting[seq]
	if item == nil || item.taken {
		return nil, false
	}
	item.taken = true
	return item, true
}

func (qs *queues) giveBack(item *queued) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	item.taken = false
}
