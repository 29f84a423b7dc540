package history

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cubbyhq/cubby/internal/auth"
	"github.com/cubbyhq/cubby/internal/core/budget"
	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/core/scope"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store"
	"github.com/cubbyhq/cubby/internal/tenancy"
)

// maxKinds bounds what a filter names.
const maxKinds = 32

// Each follower of events reads the database whenever its sandbox has a new one.
var followerBound = tenancy.Bound{All: 1024, Tenant: 256, Reserved: 128}

// checkKinds is about patterns as [Events.List] takes them.
func checkKinds(kinds []string) error {
	if len(kinds) > maxKinds {
		return errs.E(errs.Invalid, "kinds: more than %d", maxKinds)
	}
	const letters = "abcdefghijklmnopqrstuvwxyz_"
	for _, kind := range kinds {
		noun, fact, ok := strings.Cut(kind, ".")
		ok = ok && noun != "" && strings.Trim(noun, letters) == "" &&
			(fact == "*" || fact != "" && strings.Trim(fact, letters) == "")
		if kind != "*" && !ok {
			return errs.E(errs.Invalid, "kinds: %.60q is no kind of event", kind).
				Hint("a kind is as exec.finished; git.* is all that begin with git.")
		}
	}
	return nil
}

// kindIn reports whether a kind matches one of the patterns; none match all.
func kindIn(kind string, patterns []string) bool {
	for _, p := range patterns {
		prefix, more := strings.CutSuffix(p, "*")
		if kind == p || more && strings.HasPrefix(kind, prefix) {
			return true
		}
	}
	return len(patterns) == 0
}

// Events lists and follows the histories of the caller's sandboxes. A destroyed
// sandbox's history is there until it is pruned, while no other has its id.
type Events struct {
	store     *store.Store
	scope     *scope.Scope
	gate      *gate.Gate
	budget    budget.Budget
	followers *tenancy.Places
	watch     Watch
	endsTime  time.Duration
	tails     tails
}

// endsTime is how long after the end of a sandbox those who follow it wait for the
// ends of its commands.
const endsTime = time.Minute

// Watch hears that somebody follows events of a sandbox, of which wants tells, and
// when that is over. It is for events that are found only while they are wanted.
type Watch func(box sandbox.UID, wants func(kind string) bool) (left func())

// NewEvents returns Events whose followers end with the gate. Watch may be nil.
func NewEvents(st *store.Store, sc *scope.Scope, g *gate.Gate, b budget.Budget, watch Watch) *Events {
	return &Events{store: st, scope: sc, gate: g, budget: b, watch: watch, endsTime: endsTime, followers: tenancy.NewPlaces("streams of events open", followerBound)}
}

// List returns a sandbox's history after a cursor, oldest first, and the cursor
// to go on from. Limit 0 is 100, at most 1000. Kinds, when there are any, are the
// only ones: "exec.finished", or "git.*" for all that begin with "git.".
func (h *Events) List(ctx context.Context, id string, after int64, limit int, kinds ...string) (events []sandbox.Event, next int64, err error) {
	if err := checkKinds(kinds); err != nil {
		return nil, 0, err
	}
	b, err := h.scope.FindHistory(ctx, id)
	if err != nil {
		return nil, 0, err
	}
	done, err := h.budget.Turn(ctx)
	if err != nil {
		return nil, 0, err
	}
	defer done()
	events, err = h.store.Events(ctx, b.UID, after, limit, kinds...)
	if err != nil {
		return nil, 0, err
	}
	next = after
	if n := len(events); n > 0 {
		next = events[n-1].Cursor
	}
	return events, next, h.budget.ChargeList(ctx, bytesOf(events))
}

func bytesOf[E interface{ Bytes() int64 }](events []E) (n int64) {
	for _, e := range events {
		n += e.Bytes()
	}
	return n
}

// Follower is a place among those who follow events. It is the caller's until Leave.
type Follower struct {
	h     *Events
	leave func()
}

// Follower takes a place for who will follow: OverQuota when the caller's tenant
// follows too many already.
func (h *Events) Follower(ctx context.Context) (*Follower, error) {
	leave, err := h.followers.Enter(auth.From(ctx).Tenant)
	if err != nil {
		return nil, err
	}
	return &Follower{h: h, leave: sync.OnceFunc(leave)}, nil
}

// Leave gives the place back. It may be called more than once.
func (f *Follower) Leave() { f.leave() }

// Follow is [Events.List] that goes on: it yields a sandbox's events after a
// cursor in the order of their cursors, waits for more, and ends when the sandbox
// has ended and all events were yielded, those of its commands' ends too. It polls
// for the latter alone. It is an error when ctx or the service ends first, and
// Unavailable when a command has no end a minute after that of its sandbox.
func (f *Follower) Follow(ctx context.Context, id string, after int64, kinds ...string) iter.Seq2[Told, error] {
	return func(yield func(Told, error) bool) {
		if err := f.h.follow(ctx, id, after, kinds, func(e Told) bool { return yield(e, nil) }); err != nil {
			yield(Told{}, err)
		}
	}
}

// batchPause is the least time between two batches of events for one follower. Those of
// a busy sandbox would else wake each of its followers for each of its events, which takes
// the processor from others. An event after a silence is told at once.
const batchPause = 50 * time.Millisecond

// lastOf is the place of the last event of the kinds that are wanted, -1 for none.
func lastOf(events []Told, kinds []string) int {
	for i, e := range slices.Backward(events) {
		if kindIn(e.Kind, kinds) {
			return i
		}
	}
	return -1
}

func (h *Events) follow(ctx context.Context, id string, after int64, kinds []string, yield func(Told) bool) error {
	if err := checkKinds(kinds); err != nil {
		return err
	}
	b, err := h.scope.FindHistory(ctx, id)
	if err != nil {
		return err
	}
	// Watched before anything is read: what is committed after a read is told.
	more, stop := h.store.WatchEvents(b.UID)
	defer stop()
	tail, leave := h.tails.enter(b.UID)
	defer leave()
	if h.watch != nil {
		defer h.watch(b.UID, func(kind string) bool { return kindIn(kind, kinds) })()
	}
	// The end of a sandbox is committed together with its event, and so is that of a
	// command: a read that begins after all of them were seen has every event.
	look, over := true, false
	var deadline, told time.Time // for commands whose sandbox has ended; of the newest batch
	for {
		events, read, err := h.next(ctx, tail, b.UID, after, over)
		if err != nil {
			if errors.Is(err, errs.Unready) && gate.Sleep(ctx, gate.RetryLast) {
				continue // a reader outlives an absence of the database
			}
			return err
		}
		release, err := h.budget.HoldList(ctx, bytesOf(events))
		read()
		if err != nil {
			return err
		}
		left := false
		last := lastOf(events, kinds)
		for i, e := range events {
			after = e.Cursor
			look = look || e.Kind == event.SandboxDestroyed || e.Kind == event.SandboxFailed
			e.More = i < last
			if left = kindIn(e.Kind, kinds) && !yield(e); left {
				break
			}
		}
		release()
		var again <-chan time.Time
		switch {
		case left:
			return nil
		case len(events) > 0: // a page may be short because its events are long
			told = time.Now()
			continue
		case over:
			return nil
		case look:
			var gone bool
			gone, over, err = h.ended(ctx, b.UID)
			if errors.Is(err, errs.Unready) && gate.Sleep(ctx, gate.RetryLast) {
				continue
			}
			if err != nil {
				return err
			}
			if over {
				continue
			}
			if look = gone; gone {
				if deadline.IsZero() {
					deadline = time.Now().Add(h.endsTime)
				} else if time.Now().After(deadline) {
					return errs.E(errs.Unavailable, "the ends of some commands are not known yet").RetryAfter(time.Second)
				}
				again = time.After(gate.RetryLast)
			}
		}
		select {
		case <-more:
			if !gate.Sleep(ctx, batchPause-time.Since(told)) {
				return ctx.Err()
			}
		case <-again:
		case <-ctx.Done():
			return ctx.Err()
		case <-h.gate.Ended():
			return gate.ErrShuttingDown()
		}
	}
}

// ended reports whether a sandbox has ended, and whether all of its commands have as
// far as the store knows: those that a destroy kills end after it.
func (h *Events) ended(ctx context.Context, box sandbox.UID) (gone, all bool, err error) {
	b, err := h.store.SandboxByUID(ctx, box)
	if errors.Is(err, errs.NotFound) {
		return true, true, nil
	}
	if err != nil || b.State.Live() {
		return false, false, err
	}
	left, err := h.store.Execs(ctx, box, store.ExecQuery{Unfinished: true, Limit: 1, Brief: true})
	return true, err == nil && len(left) == 0, err
}
