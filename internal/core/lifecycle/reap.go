package lifecycle

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cubbyhq/cubby/internal/core/diskrepair"
	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

const (
	reapEvery = time.Second
	restEvery = 10 * time.Second
	// reapAtOnce bounds how many are ended at a time: ones that hang must not
	// hold up the others, and many must not take the whole host.
	reapAtOnce = 8
	// reapAgain is how long one is left alone whose end failed.
	reapAgain = 10 * time.Second
	// reapPatience is how long the end of a lifetime waits for an act that is
	// under way.
	reapPatience = 30 * time.Second
)

// reaper ends sandboxes that nobody uses and those whose time is over.
type reaper struct {
	*acts
	places   chan struct{}
	repairer *diskrepair.Repairer
	// troubles logs what its turns meet again and again.
	troubles *telemetry.Troubles

	relieving atomic.Int32 // sandboxes that are being put to sleep for others
	bounding  atomic.Bool  // somebody looks at what sleepers take of the disk

	mu    sync.Mutex
	busy  map[sandbox.UID]bool          // that are being ended; guarded by mu
	again map[sandbox.UID]time.Duration // uptime before which one is left alone; guarded by mu
}

func newReaper(a *acts) *reaper {
	return &reaper{
		acts: a, repairer: newRepairer(a), places: make(chan struct{}, reapAtOnce), troubles: telemetry.NewTroubles(a.cfg.Log, a.cfg.Now), busy: make(map[sandbox.UID]bool), again: make(map[sandbox.UID]time.Duration),
	}
}

// begin takes a place for uid. It reports false when it has one, when its end
// failed a moment ago, or when no place is free: the next turn comes soon.
func (p *reaper) begin(uid sandbox.UID, uptime time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.busy[uid] || uptime < p.again[uid] {
		return false
	}
	select {
	case p.places <- struct{}{}:
	default:
		return false
	}
	p.busy[uid] = true
	return true
}

// end gives the place back.
func (p *reaper) end(uid sandbox.UID, failed bool, uptime time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.busy, uid)
	maps.DeleteFunc(p.again, func(_ sandbox.UID, at time.Duration) bool { return at <= uptime })
	if failed {
		p.again[uid] = uptime + reapAgain
	}
	<-p.places
}

func (s *reaper) loop(ctx context.Context) {
	t, rest := time.NewTicker(reapEvery), time.NewTicker(restEvery)
	defer t.Stop()
	defer rest.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			s.turn(func(sandbox.UID, error) {})
		case <-rest.C:
			s.restDisks(ctx)
		}
	}
}

// starter has a sandbox ended or put to sleep in the background. It reports false
// when it does not.
type starter func(uid sandbox.UID, why string, end func(context.Context) error) bool

// turn looks at every sandbox that may have to end, once, and has those ended
// that have to. It does not wait for that; ended is called for each. It returns
// how many they are.
func (s *reaper) turn(ended func(sandbox.UID, error)) (begun int) {
	start := func(uid sandbox.UID, why string, end func(context.Context) error) bool {
		if !s.begin(uid, s.cfg.Uptime()) {
			return false
		}
		spawned := s.cfg.Gate.Spawn(func(ctx context.Context) {
			err := end(ctx)
			if ctx.Err() == nil {
				s.troubles.Note("reap a sandbox: "+why, string(uid), err)
			}
			s.end(uid, err != nil, s.cfg.Uptime())
			ended(uid, err)
		})
		if !spawned {
			s.end(uid, false, 0)
			return false
		}
		begun++
		return true
	}
	over := make(map[sandbox.UID]bool)
	for _, uid := range s.lifetimes.over(s.cfg.Uptime()) {
		over[uid] = true
		start(uid, lifetimeReason, func(ctx context.Context) error { return s.endLifetime(ctx, uid) })
	}
	for _, r := range s.cfg.Live.All() {
		if over[r.UID] || idleActOf(r) == keepRunning || s.cfg.Disks.Writable(r.UID) != nil {
			continue
		}
		start(r.UID, "idle", func(ctx context.Context) error { return s.reapIdle(ctx, r) })
	}
	s.repairDisks(start)
	s.relieve(s.cfg.Gate.Context(), start)
	s.boundSleepers()
	return begun
}

// boundSleepers looks at what sleepers take of the disk, once after each that fell
// asleep, in the background.
func (s *reaper) boundSleepers() {
	if s.cfg.Settings.SleepDiskBytes <= 0 || !s.debts.slept.Load() || !s.bounding.CompareAndSwap(false, true) {
		return
	}
	s.debts.slept.Store(false)
	spawned := s.cfg.Gate.Spawn(func(ctx context.Context) {
		defer s.bounding.Store(false)
		err := s.boundSleepDisk(ctx)
		if ctx.Err() != nil {
			return
		}
		s.troubles.Note("bound what sleepers take of the disk", "", err)
		if err != nil {
			s.debts.slept.Store(true)
		}
	})
	if !spawned {
		s.bounding.Store(false)
	}
}

func idleActOf(r *live.Run) idleAct { return decideIdle(r.Spec(), r.Attention()) }

// reapIdle does what the idle policy says.
func (s *reaper) reapIdle(ctx context.Context, r *live.Run) error {
	unlock, free := s.ids.TryLock(r.ID.Key())
	if !free {
		return nil // somebody uses it
	}
	defer unlock()
	// Asked again now that nobody can come in between.
	act := idleActOf(r)
	if act == keepRunning || s.cfg.Live.Of(r.UID) != r {
		return nil
	}
	b, err := s.cfg.Store.SandboxByUID(ctx, r.UID)
	if err != nil {
		return err
	}
	switch act {
	case destroyIdle:
		_, err = s.destroy(ctx, b, destruction{why: idle()})
	case sleepIdle:
		_, err = s.sleep(ctx, b, false, idle())
	case stopIdle:
		_, err = s.haltUnused(ctx, b, r, false, idle())
	case keepRunning:
	}
	if errors.Is(err, errs.InUse) {
		err = nil // somebody came in between
	}
	return err
}

// endLifetime destroys a sandbox whose time is over.
func (s *reaper) endLifetime(ctx context.Context, uid sandbox.UID) error {
	ctx, cancel := context.WithTimeout(ctx, reapPatience)
	defer cancel()
	b, err := s.cfg.Store.SandboxByUID(ctx, uid)
	if errors.Is(err, errs.NotFound) {
		s.lifetimes.forget(uid)
		return nil
	}
	if err != nil {
		return err
	}
	unlock, err := s.ids.Lock(ctx, b.ID.Key())
	if err != nil {
		return err
	}
	defer unlock()
	if b, err = s.cfg.Store.SandboxByUID(ctx, uid); err != nil {
		return err
	}
	s.lifetimes.note(b, s.cfg.Now(), s.cfg.Uptime())
	if !s.lifetimes.isOver(uid, s.cfg.Uptime()) {
		return nil // it ended otherwise, or has been given more time
	}
	_, err = s.destroy(ctx, b, destruction{why: sandbox.Why{Cause: sandbox.CauseLifetime, Reason: lifetimeReason}})
	return err
}
