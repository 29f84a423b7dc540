// Package services keeps the services of sandboxes running: it starts them when a
// sandbox has begun cold, restarts what ends, gives up what ends again and again,
// and takes them up again where a sandbox goes on with its memory. A run of a
// service is an exec; what it prints is that exec's journal.
//
// It changes no sandbox and wakes none but for who asks for a service by its name.
// While a sandbox does not run it does nothing, and it polls nothing.
package services

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/core/scope"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store"
)

// Config is what services are kept with. All fields are required.
type Config struct {
	Store *store.Store
	Live  *live.Sandboxes
	Scope *scope.Scope
	Gate  *gate.Gate
	Log   *slog.Logger
	// Pause waits before a service starts again. It reports false when ctx ended
	// first.
	Pause func(ctx context.Context, d time.Duration) bool
}

// Services is the services of all sandboxes that run. Methods may be called from
// any goroutine.
type Services struct {
	cfg Config

	mu    sync.Mutex
	boxes map[sandbox.UID]*keeper // guarded by mu
}

// New returns the services of nothing.
func New(cfg Config) *Services {
	return &Services{cfg: cfg, boxes: make(map[sandbox.UID]*keeper)}
}

// Apply hears that a run of a sandbox has begun, or that the services of its spec
// are others. It returns at once; whoever calls it holds the sandbox's lock.
func (s *Services) Apply(r *live.Run, b sandbox.Sandbox) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.boxes[b.UID]; k != nil && k.run == r {
		k.apply(b.Spec.Services)
		return
	}
	if len(b.Spec.Services)+len(b.Services) == 0 {
		delete(s.boxes, b.UID)
		return
	}
	k := newKeeper(s, r, b.Spec.Services)
	s.boxes[b.UID] = k
	s.cfg.Gate.Spawn(func(context.Context) {
		k.serve()
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.boxes[b.UID] == k {
			delete(s.boxes, b.UID)
		}
	})
}

// Look has services looked at that wait for a path: a command may have made it.
func (s *Services) Look(box sandbox.UID) {
	if k := s.of(box); k != nil {
		k.look()
	}
}

// States is how the services of a sandbox stand whose run goes on; b says how they stood.
// What anybody was told of them is in it.
func (s *Services) States(b sandbox.Sandbox) map[string]sandbox.ServiceState {
	if k := s.of(b.UID); k != nil && live.Context(k.run).Err() == nil {
		select {
		case <-k.begun:
			return k.shown()
		default: // nobody was told of any yet
		}
	}
	return b.Services
}

func (s *Services) of(box sandbox.UID) *keeper {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.boxes[box]
}

// Start runs a service that does not run, also one that was given up. One that runs
// is left as it is. It is a use of the sandbox, as Stop and Restart are: one that
// sleeps is woken. NotFound when the sandbox has no service of this name.
func (s *Services) Start(ctx context.Context, id, name string) (Status, error) {
	return s.ask(ctx, id, name, toStart)
}

// Stop ends a service; it stays stopped until somebody starts it or the sandbox
// begins cold.
func (s *Services) Stop(ctx context.Context, id, name string) (Status, error) {
	return s.ask(ctx, id, name, toStop)
}

// Restart ends a service if it runs, and starts it.
func (s *Services) Restart(ctx context.Context, id, name string) (Status, error) {
	return s.ask(ctx, id, name, toRestart)
}

// keeperTries and keeperPause are for who comes between the begin of a run and its
// [Services.Apply].
const (
	keeperTries = 100
	keeperPause = 10 * time.Millisecond
)

func (s *Services) ask(ctx context.Context, id, name string, what wish) (Status, error) {
	b, r, done, err := s.cfg.Live.Use(ctx, id)
	if err != nil {
		return Status{}, err
	}
	defer done()
	declared, err := declaredIn(b, name)
	if err != nil {
		return Status{}, err
	}
	for range keeperTries {
		if k := s.of(b.UID); k != nil && k.run == r {
			if u := k.unit(ctx, name); u != nil {
				if err := u.ask(ctx, what); err != nil {
					return Status{}, err
				}
				return s.Get(ctx, id, name)
			}
		}
		if !gate.Sleep(ctx, keeperPause) || live.Context(r).Err() != nil {
			break
		}
	}
	return Status{Service: declared}, errs.E(errs.Unavailable, "the services of the sandbox cannot be reached yet").RetryAfter(time.Second)
}

func declaredIn(b sandbox.Sandbox, name string) (sandbox.Service, error) {
	for _, service := range b.Spec.Services {
		if service.Name == name {
			return service, nil
		}
	}
	return sandbox.Service{}, errNoService()
}

func errNoService() error {
	return errs.E(errs.NotFound, "the sandbox has no service of this name").
		Hint("GET /v1/sandboxes/{id}/services lists them; an update adds one")
}
