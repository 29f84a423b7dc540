// Package live serves sandboxes while they run: their commands and the queues
// of these, terminals, what they print, and the way out to other hosts. How a
// command ends is decided here alone, also of one whose sandbox or daemon went
// away in the middle.
//
// It neither starts nor stops a sandbox and knows no disk and no image: whoever
// does attaches a [Run] when one runs, says why it ends, and hears of deaths.
// Every method that takes an id resolves it for the caller of its context.
package live

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/cubbyhq/cubby/internal/core/budget"
	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/core/history"
	"github.com/cubbyhq/cubby/internal/core/scope"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/egress"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/journal"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store"
	"github.com/cubbyhq/cubby/internal/tenancy"
)

// Metrics records what running sandboxes do.
type Metrics interface {
	Exec(reason string, d time.Duration)
	Egress(allowed bool, rule string)
	EgressEnded(protocol, end string, d time.Duration)
	EgressUnlisted()
}

// Config is what running sandboxes are served with. All fields are required
// unless they say otherwise.
type Config struct {
	Store    *store.Store
	Driver   driver.Driver
	Journals *journal.Journals
	Gate     *gate.Gate
	Scope    *scope.Scope
	Recorder *history.Recorder
	Budget   budget.Budget // the zero one charges nothing
	Log      *slog.Logger
	Metrics  Metrics
	Now      func() time.Time
	Uptime   func() time.Duration // a clock that does not step

	Disks Disks
	// Egress is what the proxy is made from; its OnDecision and OnEnd, if any,
	// hear after this package.
	Egress egress.Config
	// Commands bounds the commands, cells and terminals of one tenant that run
	// at once; 0 is no bound.
	Commands int
	// Operations are the execs that are more than a plain command.
	Operations Operations

	// Rouse makes a sandbox run that somebody uses and that has no run: it wakes
	// or starts it if its auto_wake allows that, and waits for whoever is at it.
	Rouse func(ctx context.Context, b sandbox.Sandbox) error
	// OnDeath hears that a sandbox does not run any more, in a goroutine of its
	// own, also when somebody ends it on purpose.
	OnDeath func(ctx context.Context, r *Run, death driver.Death)
	// OnExecEnd hears that an exec has ended, after its end is stored.
	OnExecEnd func(box sandbox.UID)
	// OnFree hears that nothing of a run is left.
	OnFree func(box sandbox.UID)
	// OnUse hears that a use of a sandbox is over, or a command has ended.
	OnUse func(box sandbox.UID)
}

// Disks are what the host says of the disks of sandboxes.
type Disks interface {
	// Admit refuses commands while the host has no room for their output.
	Admit() error
	// Writable says why writes to the disks of a sandbox do not go through, as far
	// as is known, and Examine after a look; nil when they do.
	Writable(box sandbox.UID) error
	Examine(box sandbox.UID) error
	// Sync writes what the disks of a sandbox have; an error is of something that was lost.
	Sync(ctx context.Context, box sandbox.UID) error
}

// Sandboxes are those that run now. Methods may be called from any goroutine.
type Sandboxes struct {
	cfg       Config
	proxy     *egress.Proxy
	outputs   *tenancy.Places // of output
	commands  *tenancy.Places // that run, of tenants
	decisions chan decision   // of the egress proxy, to be written down

	execs     *Execs
	terminals *Terminals
	egress    *Egress
	ports     *Ports

	changes changes

	mu      sync.Mutex
	running map[sandbox.UID]*Run    // guarded by mu
	carried map[sandbox.UID]secrets // by suspended runs to the next ones; guarded by mu
}

// New returns an empty set.
func New(cfg Config) *Sandboxes {
	s := &Sandboxes{
		cfg:       cfg,
		outputs:   tenancy.NewPlaces("streams of output open", outputFollowerBound),
		commands:  tenancy.NewPlaces("commands running", tenancy.Bound{All: math.MaxInt, Tenant: cfg.Commands}),
		decisions: make(chan decision, 1024),
		running:   make(map[sandbox.UID]*Run),
		carried:   make(map[sandbox.UID]secrets),
	}
	s.execs, s.terminals, s.egress = &Execs{s: s}, &Terminals{s: s}, &Egress{s: s}
	s.ports = &Ports{s: s}
	s.proxy = egress.New(s.egress.listen(cfg.Egress))
	return s
}

// Serve writes down what the egress proxy decides until ended is closed, by when
// nobody may decide any more, and then forgets the runs. The sandboxes go on.
func (s *Sandboxes) Serve(ended <-chan struct{}) {
	s.egress.writeDecisions(ended)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.running {
		r.out.tellUnlisted()
	}
	clear(s.running)
	clear(s.carried)
}

// Execs is the commands of sandboxes, running and ended.
func (s *Sandboxes) Execs() *Execs { return s.execs }

// Terminals is the terminals of running sandboxes.
func (s *Sandboxes) Terminals() *Terminals { return s.terminals }

// Egress is the way from running sandboxes to other hosts.
func (s *Sandboxes) Egress() *Egress { return s.egress }

// Ports is the TCP ports of sandboxes.
func (s *Sandboxes) Ports() *Ports { return s.ports }

// Of returns the run of a sandbox, nil when it does not run or is not reachable
// yet.
func (s *Sandboxes) Of(box sandbox.UID) *Run {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running[box]
}

// Takes reports whether a sandbox has a run that takes uses: see [Run.Leave].
func (s *Sandboxes) Takes(box sandbox.UID) bool {
	r := s.Of(box)
	if r == nil {
		return false
	}
	return !r.activity.Leaves()
}

// All returns what runs now.
func (s *Sandboxes) All() []*Run {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*Run, 0, len(s.running))
	for _, r := range s.running {
		all = append(all, r)
	}
	return all
}

// Find returns the caller's sandbox with an id, and its run, for a look that
// changes nothing: one that rests goes on resting. WrongState says what to do.
func (s *Sandboxes) Find(ctx context.Context, id string) (sandbox.Sandbox, *Run, error) {
	b, err := s.cfg.Scope.Find(ctx, id)
	if err != nil {
		return b, nil, err
	}
	if b.State != sandbox.Running {
		return b, nil, s.cfg.Scope.NotRunning(b)
	}
	r := s.Of(b.UID)
	if r == nil {
		if err := driver.Serves(s.cfg.Driver, b.Driver); err != nil {
			return b, nil, err
		}
		return b, nil, errUnreachable()
	}
	return b, r, nil
}

// useAttempts bounds how often a use looks for a run that was there a moment ago.
const useAttempts = 3

// UseRunning is [Sandboxes.Use] of a sandbox that its caller has just found running
// and may use, without another look into the store. It is false when it does not run
// any more: then Use knows what to do.
func (s *Sandboxes) UseRunning(ctx context.Context, box sandbox.UID) (r *Run, done func(), ok bool) {
	leave, err := s.cfg.Gate.Enter(ctx)
	if err != nil {
		return nil, nil, false
	}
	defer leave()
	if r = s.Of(box); r == nil {
		return nil, nil, false
	}
	done, ok = r.open(ctx)
	return r, done, ok
}

// Use is [Sandboxes.Find] of a sandbox that is in use until done. All that uses a
// sandbox comes through here, or through [Sandboxes.UseRunning]: one that rests runs again first, if its auto_wake
// allows that.
func (s *Sandboxes) Use(ctx context.Context, id string) (b sandbox.Sandbox, r *Run, done func(), err error) {
	leave, err := s.cfg.Gate.Enter(ctx)
	if err != nil {
		return b, nil, nil, err
	}
	defer leave()
	for attempt := 1; ; attempt++ {
		if b, err = s.cfg.Scope.Find(ctx, id); err != nil {
			return b, nil, nil, err
		}
		if b.State == sandbox.Running {
			if r := s.Of(b.UID); r != nil {
				if done, ok := r.open(ctx); ok {
					return b, r, done, nil
				}
			}
		}
		switch {
		case b.State != sandbox.Running && b.State != sandbox.Sleeping && b.State != sandbox.Stopped:
			return b, nil, nil, s.cfg.Scope.NotRunning(b)
		case attempt == useAttempts:
			return b, nil, nil, errUnreachable()
		}
		if err := driver.Serves(s.cfg.Driver, b.Driver); err != nil {
			return b, nil, nil, err
		}
		if err := s.cfg.Rouse(ctx, b); err != nil {
			return b, nil, nil, err
		}
	}
}

// asleep reports whether a sandbox sleeps, or is being put to sleep.
func (s *Sandboxes) asleep(b sandbox.Sandbox) bool {
	return b.State == sandbox.Sleeping || b.State == sandbox.Running && s.Of(b.UID) == nil
}

// rouse makes a sandbox run that rests.
func (s *Sandboxes) rouse(ctx context.Context, id string) error {
	_, _, done, err := s.Use(ctx, id)
	if err == nil {
		done()
	}
	return err
}

// exec returns an exec of this sandbox that runs now, nil when there is none.
func (s *Sandboxes) exec(box sandbox.UID, seq int64) *Exec {
	r := s.Of(box)
	if r == nil {
		return nil
	}
	return r.execs.get(seq)
}

// forget takes a run out that is over.
func (s *Sandboxes) forget(r *Run) {
	s.mu.Lock()
	if s.running[r.UID] == r {
		delete(s.running, r.UID)
	}
	s.mu.Unlock()
	s.cfg.OnFree(r.UID)
}

func errUnreachable() error {
	return errs.E(errs.Unavailable, "the sandbox cannot be reached yet").RetryAfter(time.Second)
}
