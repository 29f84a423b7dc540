package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/cubbyhq/cubby/internal/core/diskrepair"
	"github.com/cubbyhq/cubby/internal/core/scope"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/egress"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/storage"
	"github.com/cubbyhq/cubby/internal/store"
)

// change finds a sandbox and holds its lock, so that what it returns stays
// true until unlock. Only who may see the sandbox waits for its lock: to
// everybody else it takes no longer than one that does not exist.
func (s *acts) change(ctx context.Context, id string) (b sandbox.Sandbox, unlock func(), err error) {
	leave, err := s.cfg.Gate.Enter(ctx)
	if err != nil {
		return b, nil, err
	}
	if b, err = s.cfg.Scope.Find(ctx, id); err != nil {
		leave()
		return b, nil, err
	}
	release, err := s.ids.Lock(ctx, b.ID.Key())
	if err != nil {
		leave()
		return b, nil, err
	}
	unlock = func() { release(); leave() }
	if b, err = s.cfg.Scope.Find(ctx, id); err != nil {
		unlock()
		return b, nil, err
	}
	return b, unlock, nil
}

// Query selects sandboxes that the caller sees. The zero value selects all that
// are not destroyed.
type Query struct {
	Tenant   string            // "": any
	Labels   map[string]string // all must match
	States   []sandbox.State   // none: all but destroyed
	External sandbox.External  // fields that are not empty must match
	Thread   string            // "": any
	Cursor   string            // Next of the page before
	Limit    int               // 0: 100, at most 1000
}

// Page is a part of a list, newest first.
type Page struct {
	Sandboxes []sandbox.Sandbox
	Next      string // "" on the last page
}

// Get returns the sandbox that has the id, or the newest failed one.
// NotFound when it was destroyed or never was.
func (s *Sandboxes) Get(ctx context.Context, id string) (sandbox.Sandbox, error) {
	b, err := s.cfg.Scope.Find(ctx, id)
	if err != nil {
		return b, err
	}
	return s.upToDate(b), nil
}

// upToDate adds what the store learns of later or never, and drops a lease that
// is over.
func (s *acts) upToDate(b sandbox.Sandbox) sandbox.Sandbox {
	if !b.Spec.KeptUntil.After(s.cfg.Now()) {
		b.Spec.KeptUntil = time.Time{}
	}
	r := s.cfg.Live.Of(b.UID)
	if r == nil {
		return b
	}
	if at := r.LastActive(); at.After(b.LastActiveAt) {
		b.LastActiveAt = at
	}
	if left, bounded := untilIdle(b.Spec, r.Attention()); bounded {
		b.IdleAt = s.cfg.Now().Add(max(0, left))
	}
	b.Conditions = diskrepair.Conditions(s.cfg.Disks, b.UID)
	return b
}

// Defaults is what a create without a spec makes.
func (s *Sandboxes) Defaults() sandbox.Spec { return s.cfg.Settings.Defaults }

// List returns sandboxes.
func (s *Sandboxes) List(ctx context.Context, q Query) (Page, error) {
	if err := s.cfg.Gate.Wait(ctx); err != nil {
		return Page{}, err
	}
	if err := scope.MayName(ctx, q.Tenant); err != nil {
		return Page{}, err
	}
	done, err := s.cfg.Budget.Turn(ctx)
	if err != nil {
		return Page{}, err
	}
	defer done()
	items, next, err := s.cfg.Store.Sandboxes(ctx, store.Query{
		Tenant: scope.Whose(ctx, q.Tenant), Labels: q.Labels, States: q.States, External: q.External, Thread: q.Thread, After: q.Cursor, Limit: q.Limit,
	})
	if err != nil {
		return Page{}, err
	}
	var bytes int64
	for i := range items {
		items[i] = s.upToDate(items[i])
		bytes += items[i].Spec.Bytes()
	}
	if err := s.cfg.Budget.ChargeList(ctx, bytes); err != nil {
		return Page{}, err
	}
	return Page{Sandboxes: items, Next: next}, nil
}

// Patch changes a sandbox.
type Patch = sandbox.Patch

// Update changes what can be changed in a living sandbox.
func (s *Sandboxes) Update(ctx context.Context, id string, p sandbox.Patch) (sandbox.Sandbox, error) {
	b, unlock, err := s.change(ctx, id)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	defer unlock()
	if n := p.Network; n != nil && n.ProxyEnv != nil && *n.ProxyEnv != b.Spec.Network.NamesProxy() {
		return sandbox.Sandbox{}, errs.E(errs.Invalid, "network.proxy_env: it is fixed at create, and is %t", !*n.ProxyEnv).
			Hint("leave proxy_env out, or create another sandbox with it")
	}
	fields := p.Apply(&b.Spec)
	if len(fields) == 0 {
		if p.CutConnections {
			s.cfg.Live.Egress().Cut(b.UID, b.Spec.Network)
		}
		return s.upToDate(b), nil
	}
	if err := cmp.Or(b.Spec.Validate(), egress.CheckPolicy(b.Spec.Network)); err != nil {
		return sandbox.Sandbox{}, err
	}
	if end := b.Ends(); p.MaxLifetime != nil && !end.IsZero() && !end.After(s.cfg.Now()) {
		return sandbox.Sandbox{}, errs.E(errs.Invalid, "max_lifetime: the sandbox is older than that").Hint("destroy it")
	}
	b, err = s.cfg.Store.UpdateSpec(ctx, b.UID, func(spec *sandbox.Spec) error {
		p.Apply(spec)
		return nil
	}, event.New(b.UID, scope.Actor(ctx), event.Updated{Fields: fields}))
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	s.lifetimes.note(b, s.cfg.Now(), s.cfg.Uptime())
	if r := s.cfg.Live.Of(b.UID); r != nil {
		r.SetSpec(b.Spec)
		s.cfg.On.Run(r, b)
	}
	if p.Network != nil {
		s.cfg.Live.Egress().PolicyChanged(b.UID)
	}
	if p.CutConnections {
		s.cfg.Live.Egress().Cut(b.UID, b.Spec.Network)
	}
	return s.upToDate(b), nil
}

// Stats is what a sandbox uses now.
type Stats struct {
	MemoryBytes  int64 // 0 when it does not run
	MemoryOnDisk int64 // what a sleeping one has kept of it, in bytes
	CPUTime      time.Duration
	PIDs         int64 // -1: not known
	Disk         storage.Usage
	JournalBytes int64
	Execs        int // that run now
	At           time.Time
}

// Stats measures a sandbox.
func (s *Sandboxes) Stats(ctx context.Context, id string) (Stats, error) {
	b, err := s.cfg.Scope.Find(ctx, id)
	if err != nil {
		return Stats{}, err
	}
	st := Stats{At: s.cfg.Now()}
	if st.JournalBytes, err = s.cfg.Journals.Usage(b.UID); err != nil {
		return Stats{}, err
	}
	if b.State.Live() {
		st.Disk, err = s.cfg.Disks.Usage(ctx, b.DiskUID)
		// While a sandbox is being made its disk may not be there yet.
		if err != nil && !errors.Is(err, errs.NotFound) {
			return Stats{}, err
		}
	}
	if b.State == sandbox.Sleeping && driver.Serves(s.cfg.Driver, b.Driver) == nil {
		seen, err := s.inspect(ctx, b)
		if err != nil {
			return Stats{}, err
		}
		st.MemoryOnDisk = seen.MemoryOnDisk
	}
	r := s.cfg.Live.Of(b.UID)
	if r == nil {
		return st, nil
	}
	use, err := s.cfg.Driver.Stats(ctx, r.Handle)
	if err != nil {
		return Stats{}, err
	}
	st.MemoryBytes, st.CPUTime, st.PIDs = use.MemoryBytes, use.CPUTime, use.PIDs
	st.Execs = r.Running()
	return st, nil
}

// Count counts sandboxes by state, for metrics. Destroyed ones are history and
// not counted.
func (s *Sandboxes) Count(ctx context.Context) (map[string]int, error) {
	counts := make(map[string]int)
	for _, state := range sandbox.States() {
		if state == sandbox.Destroyed {
			continue
		}
		n, err := s.cfg.Store.CountSandboxes(ctx, state)
		if err != nil {
			return nil, err
		}
		counts[string(state)] = n
	}
	return counts, nil
}

// ImagesInUse are the digests of the images that sandboxes were made from.
func (s *Sandboxes) ImagesInUse(ctx context.Context) (map[string]bool, error) {
	rows, err := s.rows(ctx, liveRows)
	used := make(map[string]bool, len(rows))
	for _, b := range rows {
		used[b.ImageDigest] = true
	}
	return used, err
}
