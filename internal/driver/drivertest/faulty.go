package drivertest

import (
	"context"
	"encoding/json"
	"net"
	"sync"
	"time"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// hook is called at the start of a method.
type hook = func(ctx context.Context, method string, uid sandbox.UID)

// Faulty decorates a driver with what can go wrong: any method can fail before
// or after its work, or block. It has the abilities of what it decorates, and
// makes them fail too. Without faults it is the driver itself.
type Faulty struct {
	// Before is called at the start of every method that takes a context, with
	// the method's name and its sandbox, if it has one; it may block. Set it
	// while nothing is under way.
	Before hook

	next driver.Driver

	mu        sync.Mutex
	meanwhile hook             // guarded by mu
	before    map[string]error // by method; guarded by mu
	after     map[string]error // guarded by mu
}

var (
	_ driver.Driver      = (*Faulty)(nil)
	_ driver.Sleeper     = (*Faulty)(nil)
	_ driver.Snapshotter = (*Faulty)(nil)
	_ driver.OOMReader   = (*Faulty)(nil)
	_ driver.TreeKiller  = (*Faulty)(nil)
)

// NewFaulty decorates a driver. Nothing fails yet.
func NewFaulty(next driver.Driver) *Faulty {
	return &Faulty{next: next, before: make(map[string]error), after: make(map[string]error)}
}

// SetFail makes a method ("Create", "Start", …) return the error before it does
// anything, from now on; a nil err ends that.
func (f *Faulty) SetFail(method string, err error) { f.set(f.before, method, err) }

// SetFailAfter makes a method do all its work and return the error then, as when
// the daemon dies between an act and its note of it; a nil err ends that. What
// returns something to hold returns nothing: a Create, a Snapshot or a
// Restore leaves nothing behind, as the contract wants of one that failed.
func (f *Faulty) SetFailAfter(method string, err error) { f.set(f.after, method, err) }

func (f *Faulty) set(faults map[string]error, method string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	faults[method] = err
}

// SetBefore has what runs already call a function at the start of every method, as
// Before is called.
func (f *Faulty) SetBefore(fn func(ctx context.Context, method string, uid sandbox.UID)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.meanwhile = fn
}

// Unwrap returns the driver without its faults.
func (f *Faulty) Unwrap() driver.Driver { return f.next }

// enter begins a method.
func (f *Faulty) enter(ctx context.Context, method string, uid sandbox.UID) error {
	f.mu.Lock()
	meanwhile := f.meanwhile
	f.mu.Unlock()
	for _, hook := range []hook{f.Before, meanwhile} {
		if hook != nil {
			hook(ctx, method, uid)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.before[method]
}

// leave ends a method whose work is done.
func (f *Faulty) leave(method string, err error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		return err
	}
	return f.after[method]
}

// act is a method that returns nothing.
func (f *Faulty) act(ctx context.Context, method string, uid sandbox.UID, work func() error) error {
	if err := f.enter(ctx, method, uid); err != nil {
		return err
	}
	return f.leave(method, work())
}

// ask is a method that returns something.
func ask[T any](ctx context.Context, f *Faulty, method string, uid sandbox.UID, work func() (T, error)) (T, error) {
	var none T
	if err := f.enter(ctx, method, uid); err != nil {
		return none, err
	}
	got, err := work()
	if err := f.leave(method, err); err != nil {
		return none, err
	}
	return got, nil
}

// named is the sandbox of a handle, which is opaque; the drivers of this
// repository have it in a field of this name.
func named(h driver.Handle) sandbox.UID {
	var n struct {
		UID sandbox.UID `json:"uid"`
	}
	_ = json.Unmarshal(h, &n)
	return n.UID
}

// Name implements driver.Driver.
func (f *Faulty) Name() string { return f.next.Name() }

// Capabilities implements driver.Driver.
func (f *Faulty) Capabilities() driver.Capabilities { return f.next.Capabilities() }

// Create implements driver.Driver.
func (f *Faulty) Create(ctx context.Context, spec driver.Spec) (driver.Handle, error) {
	return ask(ctx, f, "Create", spec.UID, func() (driver.Handle, error) {
		h, err := f.next.Create(ctx, spec)
		if err == nil && f.leave("Create", nil) != nil {
			_ = f.next.Destroy(context.WithoutCancel(ctx), h)
		}
		return h, err
	})
}

// Start implements driver.Driver.
func (f *Faulty) Start(ctx context.Context, h driver.Handle) error {
	return f.act(ctx, "Start", named(h), func() error { return f.next.Start(ctx, h) })
}

// Stop implements driver.Driver.
func (f *Faulty) Stop(ctx context.Context, h driver.Handle, grace time.Duration) error {
	return f.act(ctx, "Stop", named(h), func() error { return f.next.Stop(ctx, h, grace) })
}

// Destroy implements driver.Driver.
func (f *Faulty) Destroy(ctx context.Context, h driver.Handle) error {
	return f.act(ctx, "Destroy", named(h), func() error { return f.next.Destroy(ctx, h) })
}

// Identify implements driver.Driver.
func (f *Faulty) Identify(ctx context.Context, h driver.Handle, is driver.Identity) (driver.Identified, error) {
	return ask(ctx, f, "Identify", named(h), func() (driver.Identified, error) { return f.next.Identify(ctx, h, is) })
}

// Inspect implements driver.Driver.
func (f *Faulty) Inspect(ctx context.Context, h driver.Handle) (driver.Status, error) {
	return ask(ctx, f, "Inspect", named(h), func() (driver.Status, error) { return f.next.Inspect(ctx, h) })
}

// Wait implements driver.Driver.
func (f *Faulty) Wait(ctx context.Context, h driver.Handle) (driver.Death, error) {
	return ask(ctx, f, "Wait", named(h), func() (driver.Death, error) { return f.next.Wait(ctx, h) })
}

// Adopt implements driver.Driver.
func (f *Faulty) Adopt(ctx context.Context, h driver.Handle) error {
	return f.act(ctx, "Adopt", named(h), func() error { return f.next.Adopt(ctx, h) })
}

// List implements driver.Driver.
func (f *Faulty) List(ctx context.Context) ([]driver.Found, error) {
	return ask(ctx, f, "List", "", func() ([]driver.Found, error) { return f.next.List(ctx) })
}

// Sweep implements driver.Driver.
func (f *Faulty) Sweep(ctx context.Context, uid sandbox.UID) error {
	return f.act(ctx, "Sweep", uid, func() error { return f.next.Sweep(ctx, uid) })
}

// DialGuest implements driver.Driver.
func (f *Faulty) DialGuest(ctx context.Context, h driver.Handle) (net.Conn, error) {
	conn, _, err := f.stream(ctx, "DialGuest", h, func() (net.Conn, sandbox.Door, error) {
		conn, err := f.next.DialGuest(ctx, h)
		return conn, "", err
	})
	return conn, err
}

// AcceptEgress implements driver.Driver.
func (f *Faulty) AcceptEgress(ctx context.Context, h driver.Handle) (net.Conn, sandbox.Door, error) {
	return f.stream(ctx, "AcceptEgress", h, func() (net.Conn, sandbox.Door, error) { return f.next.AcceptEgress(ctx, h) })
}

// stream is a method that returns a stream.
func (f *Faulty) stream(ctx context.Context, method string, h driver.Handle, work func() (net.Conn, sandbox.Door, error)) (net.Conn, sandbox.Door, error) {
	if err := f.enter(ctx, method, named(h)); err != nil {
		return nil, "", err
	}
	conn, door, err := work()
	if fault := f.leave(method, err); fault != nil {
		if err == nil {
			_ = conn.Close()
		}
		return nil, "", fault
	}
	return conn, door, nil
}

// Stats implements driver.Driver.
func (f *Faulty) Stats(ctx context.Context, h driver.Handle) (driver.Stats, error) {
	return ask(ctx, f, "Stats", named(h), func() (driver.Stats, error) { return f.next.Stats(ctx, h) })
}

// Close implements driver.Driver.
func (f *Faulty) Close() error { return f.next.Close() }

// able is an ability of what is decorated. Nobody asks for one that it has not:
// see [driver.As].
func able[Ability any](f *Faulty) Ability {
	ability, _ := driver.As[Ability](f.next)
	return ability
}

// CanSleep implements driver.Sleeper.
func (f *Faulty) CanSleep(ctx context.Context, h driver.Handle) error {
	return f.act(ctx, "CanSleep", named(h), func() error { return able[driver.Sleeper](f).CanSleep(ctx, h) })
}

// Sleep implements driver.Sleeper.
func (f *Faulty) Sleep(ctx context.Context, h driver.Handle) error {
	return f.act(ctx, "Sleep", named(h), func() error { return able[driver.Sleeper](f).Sleep(ctx, h) })
}

// Wake implements driver.Sleeper.
func (f *Faulty) Wake(ctx context.Context, h driver.Handle) error {
	return f.act(ctx, "Wake", named(h), func() error { return able[driver.Sleeper](f).Wake(ctx, h) })
}

// Snapshot implements driver.Snapshotter.
func (f *Faulty) Snapshot(ctx context.Context, h driver.Handle, name sandbox.UID, copyFiles func(context.Context) error) (driver.Snapshot, error) {
	return ask(ctx, f, "Snapshot", named(h), func() (driver.Snapshot, error) {
		snapshotter := able[driver.Snapshotter](f)
		kept, err := snapshotter.Snapshot(ctx, h, name, copyFiles)
		if err == nil && f.leave("Snapshot", nil) != nil {
			_ = snapshotter.RemoveSnapshot(context.WithoutCancel(ctx), name)
		}
		return kept, err
	})
}

// Restore implements driver.Snapshotter.
func (f *Faulty) Restore(ctx context.Context, name sandbox.UID, spec driver.Spec) (driver.Handle, error) {
	return ask(ctx, f, "Restore", spec.UID, func() (driver.Handle, error) {
		h, err := able[driver.Snapshotter](f).Restore(ctx, name, spec)
		if err == nil && f.leave("Restore", nil) != nil {
			_ = f.next.Destroy(context.WithoutCancel(ctx), h)
		}
		return h, err
	})
}

// RemoveSnapshot implements driver.Snapshotter.
func (f *Faulty) RemoveSnapshot(ctx context.Context, name sandbox.UID) error {
	return f.act(ctx, "RemoveSnapshot", name, func() error { return able[driver.Snapshotter](f).RemoveSnapshot(ctx, name) })
}

// Snapshots implements driver.Snapshotter.
func (f *Faulty) Snapshots(ctx context.Context) ([]sandbox.UID, error) {
	return ask(ctx, f, "Snapshots", "", func() ([]sandbox.UID, error) { return able[driver.Snapshotter](f).Snapshots(ctx) })
}

// OOMKills implements driver.OOMReader.
func (f *Faulty) OOMKills(ctx context.Context, h driver.Handle, since time.Time) ([]driver.OOMKill, error) {
	return ask(ctx, f, "OOMKills", named(h), func() ([]driver.OOMKill, error) {
		return able[driver.OOMReader](f).OOMKills(ctx, h, since)
	})
}

// KillOthers implements driver.TreeKiller.
func (f *Faulty) KillOthers(ctx context.Context, h driver.Handle, spare []int64) error {
	return f.act(ctx, "KillOthers", named(h), func() error { return able[driver.TreeKiller](f).KillOthers(ctx, h, spare) })
}
