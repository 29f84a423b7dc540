// Package ports notes in the histories of sandboxes which ports open and close. It
// looks while somebody is interested, and once after a command has ended: an idle
// sandbox is never polled. What opens and closes between two looks is missed. A look
// wakes nothing and is no use of the sandbox.
package ports

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

const (
	// settle is from the request of a look to the look: a server listens a moment
	// after its command ran into the background, and who asks meanwhile is served
	// by the same look.
	settle = 250 * time.Millisecond
	// least and most are between two looks while somebody is interested; the longer
	// nothing changes, the longer.
	least = time.Second
	most  = 8 * time.Second
	// lookTime bounds a look, and failures how many in a row are made again that
	// nobody but the end of a command asked for: what it left is news all the same
	// when the host is busy.
	lookTime = 5 * time.Second
	failures = 8

	// What runs inside decides how many ports there are and how often they change:
	// changes of one sandbox are noted at this rate, and later ones with later
	// looks.
	changesPerSecond = 1
	changesAtOnce    = 64
	// maxKnown bounds the open ports of one sandbox that are noted.
	maxKnown = 256
	// maxResting bounds the sandboxes nobody is interested in whose ports are
	// remembered. Those of a forgotten one are noted again as they are seen.
	maxResting = 4096
)

// Config is what a Watch needs; all fields are required.
type Config struct {
	// Look lists the ports of a sandbox that something listens on.
	// errs.WrongState: it does not run; errs.Unsupported: it never tells; another
	// error: they are not known now.
	Look func(context.Context, sandbox.UID) ([]sandbox.Port, error)
	// Note appends to a history.
	Note func(context.Context, sandbox.Event)
	// Spawn runs a goroutine whose context ends with the service. It is false, and
	// nothing runs, when the service has ended.
	Spawn func(func(context.Context)) bool
}

// Watch looks at the ports of sandboxes. Its methods may be called from any
// goroutine, and none of them waits.
type Watch struct {
	cfg Config

	mu    sync.Mutex
	boxes map[sandbox.UID]*box // guarded by mu
}

// box is a sandbox whose ports somebody is or was interested in. All fields are
// guarded by the Watch's mu.
type box struct {
	interested int           // who wants to hear of every change
	wanted     bool          // one more look
	failed     int           // looks in a row
	looking    bool          // a goroutine serves it
	poke       chan struct{} // tells that goroutine of a change of the above
	known      []sandbox.Port
	runs       int // of the sandbox, which have ended; each of them closed its ports
	changes    *rate.Limiter
}

// New returns a Watch of no sandbox.
func New(cfg Config) *Watch { return &Watch{cfg: cfg, boxes: make(map[sandbox.UID]*box)} }

// Follow makes the changes of a sandbox's ports noted until left.
func (w *Watch) Follow(id sandbox.UID) (left func()) {
	w.ask(id, 1)
	return sync.OnceFunc(func() { w.ask(id, -1) })
}

// Ended hears that a command of a sandbox has ended: it may have left a server.
func (w *Watch) Ended(id sandbox.UID) { w.ask(id, 0) }

// ask changes how many are interested, and but for those who leave asks for a
// look.
func (w *Watch) ask(id sandbox.UID, interested int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := w.boxes[id]
	if b == nil {
		b = &box{poke: make(chan struct{}, 1), changes: rate.NewLimiter(changesPerSecond, changesAtOnce)}
		w.bound()
		w.boxes[id] = b
	}
	b.interested += interested
	b.wanted = b.wanted || interested >= 0
	select {
	case b.poke <- struct{}{}:
	default:
	}
	if !b.looking && b.wanted {
		b.looking = w.cfg.Spawn(func(ctx context.Context) { w.serve(ctx, id, b) })
	}
}

// bound forgets a sandbox that nobody is interested in when there are too many.
// The caller holds mu.
func (w *Watch) bound() {
	if len(w.boxes) < maxResting {
		return
	}
	for id, b := range w.boxes {
		if !b.looking && b.interested == 0 {
			delete(w.boxes, id)
			return
		}
	}
}

// Stopped hears that nothing of a sandbox's run is left. Its ports are closed, of
// which the history has the sandbox's own end. A sleep is none.
func (w *Watch) Stopped(id sandbox.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := w.boxes[id]
	if b == nil {
		return
	}
	b.known, b.runs = nil, b.runs+1
	if !b.looking && b.interested == 0 {
		delete(w.boxes, id)
	}
}

// serve looks until nobody is interested any more.
func (w *Watch) serve(ctx context.Context, id sandbox.UID, b *box) {
	pause := least
	for sleep(ctx, settle) {
		if w.look(ctx, id, b) {
			pause = least
		} else {
			pause = min(2*pause, most)
		}
		if !sleep(ctx, least-settle) || !w.next(ctx, id, b, pause-least) {
			return
		}
	}
}

// next waits until another look is due. It is false when there is to be none: the
// next who asks begins anew.
func (w *Watch) next(ctx context.Context, id sandbox.UID, b *box, pause time.Duration) bool {
	t := time.NewTimer(pause)
	defer t.Stop()
	for {
		if due, over := w.due(id, b); due || over {
			return due
		}
		select {
		case <-t.C:
			return true
		case <-b.poke:
		case <-ctx.Done():
			return false
		}
	}
}

// due reports whether somebody has asked for a look, or everybody has left.
func (w *Watch) due(id sandbox.UID, b *box) (due, over bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if b.wanted || b.interested > 0 {
		return b.wanted, false
	}
	b.looking = false
	// Deleting a box resets its limiter.
	if len(b.known) == 0 && b.changes.Tokens() >= changesAtOnce {
		delete(w.boxes, id)
	}
	return false, true
}

// look compares what listens with what did at the look before, and notes what has
// changed.
func (w *Watch) look(ctx context.Context, id sandbox.UID, b *box) (changed bool) {
	w.mu.Lock()
	b.wanted = false
	runs := b.runs
	w.mu.Unlock()
	seen, err := w.ports(ctx, id)
	w.mu.Lock()
	if err != nil {
		b.failed++
		final := errors.Is(err, errs.WrongState) || errors.Is(err, errs.Unsupported)
		switch {
		case final || b.failed > failures:
			b.failed = 0
		case b.interested == 0: // those who follow look again by themselves
			b.wanted = true
		}
		w.mu.Unlock()
		return false
	}
	b.failed = 0
	var events []sandbox.Event
	if b.runs == runs {
		events = b.compare(id, seen)
	}
	w.mu.Unlock()
	for _, e := range events {
		w.cfg.Note(ctx, e)
	}
	return len(events) > 0
}

func (w *Watch) ports(ctx context.Context, id sandbox.UID) ([]sandbox.Port, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	return w.cfg.Look(ctx, id)
}

// compare takes over what has changed, as far as it may be noted now, and returns
// the events of that. The caller holds the Watch's mu.
func (b *box) compare(id sandbox.UID, seen []sandbox.Port) (events []sandbox.Event) {
	b.known = slices.DeleteFunc(b.known, func(was sandbox.Port) bool {
		if slices.ContainsFunc(seen, func(is sandbox.Port) bool { return same(was, is) }) || !b.changes.Allow() {
			return false
		}
		events = append(events, event.New(id, "", event.PortClose{Port: was.Port, Program: was.Program, PID: was.PID}))
		return true
	})
	for _, is := range seen {
		if slices.ContainsFunc(b.known, func(was sandbox.Port) bool { return was.Port == is.Port }) {
			continue
		}
		if len(b.known) == maxKnown || !b.changes.Allow() {
			break
		}
		b.known = append(b.known, is)
		events = append(events, event.New(id, "", event.PortOpen{Port: is.Port, Program: is.Program, PID: is.PID}))
	}
	return events
}

// same reports whether a port has the server that it had, as far as can be told.
func same(was, is sandbox.Port) bool {
	return was.Port == is.Port && (was.PID == is.PID || was.PID == 0 || is.PID == 0)
}

// sleep reports false when ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
