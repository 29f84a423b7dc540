package drivertest

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/channel"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Fake is a driver without isolation, for the tests of what stands above
// drivers. The guest of its sandboxes is the real agent as a library, in the
// test's own process, so commands, files, terminals and ports work as they do
// in a sandbox; /workspace and the home are the sandbox's disk, every other
// path is the host's. Nothing needs root.
//
// Every method can be made to fail: see Fail, FailAfter and Before.
type Fake struct {
	// Fail makes a method return the error before it does anything. The keys
	// are the names of the methods: "Create", "Start", … Set it before the
	// Fake is used, or change it with [Fake.SetFail].
	Fail map[string]error
	// FailAfter makes a method do all its work and return the error then, as
	// when the daemon dies between an act and its note of it.
	FailAfter map[string]error
	// Before is called at the start of every method that takes a context; it
	// may block.
	Before func(ctx context.Context, method string, uid sandbox.UID)

	host *host

	mu   sync.Mutex                        // also guards the maps above
	held map[sandbox.UID]*channel.Listener // what this "daemon" listens on; guarded by mu
}

var _ driver.Driver = (*Fake)(nil)

// host is the machine below one or more Fakes.
type host struct {
	dir string // short: UNIX socket paths are

	mu    sync.Mutex
	boxes map[sandbox.UID]*fakeBox // guarded by mu
}

// NewFake returns a Fake on a machine of its own, which ends with the test.
func NewFake(t testing.TB) *Fake {
	t.Helper()
	dir, err := os.MkdirTemp("", "fake")
	if err != nil {
		t.Fatal(err)
	}
	h := &host{dir: dir, boxes: make(map[sandbox.UID]*fakeBox)}
	f := &Fake{host: h}
	t.Cleanup(func() {
		h.end()
		_ = f.Close()
		_ = os.RemoveAll(dir)
	})
	return f
}

// Restart returns a second Fake on the same machine, as a restarted daemon has
// it: sandboxes go on, nothing is adopted, no method fails. What the first one
// held is closed, as when it was killed.
func (f *Fake) Restart(t testing.TB) *Fake {
	_ = f.Close()
	next := &Fake{host: f.host}
	t.Cleanup(func() { _ = next.Close() })
	return next
}

// SetFail makes a method fail from now on; a nil err ends that.
func (f *Fake) SetFail(method string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.Fail == nil {
		f.Fail = make(map[string]error)
	}
	f.Fail[method] = err
}

// SetFailAfter makes a method fail after its work from now on; a nil err ends
// that.
func (f *Fake) SetFailAfter(method string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.FailAfter == nil {
		f.FailAfter = make(map[string]error)
	}
	f.FailAfter[method] = err
}

// Kill ends a running sandbox behind the driver's back, and makes Wait report
// death.
func (f *Fake) Kill(uid sandbox.UID, death driver.Death) {
	if b := f.host.box(uid); b != nil {
		b.end(death)
	}
}

// EgressAddr is where the proxy port of a running sandbox is: all Fakes share
// the loopback interface of the host, so it is not the usual one.
func (f *Fake) EgressAddr(uid sandbox.UID) string {
	b := f.host.box(uid)
	if b == nil {
		return ""
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.egress
}

// call carries out one method with what was asked to go wrong.
func (f *Fake) call(ctx context.Context, method string, uid sandbox.UID, work func() error) error {
	if f.Before != nil {
		f.Before(ctx, method, uid)
	}
	f.mu.Lock()
	before, after := f.Fail[method], f.FailAfter[method]
	f.mu.Unlock()
	if before != nil {
		return before
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := work(); err != nil {
		return err
	}
	return after
}

type fakeHandle struct {
	Version int         `json:"v"`
	UID     sandbox.UID `json:"uid"`
}

func uidOf(h driver.Handle) (sandbox.UID, error) {
	var n fakeHandle
	if err := json.Unmarshal(h, &n); err != nil || n.Version != 1 {
		return "", errs.E(errs.Invalid, "malformed handle").Because(err)
	}
	return n.UID, nil
}

func (h *host) box(uid sandbox.UID) *fakeBox {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.boxes[uid]
}

func (h *host) end() {
	h.mu.Lock()
	boxes := h.boxes
	h.boxes = make(map[sandbox.UID]*fakeBox)
	h.mu.Unlock()
	for _, b := range boxes {
		b.end(driver.Death{})
	}
}

// Capabilities implements driver.Driver.
func (f *Fake) Capabilities() driver.Capabilities {
	return driver.Capabilities{Isolations: []driver.IsolationSupport{
		{Isolation: sandbox.GVisor, Detail: "none: a test's fake"},
		{Isolation: sandbox.Container, Detail: "none: a test's fake"},
	}}
}

// Create implements driver.Driver.
func (f *Fake) Create(ctx context.Context, spec driver.Spec) (driver.Handle, error) {
	err := f.call(ctx, "Create", spec.UID, func() error {
		if err := spec.Validate(); err != nil {
			return err
		}
		f.host.mu.Lock()
		defer f.host.mu.Unlock()
		if f.host.boxes[spec.UID] != nil {
			return errs.E(errs.Conflict, "sandbox exists already")
		}
		root := driver.VolumeDir(spec.Volumes, driver.VolumeRoot)
		if err := errors.Join(os.RemoveAll(root), os.MkdirAll(root, 0o700)); err != nil {
			return err
		}
		f.host.boxes[spec.UID] = &fakeBox{spec: spec, socket: filepath.Join(f.host.dir, string(spec.UID))}
		return nil
	})
	if err != nil {
		if f.afterFailure("Create", err) {
			// On error nothing is left behind; what a daemon that died in
			// the middle would leave is what Restart and FailAfter of the
			// step behind it are for.
			f.host.forget(spec.UID)
		}
		return nil, err
	}
	return json.Marshal(fakeHandle{Version: 1, UID: spec.UID})
}

func (f *Fake) afterFailure(method string, err error) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.FailAfter[method] != nil && errors.Is(err, f.FailAfter[method])
}

func (h *host) forget(uid sandbox.UID) {
	h.mu.Lock()
	b := h.boxes[uid]
	delete(h.boxes, uid)
	h.mu.Unlock()
	if b != nil {
		b.end(driver.Death{})
		_ = os.Remove(b.socket)
	}
}

// Start implements driver.Driver.
func (f *Fake) Start(ctx context.Context, h driver.Handle) error {
	uid, err := uidOf(h)
	if err != nil {
		return err
	}
	return f.call(ctx, "Start", uid, func() error {
		b := f.host.box(uid)
		if b == nil {
			return errs.E(errs.NotFound, "no such sandbox")
		}
		if err := b.start(); err != nil {
			return err
		}
		l, err := f.listen(b)
		if err != nil {
			b.end(driver.Death{})
			return err
		}
		if err := l.Wait(ctx); err != nil {
			f.drop(uid)
			b.end(driver.Death{})
			return err
		}
		return nil
	})
}

// listen makes a running sandbox reachable from this Fake.
func (f *Fake) listen(b *fakeBox) (*channel.Listener, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	uid := b.spec.UID
	secret := b.running()
	if l := f.held[uid]; l != nil {
		if secret == b.heldSecret(l) {
			return l, nil
		}
		_ = l.Close()
	}
	l, err := channel.Listen(b.socket, secret, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	if f.held == nil {
		f.held = make(map[sandbox.UID]*channel.Listener)
	}
	f.held[uid] = l
	b.hold(l, secret)
	return l, nil
}

func (f *Fake) drop(uid sandbox.UID) {
	f.mu.Lock()
	l := f.held[uid]
	delete(f.held, uid)
	f.mu.Unlock()
	if l != nil {
		_ = l.Close()
	}
}

// Stop implements driver.Driver.
func (f *Fake) Stop(ctx context.Context, h driver.Handle, grace time.Duration) error {
	uid, err := uidOf(h)
	if err != nil {
		return err
	}
	return f.call(ctx, "Stop", uid, func() error {
		if b := f.host.box(uid); b != nil {
			b.stop(ctx, grace)
		}
		f.drop(uid)
		return nil
	})
}

// Destroy implements driver.Driver.
func (f *Fake) Destroy(ctx context.Context, h driver.Handle) error {
	uid, err := uidOf(h)
	if err != nil {
		return err
	}
	return f.call(ctx, "Destroy", uid, func() error {
		f.host.forget(uid)
		f.drop(uid)
		return nil
	})
}

// Inspect implements driver.Driver.
func (f *Fake) Inspect(ctx context.Context, h driver.Handle) (s driver.Status, err error) {
	uid, err := uidOf(h)
	if err != nil {
		return s, err
	}
	return s, f.call(ctx, "Inspect", uid, func() error {
		s = driver.Status{Phase: driver.PhaseGone}
		if b := f.host.box(uid); b != nil {
			s = b.status()
		}
		return nil
	})
}

// Wait implements driver.Driver.
func (f *Fake) Wait(ctx context.Context, h driver.Handle) (death driver.Death, err error) {
	uid, err := uidOf(h)
	if err != nil {
		return death, err
	}
	return death, f.call(ctx, "Wait", uid, func() error {
		b := f.host.box(uid)
		if b == nil {
			return nil
		}
		death, err = b.wait(ctx)
		return err
	})
}

// Adopt implements driver.Driver.
func (f *Fake) Adopt(ctx context.Context, h driver.Handle) error {
	uid, err := uidOf(h)
	if err != nil {
		return err
	}
	return f.call(ctx, "Adopt", uid, func() error {
		b := f.host.box(uid)
		if b == nil {
			return errs.E(errs.NotFound, "no such sandbox")
		}
		if b.status().Phase != driver.PhaseRunning {
			return errs.E(errs.WrongState, "sandbox is not running")
		}
		_, err := f.listen(b)
		return err
	})
}

// List implements driver.Driver.
func (f *Fake) List(ctx context.Context) (found []driver.Found, err error) {
	return found, f.call(ctx, "List", "", func() error {
		f.host.mu.Lock()
		defer f.host.mu.Unlock()
		for _, uid := range slices.Sorted(maps.Keys(f.host.boxes)) {
			found = append(found, driver.Found{UID: uid, Status: f.host.boxes[uid].status()})
		}
		return nil
	})
}

// Sweep implements driver.Driver.
func (f *Fake) Sweep(ctx context.Context, uid sandbox.UID) error {
	return f.call(ctx, "Sweep", uid, func() error {
		f.host.forget(uid)
		f.drop(uid)
		return nil
	})
}

// DialGuest implements driver.Driver.
func (f *Fake) DialGuest(ctx context.Context, h driver.Handle) (conn net.Conn, err error) {
	uid, err := uidOf(h)
	if err != nil {
		return nil, err
	}
	return conn, f.call(ctx, "DialGuest", uid, func() error {
		l, err := f.listener(uid)
		if err != nil {
			return err
		}
		conn, err = l.Dial(ctx)
		return err
	})
}

// AcceptEgress implements driver.Driver.
func (f *Fake) AcceptEgress(ctx context.Context, h driver.Handle) (conn net.Conn, door sandbox.Door, err error) {
	uid, err := uidOf(h)
	if err != nil {
		return nil, "", err
	}
	err = f.call(ctx, "AcceptEgress", uid, func() error {
		l, err := f.listener(uid)
		if err != nil {
			return err
		}
		conn, door, err = l.AcceptEgress(ctx)
		return err
	})
	return conn, door, err
}

func (f *Fake) listener(uid sandbox.UID) (*channel.Listener, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.held[uid]
	if l == nil {
		return nil, errs.E(errs.Unavailable, "sandbox is not running")
	}
	return l, nil
}

// Stats implements driver.Driver. The numbers are made up and constant.
func (f *Fake) Stats(ctx context.Context, h driver.Handle) (s driver.Stats, err error) {
	uid, err := uidOf(h)
	if err != nil {
		return s, err
	}
	return s, f.call(ctx, "Stats", uid, func() error {
		b := f.host.box(uid)
		if b == nil || b.status().Phase != driver.PhaseRunning {
			return errs.E(errs.WrongState, "sandbox is not running")
		}
		s = driver.Stats{MemoryBytes: 10 << 20, CPUTime: time.Millisecond, PIDs: 1}
		return nil
	})
}

// Close implements driver.Driver.
func (f *Fake) Close() error {
	f.mu.Lock()
	held := f.held
	f.held = nil
	f.mu.Unlock()
	for _, l := range held {
		_ = l.Close()
	}
	return nil
}
