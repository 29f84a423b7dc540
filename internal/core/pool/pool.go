// Package pool keeps sandboxes ready for the creates to come. A member of the
// pool runs, has a disk and the pin of its image, and may have a kernel that
// waits; it has no identity and no row in the store. A create that fits takes a
// member and gives it an identity, which is much quicker than to begin one. Beside
// the kinds that are configured there can be containers like the last one that a
// create asked for, which have no pin until they are taken.
//
// The pool makes members and removes them. It decides neither who gets one nor
// what a sandbox is, and it writes nothing down: after a crash its members are
// traces without a sandbox, which the reconciler removes. While the daemon lives,
// [Pool.Holds] keeps the reconciler from taking them for such.
package pool

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/image"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/storage"
)

// Kind is one sort of members.
type Kind struct {
	Image     string // by name; what the name means is asked again and again
	Isolation sandbox.Isolation
	Limits    sandbox.Limits
	User      string
	// Kernel is the language of the kernel that each has ready, "" for none, and
	// Modules are imported in it.
	Kernel  string
	Modules []string
	Count   int
	// Optional: what a host lacks for it (the image, the isolation) is no problem.
	Optional bool
}

// String names a kind for people.
func (k Kind) String() string {
	words := []string{k.Image, string(k.Isolation)}
	if k.Kernel != "" {
		words = append(words, k.Kernel)
	}
	return strings.Join(words, ", ")
}

// Room is how much of the host is free.
type Room int

// From plenty to none.
const (
	RoomForMore Room = iota
	RoomForThese
	NoRoom // the pool has to give up what it has
)

// Images is what is needed of the image store.
type Images interface {
	Resolve(ctx context.Context, name string) (image.Image, error)
	Pin(ctx context.Context, digest string, owner sandbox.UID) error
	Unpin(ctx context.Context, digest string, owner sandbox.UID) error
}

// Config is what a pool is made with. All fields but the first two are required.
type Config struct {
	Kinds []Kind
	// Containers is how many more are kept ready that are like the last one that was made,
	// see [Pool.Follow]; 0: none.
	Containers int

	Driver driver.Driver
	Disks  storage.Storage
	Images Images
	Gate   *gate.Gate
	Log    *slog.Logger
	Uptime func() time.Duration // a clock that does not step

	// Spec is what the driver is told of a member; it has no id.
	Spec func(k Kind, uid sandbox.UID, img image.Image, disks storage.Mounts) driver.Spec
	// DiskBytes is the size of the disk that goes with limits.
	DiskBytes func(sandbox.Limits) int64
	// Room says whether the host has room for members.
	Room func() Room
	// Left hears that something of a member could not be removed.
	Left func()
}

// Pool is the members of all kinds. Its methods may be called from any goroutine.
type Pool struct {
	cfg  Config
	kick chan struct{} // has a token when there may be something to do

	mu        sync.Mutex
	ready     []*Member // oldest first; guarded by mu
	held      map[sandbox.UID]bool
	following following          // guarded by mu
	fills     []fills            // by kind; guarded by mu
	creating  int                // creates under way; guarded by mu
	claimed   int64              // members that became sandboxes; guarded by mu
	quiet     time.Duration      // when the pool may fill again, by Uptime; guarded by mu
	abort     context.CancelFunc // ends the fill that is under way; nil: none is; guarded by mu
	closed    bool               // no member is kept any more; guarded by mu
}

// Member is a sandbox that runs and belongs to nobody.
type Member struct {
	UID    sandbox.UID
	Handle driver.Handle // without an identity
	Digest string        // of its image

	imageAt time.Time // when that was made: another of the same digest can take its place

	kind int                // its number
	of   Kind               // which it was made of
	stop context.CancelFunc // ends the watch for its death
}

// New returns an empty pool. It starts nothing.
func New(cfg Config) *Pool {
	return &Pool{
		cfg: cfg, kick: make(chan struct{}, 1),
		held: make(map[sandbox.UID]bool), fills: make([]fills, len(cfg.Kinds)+1),
	}
}

// Holds reports whether a uid is that of a member, of one that is being made or
// removed, or of one that was taken and not yet released. Whoever finds traces of
// a sandbox asks this first and the store after it: a member that is taken has
// its row before it is released.
func (p *Pool) Holds(uid sandbox.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held[uid]
}

// Creating says that a create is under way until done: the pool fills only while
// none is.
func (p *Pool) Creating() (done func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.creating++
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.creating--
		p.quiet = max(p.quiet, p.cfg.Uptime()+quietTime)
		p.stir()
	})
}

// Take returns a member that fits, which is the caller's until [Pool.Release],
// [Pool.Return] or [Pool.Discard]; nil when there is none.
func (p *Pool) Take(ctx context.Context, w Want) *Member {
	m := p.take(w)
	if m != nil && !p.pin(ctx, m) {
		p.Discard(m) // what is made in its place fails with a better message
		return nil
	}
	return m
}

func (p *Pool) take(w Want) *Member {
	p.mu.Lock()
	defer p.mu.Unlock()
	best, rank := -1, 0
	for i, m := range p.ready {
		if r := w.rank(m); r > rank {
			best, rank = i, r
		}
	}
	if best < 0 {
		return nil
	}
	m := p.ready[best]
	p.ready = slices.Delete(p.ready, best, best+1)
	m.stop()
	p.stir()
	return m
}

// Release says that a member that was taken has a row of its own.
func (p *Pool) Release(m *Member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.held, m.UID)
	p.claimed++
	p.served(m)
}

// Return gives a member back that was taken and is as it was.
func (p *Pool) Return(m *Member) {
	if !p.unpin(m) || !p.add(m) {
		p.remove(m)
	}
}

// Discard removes a member that was taken. It does not wait for it.
func (p *Pool) Discard(m *Member) {
	if !p.cfg.Gate.Spawn(func(context.Context) { p.remove(m) }) {
		p.remove(m)
	}
}

// GiveUp removes up to n members, and a fill that is under way counts as one, because the
// host is short of memory. It returns how many, and does not wait until they are
// gone. The pool is not filled again for a while, and then only when there is
// room.
func (p *Pool) GiveUp(n int) (given int) {
	p.mu.Lock()
	if n > 0 && p.abort != nil {
		p.abort()
		p.abort = nil
		given++
	}
	var gone []*Member
	for given < n && len(p.ready) > 0 {
		last := len(p.ready) - 1
		gone = append(gone, p.ready[last])
		p.ready = p.ready[:last]
		given++
	}
	p.quiet = max(p.quiet, p.cfg.Uptime()+giveUpTime)
	p.mu.Unlock()
	for _, m := range gone {
		m.stop()
		p.Discard(m)
	}
	return given
}

// Status is how full the pool is of a kind.
type Status struct {
	Kind
	Ready int
}

// Status returns all kinds.
func (p *Pool) Status() []Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	kinds := p.kinds()
	all := make([]Status, len(kinds))
	for i, k := range kinds {
		all[i] = Status{Kind: k, Ready: p.countReady(i)}
	}
	return all
}

// Claimed counts the members that became sandboxes.
func (p *Pool) Claimed() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.claimed
}

// Problem says why the pool has been empty of a kind for a while; nil when it is
// not.
func (p *Pool) Problem() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, f := range p.fills {
		if f.failures > 1 && p.countReady(i) == 0 && p.cfg.Uptime()-f.since >= lasting {
			info := errs.Public(f.err)
			return errs.E(errs.KindOf(f.err), "no sandbox can be kept ready (%s): %s", p.cfg.Kinds[i], info.Message).Hint("%s", info.Hint)
		}
	}
	return nil
}

// countReady counts the members of a kind. The caller holds mu.
func (p *Pool) countReady(kind int) (n int) {
	for _, m := range p.ready {
		if m.kind == kind {
			n++
		}
	}
	return n
}

// stir has the pool look whether there is something to do.
func (p *Pool) stir() {
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

func (p *Pool) unhold(uid sandbox.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.held, uid)
}
