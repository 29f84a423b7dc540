package live

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

const (
	// MaxExecs keeps connections of the channel free for files and dials: every
	// exec that runs holds one.
	MaxExecs     = 192
	releaseDelay = 100 * time.Millisecond
)

// execs are those of one sandbox that run, and the places for them.
type execs struct {
	run   *Run
	pumps sync.WaitGroup // Add only under mu while ending is nil
	// begins counts those that get their numbers. Add only under mu, while neither
	// ending nor suspended.
	begins sync.WaitGroup

	mu        sync.Mutex
	ending    *Ending         // not nil: none is taken any more; guarded by mu
	suspended bool            // the next run takes them; guarded by mu
	live      map[int64]*Exec // by seq; guarded by mu
	starting  int             // that have no seq yet; guarded by mu
	places    []func()        // gives back each one of the tenant's that they have; guarded by mu
	releases  []sandbox.UID   // finished ones that the agent may forget; guarded by mu
	releasing bool            // guarded by mu
}

func newExecs(r *Run) *execs { return &execs{run: r, live: make(map[int64]*Exec)} }

// end is [Run.End].
func (x *execs) end(e Ending) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.ending == nil {
		x.ending = &e
	}
}

// goOn is [Run.GoOn].
func (x *execs) goOn() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.ending = nil
}

// endingNow is how execs end that end with the sandbox; nil while it goes on.
func (x *execs) endingNow() *Ending {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.ending
}

// reserve takes a place for one more exec, of the sandbox's and of its tenant's;
// it is given back by unreserve, or by the end of what register made of it.
func (x *execs) reserve() error { return x.reserveFor(false) }

// reserveFor does so for one that runs already, and that the tenant's bound
// cannot undo.
func (x *execs) reserveFor(runs bool) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.refusal(); err != nil {
		return err
	}
	if len(x.live)+x.starting >= MaxExecs {
		return errs.E(errs.Exhausted, "%d commands run in this sandbox already", MaxExecs).
			Hint("wait for one to end, or cancel one").RetryAfter(time.Second)
	}
	leave, err := x.run.s.commandPlace(x.run.Tenant)
	if err != nil && !runs {
		return err
	}
	x.starting++
	x.begins.Add(1)
	if err == nil {
		x.places = append(x.places, leave)
	}
	return nil
}

// refusal is why no exec is taken any more; nil while some are. The caller holds
// mu.
func (x *execs) refusal() error {
	switch {
	case x.ending != nil:
		return errEnding()
	case x.suspended:
		return errUnreachable()
	}
	return nil
}

// number keeps a suspension waiting until numbered: by then an exec is stored.
func (x *execs) number() (numbered func(), err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.refusal(); err != nil {
		return nil, err
	}
	x.begins.Add(1)
	return x.begins.Done, nil
}

// commandPlace is for a command, a cell or a terminal of a tenant that runs: each
// takes memory and descriptors of the daemon. Those of no tenant are not bound.
func (s *Sandboxes) commandPlace(tenant string) (leave func(), err error) {
	if tenant == "" || s.cfg.Commands <= 0 {
		return func() {}, nil
	}
	if leave, err = s.commands.Enter(tenant); err != nil {
		return nil, errs.E(errs.OverQuota, "the tenant runs all %d commands, cells and terminals that it may have at once", s.cfg.Commands).
			Hint("wait for one to end, or cancel one; the operator's bound is max-commands-per-tenant").RetryAfter(time.Second)
	}
	return leave, nil
}

func (x *execs) unreserve() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.starting--
	x.begins.Done()
	x.leavePlace()
}

// leavePlace gives one of the tenant's places back, of which those that are
// beyond its bound have none. The caller holds mu.
func (x *execs) leavePlace() {
	if n := len(x.places); n > len(x.live)+x.starting {
		x.places[n-1]()
		x.places = x.places[:n-1]
	}
}

// register makes the place of reserve the exec's and pumps its output. When
// the sandbox has ended meanwhile it reports false, and the exec is for the
// caller to finish.
func (x *execs) register(e *Exec, pump func()) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.starting--
	defer x.begins.Done()
	if x.ending != nil {
		x.leavePlace()
		return false
	}
	x.live[e.seq] = e
	attend := x.run.s.cfg.Operations.of(e.exec).Attend // nobody else has the exec yet
	x.pumps.Add(1)
	if !x.run.s.cfg.Gate.Spawn(func(context.Context) { defer x.pumps.Done(); pump() }) {
		x.pumps.Done()
	}
	if attend != nil {
		x.run.s.cfg.Gate.Spawn(func(context.Context) { attend(x.run.ctx, x.run, e) })
	}
	return true
}

func (x *execs) get(seq int64) *Exec {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.live[seq]
}

func (x *execs) all() []*Exec {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Collect(maps.Values(x.live))
}

func (x *execs) count() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.live) + x.starting
}

// forget ends the exec's time as a live one; its agent may forget it too.
func (x *execs) forget(e *Exec) {
	x.run.s.cfg.OnExecEnd(x.run.UID)
	if e.service == nil {
		defer x.run.s.cfg.OnUse(x.run.UID)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.live, e.seq)
	x.leavePlace()
	x.release(e.uid)
}

// release lets the agent forget a finished exec, several with one request. The
// caller holds mu.
func (x *execs) release(uids ...sandbox.UID) {
	if x.run.isOver() || len(uids) == 0 {
		return
	}
	x.releases = append(x.releases, uids...)
	if !x.releasing {
		x.releasing = x.run.s.cfg.Gate.Spawn(func(context.Context) { x.releaseAll() })
	}
}

// releaseAll tells the agent until there is nothing left to tell. What is not
// released is found and released at the next adoption; the agent bounds what it
// keeps.
func (x *execs) releaseAll() {
	r := x.run
	for {
		r.sleep(releaseDelay)
		x.mu.Lock()
		batch := x.releases
		x.releases = nil
		if len(batch) == 0 || r.isOver() || r.ctx.Err() != nil {
			x.releasing = false
			x.mu.Unlock()
			return
		}
		x.mu.Unlock()
		ctx, cancel := context.WithTimeout(r.ctx, gate.DetachedTime)
		if err := r.Guest.Release(ctx, batch...); err != nil && r.ctx.Err() == nil {
			r.s.cfg.Log.Debug("release execs", telemetry.KeyUID, r.UID, telemetry.KeyErr, err)
		}
		cancel()
	}
}

// Released reports that nothing runs and the agent has been told to forget all
// that ran.
func (r *Run) Released() bool {
	x := r.execs
	x.mu.Lock()
	defer x.mu.Unlock()
	return !x.releasing && len(x.releases)+len(x.live) == 0
}

// Reserve takes one of the places for running execs until free.
func (r *Run) Reserve() (free func(), err error) {
	if err := r.execs.reserve(); err != nil {
		return nil, err
	}
	return sync.OnceFunc(r.execs.unreserve), nil
}

// KillAll begins to end everything that runs, each once, and does not wait for it.
func (r *Run) KillAll() {
	for _, e := range r.execs.all() {
		e.mu.Lock()
		killed := e.timers.killed
		e.timers.killed = true
		e.mu.Unlock()
		if killed {
			continue
		}
		r.s.cfg.Gate.Spawn(func(ctx context.Context) { e.kill(ctx, sandbox.EndKilled) })
	}
}
