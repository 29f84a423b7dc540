// Package agent is cubby's agent: a language model with sandboxes for hands. Users of
// it have threads, which are conversations; a run adds to one. It stands above core and
// uses it as any door does, through the tools that it is given; doors stand above it.
//
// A run belongs to nobody's connection: it goes on when its client leaves, and when
// the daemon stops or dies the next one takes it up where its thread stands. What it
// tells is in a journal of its own, from which any reader takes it at its own pace.
// One run of a thread goes on at a time.
//
// A thread is its tenant's, and other tenants do not know of it. No key of a provider
// is in a thread, a checkpoint, a journal or a log.
package agent

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cubbyhq/cubby/internal/agent/loop"
	"github.com/cubbyhq/cubby/internal/auth"
	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/journal"
	"github.com/cubbyhq/cubby/internal/keylock"
	"github.com/cubbyhq/cubby/internal/llm"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store"
	"github.com/cubbyhq/cubby/internal/tenancy"
	"github.com/cubbyhq/cubby/internal/webhook"
)

// Models finds the models of callers.
type Models interface {
	// Choose returns the model that a request of the caller is for. It is errs.Unready,
	// with a hint, when there is none.
	Choose(ctx context.Context, c Choice) (Chosen, error)
}

// Choice is what a request says of its model; "" is what settings say.
type Choice struct {
	Model   string // provider/model, or the model alone beside Provider
	BaseURL string
	// Provider and Key are the request's own.
	Provider, Key string
	// Vision is "true", "false" or "": the model is tried.
	Vision string
}

// Chosen is a model, and what the settings of its caller say.
type Chosen struct {
	Model          llm.Model
	Provider, Name string
	Sight          *loop.Sight
	// MaxTurns and MaxTokens bound a run; 0 of MaxTokens is no bound.
	MaxTurns, MaxTokens int
	Policy              conversation.Policy
}

// Hands gives threads their tools.
type Hands interface {
	// Tools of a thread of the caller. The sandbox, if not "", takes the place of those
	// that the thread would have.
	Tools(ctx context.Context, thread, sandbox string) loop.Tools
	// Describe says what the thread's sandboxes really have, for the model.
	Describe(ctx context.Context, thread, sandbox string) string
	// Instructions is what AGENTS.md in the thread's workspace says; "": there is none.
	// It makes and wakes no sandbox.
	Instructions(ctx context.Context, thread, sandbox string) string
	// Engage says that a run of the thread goes on, until leave: its sandboxes do not make
	// place for those of other threads meanwhile.
	Engage(ctx context.Context, thread string) (leave func())
	// End destroys the sandboxes and uploads of a thread, in the background.
	End(ctx context.Context, thread string) error
}

// Config is what a Service needs. Store and Journals stay the caller's to close,
// after Run has returned.
type Config struct {
	Store *store.Store
	// Journals are of the runs alone.
	Journals *journal.Journals
	Models   Models
	Hands    Hands
	Skills   *Skills          // nil: none
	Log      *slog.Logger     // nil: silent
	Now      func() time.Time // nil: time.Now
	Bounds   Bounds
	// Returning is how long a run that ends with its clients goes on without them after
	// a start of the daemon; 0: half a minute.
	Returning time.Duration
	// Webhooks post the ends of runs, in the words of Describe; nil: a run cannot ask for
	// it.
	Webhooks *webhook.Sender
	Describe func(RunEnd) ([]byte, error)
	// Admit is the error of a host whose disk has no room for more; nil: it has.
	Admit func() error
	// Leave is called when runs are about to be left to the next daemon: what they do
	// in sandboxes goes on. Nil: nobody cares.
	Leave func()
}

// Bounds are the operator's; 0 is no bound.
type Bounds struct {
	// Runs may go on or wait at once, of all tenants and of one.
	Runs, RunsOfTenant int
	// Threads are kept of a tenant, for Age since they were used last.
	Threads int
	Age     time.Duration
	// Crons may a tenant have.
	Crons int
	// Memory is of the states of runs that go on, in bytes, all together, and again of
	// the states that are being shown; a tenant has half of it. Who has no room waits.
	Memory int64
	// Bytes are what a tenant's threads and assistants may have, with all that runs told.
	Bytes int64
	// History is how long journals of runs are kept.
	History time.Duration
}

// Service is the agent. Make one with [New]; all methods may be called from any
// goroutine.
type Service struct {
	cfg     Config
	places  *tenancy.Places
	working *room // of runs
	reading *room // of those who are shown states
	listing *tenancy.Turns
	threads keylock.Locks // by uid: who decides which run goes on
	trims   keylock.Locks // by tenant

	cronsChanged chan struct{} // has a token when a run of a cron may be due

	*opening
	ended    chan struct{} // closed when nothing begins any more
	work     sync.WaitGroup
	draining atomic.Bool

	mu     sync.Mutex
	active map[sandbox.UID]*execution // by thread; guarded by mu
	queued map[string]*waiting        // by run; guarded by mu
}

// New returns a Service. It starts nothing.
func New(c Config) *Service {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	c.Returning = cmp.Or(c.Returning, returning)
	return &Service{
		cfg: c, places: tenancy.NewPlaces("runs of the agent", tenancy.Bound{All: unbound(c.Bounds.Runs), Tenant: unbound(c.Bounds.RunsOfTenant)}),
		working: newRoom(c.Bounds.Memory), reading: newRoom(c.Bounds.Memory), listing: newListTurns(),
		cronsChanged: make(chan struct{}, 1),
		opening:      newOpening(), ended: make(chan struct{}),
		active: map[sandbox.UID]*execution{}, queued: map[string]*waiting{},
	}
}

// unbound is a bound as places know it, to whom 0 is none at all.
func unbound(n int) int {
	if n == 0 {
		return math.MaxInt
	}
	return n
}

// Run takes up the runs that an earlier daemon left, and keeps everything going until
// ctx ends. Runs that go on then are left to the next daemon. While the store does not
// work it tries again: it never returns before ctx ends, and always nil.
func (s *Service) Run(ctx context.Context) error {
	if s.takeUp(ctx) {
		s.open()
		s.work.Go(s.endAbandoned)
		s.work.Go(func() { s.runCrons(context.WithoutCancel(ctx)) })
		s.work.Go(func() { s.boundUntil(ctx) })
		s.sweepUntil(ctx)
	}
	if s.cfg.Leave != nil {
		s.cfg.Leave()
	}
	s.mu.Lock()
	close(s.ended)
	for _, e := range s.active {
		e.cancel(loop.ErrStopping)
	}
	s.mu.Unlock()
	s.work.Wait()
	return nil
}

// Drain is called before doors cut off those who follow runs because the daemon stops:
// from now on nobody who leaves ends a run by that. They come back to the next daemon.
func (s *Service) Drain() { s.draining.Store(true) }

// ownerOf points to owner, for queries.
func ownerOf(ctx context.Context) *string {
	tenant := owner(ctx)
	return &tenant
}

// owner is the tenant whose threads the caller sees.
func owner(ctx context.Context) string { return auth.From(ctx).Tenant }

// noThread says so in the words of LangGraph's servers.
func noThread(id string, err error) error {
	if errors.Is(err, errs.NotFound) {
		return errs.E(errs.NotFound, "Thread with ID %.80s not found", cmp.Or(id, "(none)"))
	}
	return err
}
