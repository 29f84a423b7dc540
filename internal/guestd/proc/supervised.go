package proc

import (
	"context"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// supervised is the tree below a supervisor.
type supervised struct {
	by     *supervisor
	main   int
	begun  chan error
	status chan syscall.WaitStatus

	settled sync.Once
	empty   chan struct{} // closed by settle
	// orphaned: the supervisor is lost, and whatever lives below PID 1 and below
	// no supervisor may be the tree's.
	orphaned atomic.Bool
}

func (t *supervised) pid() int                         { return t.main }
func (t *supervised) ended() <-chan syscall.WaitStatus { return t.status }
func (t *supervised) members() []int {
	if !t.alive() {
		return nil
	}
	if t.orphaned.Load() {
		return nil // endOrphans looks for them; twice at once helps nobody
	}
	table, _ := processTable()
	if !t.alive() {
		// Its supervisor may have the next command already, which is not to be
		// taken for this one.
		return nil
	}
	return keys(descendants(table, t.by.pid))
}

func (t *supervised) alive() bool {
	select {
	case <-t.empty:
		return false
	default:
		return true
	}
}

// endOrphans ends what a lost supervisor held together. It tries hard at first,
// and goes on as long as something lives: the host may have to help.
func (t *supervised) endOrphans() {
	const hard, then = 10 * time.Second, time.Second
	s := t.by.pool
	look := func() []int { pids, _ := s.orphans(); return pids }
	left := func() bool { pids, err := s.orphans(); return err != nil || len(pids) > 0 }
	try := func(limit time.Duration) error {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		return killUntil(ctx, left, func() { stopAndKill(ctx, look) })
	}
	if try(hard) != nil {
		s.log.Warn("orphans of a lost supervisor live on")
		for try(then) != nil && !s.isClosed() {
			time.Sleep(then)
		}
	}
	t.settle()
}

func (t *supervised) kill(ctx context.Context) error {
	t.by.pool.killing.add(t)
	return killUntil(ctx, t.alive, func() {
		t.by.wake()
		stopAndKill(ctx, t.members)
	})
}

// settle notes that nothing of the tree is left.
func (t *supervised) settle() {
	t.settled.Do(func() { close(t.empty) })
	t.by.pool.doomed.remove(t)
	t.by.pool.killing.remove(t)
}

// orphans are the processes that live below PID 1 and below no supervisor.
func (s *supervisors) orphans() ([]int, error) {
	self := os.Getpid()
	s.forking.Lock()
	defer s.forking.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	table, err := processTable()
	in := make(map[int]bool)
	for pid, p := range table {
		if p.parent == self && !p.zombie && !s.live[pid] {
			in[pid] = true
			for d := range descendants(table, pid) {
				in[d] = true
			}
		}
	}
	return keys(in), err
}

// unkilled are the trees that are being killed for longer than patience, and
// the supervisors of all others as with [supervisors.spare]. None: there is no
// such tree.
func (s *supervisors) unkilled(patience time.Duration) (trees []*supervised, spare []int64) {
	late := s.killing.since(time.Now().Add(-patience))
	s.forking.Lock()
	defer s.forking.Unlock()
	of := make(map[int]bool)
	for _, t := range late {
		if t.alive() && t.by.spend(t) {
			s.doomed.add(t)
			of[t.by.pid] = true
			trees = append(trees, t)
		}
	}
	if len(trees) == 0 {
		return nil, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for pid := range s.live {
		if !of[pid] {
			spare = append(spare, int64(pid))
		}
	}
	return trees, spare
}

// killing are the trees that somebody began to kill and that live. The zero
// value has none.
type killing struct {
	mu    sync.Mutex
	trees map[*supervised]time.Time // guarded by mu
}

func (k *killing) add(t *supervised) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, known := k.trees[t]; known || !t.alive() {
		return
	}
	if k.trees == nil {
		k.trees = make(map[*supervised]time.Time)
	}
	k.trees[t] = time.Now()
}

func (k *killing) remove(t *supervised) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.trees, t)
}

// since returns those whose kill began before a time.
func (k *killing) since(begun time.Time) (trees []*supervised) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for t, at := range k.trees {
		if !at.After(begun) {
			trees = append(trees, t)
		}
	}
	return trees
}

// spare are the supervisors of all trees but t. While t is doomed no supervisor
// is started, so that the host, which ends everything else, ends no other
// command. False when t is gone.
func (s *supervisors) spare(t *supervised) ([]int64, bool) {
	s.forking.Lock()
	defer s.forking.Unlock()
	if !t.by.spend(t) {
		return nil, false
	}
	s.doomed.add(t)
	s.mu.Lock()
	defer s.mu.Unlock()
	var pids []int64
	for pid := range s.live {
		if pid != t.by.pid {
			pids = append(pids, int64(pid))
		}
	}
	return pids, true
}

// lockForking read-locks forking when no tree is doomed.
func (s *supervisors) lockForking() {
	for {
		s.forking.RLock()
		wait := s.doomed.waiting()
		if wait == nil {
			return
		}
		s.forking.RUnlock()
		<-wait
	}
}

// doomed are the trees that the host was asked to end. The zero value has none.
type doomed struct {
	mu    sync.Mutex
	trees map[*supervised]*time.Timer
	none  chan struct{} // closed when trees is empty again; nil while it is
}

// doomedFor is how long the host has to end a tree: then commands start again,
// whatever it did. It goes by one answer for less, spareFor of internal/core/live:
// it would end whoever was started since.
const doomedFor = 15 * time.Second

func (d *doomed) add(t *supervised) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.trees == nil {
		d.trees = make(map[*supervised]*time.Timer)
	}
	if timer := d.trees[t]; timer != nil {
		timer.Reset(doomedFor)
		return
	}
	d.trees[t] = time.AfterFunc(doomedFor, func() { d.remove(t) })
	if d.none == nil {
		d.none = make(chan struct{})
	}
}

func (d *doomed) remove(t *supervised) {
	d.mu.Lock()
	defer d.mu.Unlock()
	timer := d.trees[t]
	if timer == nil {
		return
	}
	timer.Stop()
	delete(d.trees, t)
	if len(d.trees) == 0 {
		close(d.none)
		d.none = nil
	}
}

// waiting is closed when none is doomed any more; nil when none is.
func (d *doomed) waiting() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.none
}
