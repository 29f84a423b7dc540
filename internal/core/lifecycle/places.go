package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/cubbyhq/cubby/internal/auth"
	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// placeNeeded is said of sandboxes that were put to sleep because their tenant's other
// threads needed their places.
const placeNeeded = "another thread needed its place"

// engaged counts who works in threads. It is ready to use.
type engaged struct {
	mu      sync.Mutex
	threads map[threadKey]int // guarded by mu
}

type threadKey struct{ tenant, name string }

func (e *engaged) enter(k threadKey) (leave func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.threads == nil {
		e.threads = make(map[threadKey]int)
	}
	e.threads[k]++
	return sync.OnceFunc(func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.threads[k]--; e.threads[k] == 0 {
			delete(e.threads, k)
		}
	})
}

func (e *engaged) has(k threadKey) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.threads[k] > 0
}

// Engage says that the caller works in a thread until leave, also between its commands.
// Meanwhile the thread's sandboxes are not put to sleep for other threads, and those that
// are created in it may take the places of threads in which nobody works.
func (s *Sandboxes) Engage(ctx context.Context, thread string) (leave func()) {
	return s.engaged.enter(threadKey{auth.From(ctx).Tenant, thread})
}

// yielding has sandboxes rest so that others can run.
type yielding struct{ *acts }

// freePlace puts sandboxes of the tenant's other threads to sleep, the longest unused
// first, until there is a place for b, if somebody works in its thread or it lost its own
// place so. Only those are that nobody uses or works with, and that wake by themselves
// when somebody does. Without one b is refused as usual.
func (s yielding) freePlace(ctx context.Context, b sandbox.Sandbox) {
	lost := b.Cause == sandbox.CauseIdle && strings.HasPrefix(b.Reason, placeNeeded)
	if !lost && !s.engaged.has(threadKey{b.Tenant, b.Spec.Thread}) {
		return
	}
	var tried []sandbox.UID
	for tenantIsFull(s.admission.Check(b)) && ctx.Err() == nil {
		r := s.longestUnused(b, tried)
		if r == nil {
			return
		}
		tried = append(tried, r.UID)
		if err := s.restFor(ctx, r, sandbox.Why{Cause: sandbox.CauseIdle, Reason: placeNeeded}); err != nil {
			s.cfg.Log.WarnContext(ctx, "put a sandbox to sleep for another thread", telemetry.KeyUID, r.UID, telemetry.KeyErr, err)
		}
	}
}

// tenantIsFull reports whether a sandbox is refused because all its tenant's places are
// taken, by this thread and others.
func tenantIsFull(err error) bool {
	thread, is := errors.AsType[*sandbox.ThreadFull](err)
	return errors.Is(err, errs.OverQuota) && (!is || thread.All)
}

// longestUnused is the sandbox whose place b may take; nil: there is none.
func (s yielding) longestUnused(b sandbox.Sandbox, tried []sandbox.UID) *live.Run {
	var found *live.Run
	var unused live.Attention
	for _, r := range s.cfg.Live.All() {
		spec, use := r.Spec(), r.Attention()
		switch {
		case r.Tenant != b.Tenant, spec.Thread == "", spec.Thread == b.Spec.Thread, slices.Contains(tried, r.UID):
		case use.InUse, use.Lease > 0, spec.IdlePolicy == sandbox.IdleAlwaysOn, spec.AutoWake == sandbox.AutoWakeNever:
		case s.engaged.has(threadKey{r.Tenant, spec.Thread}):
		case found == nil || cmp.Compare(use.Unused, unused.Unused) > 0:
			found, unused = r, use
		}
	}
	return found
}
