// Package threads is the conversations that sandboxes belong to. A thread is a
// name that sandboxes of one tenant share. It begins with its first sandbox or
// upload and is active while it has a sandbox; what its sandboxes export is for all
// of them. How a sandbox ends is lifecycle's, which is asked for it.
package threads

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/cubbyhq/cubby/internal/auth"
	"github.com/cubbyhq/cubby/internal/core/admission"
	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/hostfiles"
	"github.com/cubbyhq/cubby/internal/keylock"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// Limits are what holds for sandboxes in a thread and for no others.
type Limits struct {
	// IdleTimeout and MaxLifetime are their defaults, 0 being never; nil leaves
	// them to those of all sandboxes. Their default idle policy is to destroy.
	IdleTimeout *time.Duration
	MaxLifetime *time.Duration
	// MaxActive bounds the active threads of a tenant; 0 is no bound.
	MaxActive int
}

// Defaults completes the spec of a create in a thread; all is what holds for
// sandboxes outside of threads.
func (l Limits) Defaults(all sandbox.Spec) sandbox.Spec {
	all.IdlePolicy = sandbox.IdleDestroy
	if l.IdleTimeout != nil {
		all.IdleTimeout = *l.IdleTimeout
	}
	if l.MaxLifetime != nil {
		all.MaxLifetime = *l.MaxLifetime
	}
	return all
}

// Config is what Threads needs. All fields are required unless they say otherwise.
type Config struct {
	Store   *store.Store
	Live    *live.Sandboxes
	Gate    *gate.Gate
	Uploads *hostfiles.Uploads // nil: none are kept
	Log     *slog.Logger
	Now     func() time.Time
	Limits  Limits
	Acts    Acts
}

// Acts is what lifecycle does to the sandboxes of threads.
type Acts interface {
	// SandboxesOf returns the sandboxes of a thread that are neither failed nor
	// destroyed, newest first.
	SandboxesOf(ctx context.Context, tenant, thread string) ([]sandbox.Sandbox, error)
	// Admits is the error that a create of b would have now for want of room.
	Admits(b sandbox.Sandbox) error
	// Engaged reports whether someone works in a thread, also between its commands.
	Engaged(tenant, thread string) bool
	// DestroyOnly destroys this incarnation, and not a later one with the same id.
	// When it is destroyed already that is no error.
	DestroyOnly(ctx context.Context, b sandbox.Sandbox) error
	// DestroyUnused is DestroyOnly for a sandbox that unused accepts as it is by
	// then. It reports false when unused refuses it, or when another act holds its lock.
	DestroyUnused(ctx context.Context, b sandbox.Sandbox, why sandbox.Why, unused func(sandbox.Sandbox) bool) (bool, error)
}

// New returns the threads that the store knows.
func New(cfg Config) *Threads { return &Threads{cfg: cfg} }

// Thread is a thread that has sandboxes.
type Thread struct {
	Name         string
	Sandboxes    int // that are not failed or destroyed
	Running      int
	CreatedAt    time.Time // of its oldest sandbox
	LastActiveAt time.Time
}

// Threads is the conversations of the callers' tenants.
type Threads struct {
	cfg   Config
	seats keylock.Locks // by tenant; held by whoever makes a thread active
}

// List returns the active threads of the caller's tenant, by name.
func (s *Threads) List(ctx context.Context) ([]Thread, error) {
	rows, err := s.cfg.Store.Threads(ctx, auth.From(ctx).Tenant)
	if err != nil {
		return nil, err
	}
	threads := make([]Thread, len(rows))
	for i, t := range rows {
		threads[i] = Thread{Name: t.Name, Sandboxes: t.Sandboxes, Running: t.Running, CreatedAt: t.CreatedAt, LastActiveAt: t.LastActiveAt}
	}
	return threads, nil
}

// Sandboxes returns the sandboxes of a thread that are neither failed nor
// destroyed, newest first.
func (s *Threads) Sandboxes(ctx context.Context, thread string) ([]sandbox.Sandbox, error) {
	if err := checkThread(thread); err != nil {
		return nil, err
	}
	return s.cfg.Acts.SandboxesOf(ctx, auth.From(ctx).Tenant, thread)
}

func checkThread(thread string) error {
	if thread == "" {
		return errs.E(errs.Invalid, "thread: required")
	}
	return sandbox.ValidateThread(thread)
}

// Seat makes sure that b's thread is or may become an active one, and
// that nobody else's does until leave: the row has to be stored by then. When
// there are as many as may be, the one that was unused longest and in which
// nothing happens now is destroyed; OverQuota when there is none.
func (s *Threads) Seat(ctx context.Context, b sandbox.Sandbox) (leave func(), err error) {
	most := s.cfg.Limits.MaxActive
	if b.Spec.Thread == "" || most <= 0 {
		return func() {}, nil
	}
	unlock, err := s.seats.Lock(ctx, b.Tenant)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			unlock()
		}
	}()
	threads, err := s.cfg.Store.Threads(ctx, b.Tenant)
	if err != nil {
		return nil, err
	}
	there := slices.ContainsFunc(threads, func(t store.Thread) bool { return t.Name == b.Spec.Thread })
	if there || len(threads) < most {
		return unlock, nil
	}
	// Nobody is evicted for a sandbox that cannot be made anyway.
	if err := s.cfg.Acts.Admits(b); err != nil {
		return nil, err
	}
	return unlock, s.evict(ctx, b.Tenant, threads, len(threads)-most+1)
}

// unusedThread is a thread that may be evicted.
type unusedThread struct {
	name      string
	sandboxes []sandbox.Sandbox
	last      time.Time // when any of them was used
}

// evict destroys so many threads.
func (s *Threads) evict(ctx context.Context, tenant string, threads []store.Thread, n int) error {
	var unused []unusedThread
	for _, t := range threads {
		live, err := s.cfg.Acts.SandboxesOf(ctx, tenant, t.Name)
		if err != nil {
			return err
		}
		if u := (unusedThread{name: t.Name, sandboxes: live}); s.isUnused(&u) {
			unused = append(unused, u)
		}
	}
	slices.SortFunc(unused, func(a, b unusedThread) int { return a.last.Compare(b.last) })
	for _, u := range unused {
		if n == 0 {
			break
		}
		gone, err := s.evictOne(ctx, tenant, u)
		if err != nil {
			return err
		}
		if gone {
			n--
		}
	}
	if n > 0 {
		return errs.E(errs.OverQuota, "all %d active threads are in use", s.cfg.Limits.MaxActive).
			Hint("destroy a thread; the operator's bound is max-active-threads").RetryAfter(admission.CapacityRetry)
	}
	return nil
}

// isUnused reports whether nothing happens in a thread, and notes when it was
// used last.
func (s *Threads) isUnused(u *unusedThread) bool {
	for _, b := range u.sandboxes {
		if b.State == sandbox.Creating || s.cfg.Acts.Engaged(b.Tenant, b.Spec.Thread) {
			return false
		}
		last := b.LastActiveAt
		if r := s.cfg.Live.Of(b.UID); r != nil {
			if a := r.Attention(); a.InUse || a.Lease > 0 {
				return false
			}
			last = r.LastActive()
		}
		if last.After(u.last) {
			u.last = last
		}
	}
	return true
}

// evictOne destroys a thread unless somebody comes to use it.
func (s *Threads) evictOne(ctx context.Context, tenant string, u unusedThread) (gone bool, err error) {
	why := sandbox.Why{Cause: sandbox.CauseEvicted, Reason: fmt.Sprintf("its thread was the longest unused of %d", s.cfg.Limits.MaxActive)}
	for _, b := range u.sandboxes {
		gone, err := s.cfg.Acts.DestroyUnused(ctx, b, why, func(now sandbox.Sandbox) bool {
			return s.isUnused(&unusedThread{sandboxes: []sandbox.Sandbox{now}})
		})
		if !gone || err != nil {
			return false, err
		}
	}
	s.removeUploads(tenant, u.name)
	return true, nil
}

func (s *Threads) removeUploads(tenant, thread string) {
	if s.cfg.Uploads == nil {
		return
	}
	if err := s.cfg.Uploads.Remove(tenant, thread); err != nil {
		// The prune looks for what is left.
		s.cfg.Log.Error("remove the uploads of a thread", telemetry.KeyErr, err)
	}
}

// Destroy destroys the sandboxes of a thread, with what they exported, and
// removes its uploads. It returns how many sandboxes there were. A thread that
// has nothing is no error, so what an interrupted call left can be ended by
// another one.
func (s *Threads) Destroy(ctx context.Context, thread string) (n int, err error) {
	if err := checkThread(thread); err != nil {
		return 0, err
	}
	leave, err := s.cfg.Gate.Enter(ctx)
	if err != nil {
		return 0, err
	}
	defer leave()
	return s.destroyAll(ctx, thread)
}

// End is Destroy in the background: what goes wrong is logged.
func (s *Threads) End(ctx context.Context, thread string) error {
	if err := checkThread(thread); err != nil {
		return err
	}
	if err := s.cfg.Gate.Wait(ctx); err != nil {
		return err
	}
	who := auth.From(ctx)
	if !s.cfg.Gate.Spawn(func(ctx context.Context) {
		if _, err := s.destroyAll(auth.WithPrincipal(ctx, who), thread); err != nil {
			s.cfg.Log.Error("destroy a thread", telemetry.KeyErr, err)
		}
	}) {
		return gate.ErrShuttingDown()
	}
	return nil
}

// destroyAtOnce bounds how many sandboxes of a thread end at a time.
const destroyAtOnce = 4

func (s *Threads) destroyAll(ctx context.Context, thread string) (n int, err error) {
	tenant := auth.From(ctx).Tenant
	live, err := s.cfg.Acts.SandboxesOf(ctx, tenant, thread)
	if err != nil {
		return 0, err
	}
	results := make([]error, len(live))
	var group sync.WaitGroup
	places := make(chan struct{}, destroyAtOnce)
	for i, b := range live {
		places <- struct{}{}
		group.Go(func() {
			defer func() { <-places }()
			results[i] = s.cfg.Acts.DestroyOnly(ctx, b)
		})
	}
	group.Wait()
	for _, err := range results {
		if err == nil {
			n++
		}
	}
	if err := errors.Join(results...); err != nil {
		return n, err
	}
	if s.cfg.Uploads != nil {
		if err := s.cfg.Uploads.Remove(tenant, thread); err != nil {
			return n, errs.E(errs.Unavailable, "the uploads of the thread are not removed").Because(err)
		}
	}
	return n, nil
}

// Upload stores a file of a thread, from which its sandboxes can import it.
// Unsupported where the daemon keeps none.
func (s *Threads) Upload(ctx context.Context, thread, name string, r io.Reader) (hostfiles.Upload, error) {
	if err := checkThread(thread); err != nil {
		return hostfiles.Upload{}, err
	}
	if s.cfg.Uploads == nil {
		return hostfiles.Upload{}, errs.E(errs.Unsupported, "this daemon keeps no uploads")
	}
	return s.cfg.Uploads.Put(ctx, auth.From(ctx).Tenant, thread, name, r)
}

// SweepUploads removes uploads of threads that have no sandbox and were not
// used for as long as a thread's sandboxes may live.
func (s *Threads) SweepUploads(ctx context.Context) {
	age := s.cfg.Limits.MaxLifetime
	if s.cfg.Uploads == nil || age == nil || *age <= 0 {
		return
	}
	threads, err := s.cfg.Store.AllThreads(ctx)
	if err == nil {
		live := make(map[[2]string]bool, len(threads))
		for _, t := range threads {
			live[[2]string{t.Tenant, t.Name}] = true
		}
		err = s.cfg.Uploads.Sweep(live, s.cfg.Now().Add(-*age))
	}
	if err != nil && ctx.Err() == nil {
		s.cfg.Log.Error("remove old uploads", telemetry.KeyErr, err)
	}
}
