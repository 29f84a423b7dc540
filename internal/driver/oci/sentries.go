package oci

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/cubbyhq/cubby/internal/driver/oci/spare"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// sentries are kernels of gVisor that were started before anybody needs them. Safe for
// concurrent use.
type sentries struct {
	d     *Driver
	stock *spare.Stock[shape, *sentry]
	going sync.WaitGroup // what is removed in the background

	mu     sync.Mutex
	ours   map[sandbox.UID]*sentry // whose boxes are no sandboxes; guarded by mu
	closed bool                    // guarded by mu
}

func newSentries(d *Driver, count int) *sentries {
	s := &sentries{d: d, ours: make(map[sandbox.UID]*sentry)}
	s.stock = spare.NewStock[shape](count, refillAfter, func(k *sentry) bool { return !k.hasEnded() }, s.discard)
	return s
}

// want has sentries made for sandboxes like one.
func (s *sentries) want(n note) {
	if shape, create, ok := s.like(n); ok {
		s.stock.Want(shape, create)
	}
}

// take returns a sentry for a sandbox, which is the caller's; nil when none is ready.
func (s *sentries) take(n note) *sentry {
	needs, err := n.shape()
	shape, create, ok := s.like(n)
	if err != nil || !ok {
		return nil // where that is a fault the start says it better
	}
	if needs != shape { // it is to go on in a runtime of an earlier version
		s.stock.Want(shape, create)
		return nil
	}
	k, _ := s.stock.Take(shape, create)
	return k
}

// like is how sentries are made for sandboxes like one, with the programs of today.
func (s *sentries) like(n note) (shape shape, create func(context.Context) (*sentry, error), ok bool) {
	var err error
	if n.Isolation != sandbox.GVisor {
		return shape, nil, false
	}
	if n.Runtime, n.Init, err = s.d.support(n.Isolation); err != nil {
		return shape, nil, false
	}
	n.Hostname, n.Env = "", nil
	shape, err = n.shape()
	return shape, func(ctx context.Context) (*sentry, error) { return s.create(ctx, n) }, err == nil && s.d.sameMounts(n)
}

func (s *sentries) create(ctx context.Context, n note) (*sentry, error) {
	k := &sentry{uid: sandbox.NewUID(), ended: make(chan struct{})}
	s.mu.Lock()
	s.ours[k.uid] = k
	s.mu.Unlock()
	err := s.d.makeSentry(ctx, k, n)
	if err != nil {
		s.d.log.Warn("the next sandbox begins slower: its kernel was not started ahead", "err", err)
		s.discard(k)
	}
	return k, err
}

func (s *sentries) discard(k *sentry) {
	k.release()
	s.remove(k)
}

// remove removes what there is of a sentry beside what it became.
func (s *sentries) remove(k *sentry) {
	ctx, cancel := context.WithTimeout(context.Background(), undoLimit)
	defer cancel()
	if err := s.d.Sweep(ctx, k.uid); err != nil {
		// It is in List from now on, for whoever looks for what is left.
		s.d.log.Warn("of a kernel that was started ahead something is left", "box", k.uid, "err", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ours, k.uid)
}

// became is remove of one that was taken, in the background.
func (s *sentries) became(k *sentry) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		s.remove(k)
		return
	}
	s.going.Go(func() { s.remove(k) })
	s.mu.Unlock()
}

// boxes are those that are no sandboxes'.
func (s *sentries) boxes() map[sandbox.UID]*sentry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.ours)
}

func (s *sentries) close() {
	s.stock.Close()
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.going.Wait()
}

// giveUpTime is how long none are made after they were given up.
const giveUpTime = 30 * time.Second

// GiveUp implements driver.Stocker.
func (d *Driver) GiveUp() int { return d.sentries.stock.GiveUp(giveUpTime) }

// Stock implements driver.Stocker.
func (d *Driver) Stock() (ready, wanted int) { return d.sentries.stock.Size() }
