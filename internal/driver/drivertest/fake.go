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

	"github.com/cubbyhq/cubby/internal/capability"
	"github.com/cubbyhq/cubby/internal/channel"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/driver/agent"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Fake is a driver without isolation, for the tests of what stands above
// drivers. The guest of its sandboxes is the real agent as a library, in the
// test's own process, so commands, files, terminals and ports work as they do
// in a sandbox; /workspace and the home are the sandbox's disk, every other
// path is the host's. Nothing needs root.
//
// It is a Sleeper, and a Snapshotter of a kind. What sleeps stands still for
// nobody but its host: its agent and its commands cannot be reached, and go on
// unreached; nor does anything stand still for a snapshot. What is restored has
// the files and the identity of its parent, but an agent of its own, which runs
// nothing: a process of the test cannot be copied.
//
// [Faulty] makes it fail.
type Fake struct {
	host *host

	mu   sync.Mutex
	held map[sandbox.UID]*channel.Listener // what this "daemon" listens on; guarded by mu
}

var (
	_ driver.Driver      = (*Fake)(nil)
	_ driver.Sleeper     = (*Fake)(nil)
	_ driver.Snapshotter = (*Fake)(nil)
)

// host is the machine below one or more Fakes.
type host struct {
	dir string   // short: UNIX socket paths are
	env []string // of everything that runs, below the sandbox's own

	mu        sync.Mutex
	boxes     map[sandbox.UID]*fakeBox     // guarded by mu
	snapshots map[sandbox.UID]fakeSnapshot // guarded by mu
}

// NewFake returns a Fake on a machine of its own, which ends with the test.
func NewFake(t testing.TB) *Fake {
	t.Helper()
	dir, err := os.MkdirTemp("", "fake")
	if err != nil {
		t.Fatal(err)
	}
	h := &host{dir: dir, env: []string{"PYTHONDONTWRITEBYTECODE=1"}, boxes: make(map[sandbox.UID]*fakeBox), snapshots: make(map[sandbox.UID]fakeSnapshot)}
	f := &Fake{host: h}
	t.Cleanup(func() {
		h.end()
		_ = f.Close()
		_ = os.RemoveAll(dir)
	})
	return f
}

// Restart returns a second Fake on the same machine, as a restarted daemon has
// it: sandboxes go on, nothing is adopted. What the first one
// held is closed, as when it was killed.
func (f *Fake) Restart(t testing.TB) *Fake {
	_ = f.Close()
	next := &Fake{host: f.host}
	t.Cleanup(func() { _ = next.Close() })
	return next
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

type fakeHandle struct {
	Version int         `json:"v"`
	UID     sandbox.UID `json:"uid"`
	ID      string      `json:"id,omitempty"`
	Env     []string    `json:"env,omitempty"`
}

// handleOf is the handle of a sandbox with an identity.
func handleOf(uid sandbox.UID, is driver.Identity) (driver.Handle, error) {
	return json.Marshal(fakeHandle{Version: 1, UID: uid, ID: is.ID, Env: is.Env})
}

func parse(h driver.Handle) (sandbox.UID, driver.Identity, error) {
	var n fakeHandle
	if err := json.Unmarshal(h, &n); err != nil || n.Version != 1 {
		return "", driver.Identity{}, errs.E(errs.Invalid, "malformed handle").Because(err)
	}
	return n.UID, driver.Identity{ID: n.ID, Env: n.Env}, nil
}

func uidOf(h driver.Handle) (sandbox.UID, error) {
	uid, _, err := parse(h)
	return uid, err
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

// Name implements driver.Driver.
func (f *Fake) Name() string { return "fake" }

// Capabilities implements driver.Driver.
func (f *Fake) Capabilities() driver.Capabilities {
	return driver.Capabilities{Isolations: []driver.IsolationSupport{
		{Isolation: sandbox.GVisor, Detail: "none: a test's fake"},
		{Isolation: sandbox.Container, Detail: "none: a test's fake"},
	}}
}

// Create implements driver.Driver.
func (f *Fake) Create(ctx context.Context, spec driver.Spec) (driver.Handle, error) {
	if err := errors.Join(ctx.Err(), spec.Validate()); err != nil {
		return nil, err
	}
	f.host.mu.Lock()
	defer f.host.mu.Unlock()
	if f.host.boxes[spec.UID] != nil {
		return nil, errs.E(errs.Conflict, "sandbox exists already")
	}
	root := driver.VolumeDir(spec.Volumes, driver.VolumeRoot)
	if err := errors.Join(os.RemoveAll(root), os.MkdirAll(root, 0o700)); err != nil {
		return nil, err
	}
	return f.host.add(spec)
}

// add takes a sandbox in. The caller holds the lock.
func (h *host) add(spec driver.Spec) (driver.Handle, error) {
	h.boxes[spec.UID] = &fakeBox{spec: spec, env: h.env, socket: filepath.Join(h.dir, string(spec.UID))}
	return handleOf(spec.UID, spec.Identity)
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

// of returns the sandbox of a handle, and nil when it is gone.
func (f *Fake) of(ctx context.Context, h driver.Handle) (*fakeBox, error) {
	uid, err := uidOf(h)
	if err := errors.Join(err, ctx.Err()); err != nil {
		return nil, err
	}
	return f.host.box(uid), nil
}

// in is of for what has to be there.
func (f *Fake) in(ctx context.Context, h driver.Handle) (*fakeBox, error) {
	b, err := f.of(ctx, h)
	if err == nil && b == nil {
		err = errs.E(errs.NotFound, "no such sandbox")
	}
	return b, err
}

// Start implements driver.Driver.
func (f *Fake) Start(ctx context.Context, h driver.Handle) error {
	b, err := f.in(ctx, h)
	if err != nil {
		return err
	}
	if b.status().Phase == driver.PhaseAsleep {
		b.end(driver.Death{})
	}
	_, is, err := parse(h)
	if err != nil {
		return err
	}
	if err := b.start(is); err != nil {
		return err
	}
	l, err := f.listen(b)
	if err == nil {
		err = l.Wait(ctx)
	}
	if err != nil {
		f.drop(b.spec.UID)
		b.end(driver.Death{})
	}
	return err
}

// Identify implements driver.Driver. Its sandboxes have the host's name, and no
// /etc of their own.
func (f *Fake) Identify(ctx context.Context, h driver.Handle, is driver.Identity) (driver.Identified, error) {
	uid, was, err := parse(h)
	if err := errors.Join(err, is.Validate()); err != nil {
		return driver.Identified{}, err
	}
	if is.ID == "" {
		return driver.Identified{}, errs.E(errs.Invalid, "an identity has an id")
	}
	l, err := f.reach(ctx, h)
	if err != nil {
		return driver.Identified{}, err
	}
	if _, err := agent.New(l.Dial, new(capability.Known)).Identify(ctx, was.ID, is); err != nil {
		return driver.Identified{}, err
	}
	h, err = handleOf(uid, is)
	return driver.Identified{Handle: h}, err
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
	b, err := f.of(ctx, h)
	if err != nil || b == nil {
		return err
	}
	b.stop(ctx, grace)
	f.drop(b.spec.UID)
	return nil
}

// Destroy implements driver.Driver.
func (f *Fake) Destroy(ctx context.Context, h driver.Handle) error {
	uid, err := uidOf(h)
	if err != nil {
		return err
	}
	return f.Sweep(ctx, uid)
}

// Inspect implements driver.Driver.
func (f *Fake) Inspect(ctx context.Context, h driver.Handle) (driver.Status, error) {
	b, err := f.of(ctx, h)
	if err != nil {
		return driver.Status{}, err
	}
	if b == nil {
		return driver.Status{Phase: driver.PhaseGone}, nil
	}
	return b.status(), nil
}

// Wait implements driver.Driver.
func (f *Fake) Wait(ctx context.Context, h driver.Handle) (driver.Death, error) {
	b, err := f.of(ctx, h)
	if err != nil || b == nil {
		return driver.Death{}, err
	}
	return b.wait(ctx)
}

// Adopt implements driver.Driver.
func (f *Fake) Adopt(ctx context.Context, h driver.Handle) error {
	b, err := f.in(ctx, h)
	if err != nil {
		return err
	}
	if b.status().Phase != driver.PhaseRunning {
		return errs.E(errs.WrongState, "sandbox is not running")
	}
	_, err = f.listen(b)
	return err
}

// List implements driver.Driver.
func (f *Fake) List(ctx context.Context) (found []driver.Found, err error) {
	f.host.mu.Lock()
	defer f.host.mu.Unlock()
	for _, uid := range slices.Sorted(maps.Keys(f.host.boxes)) {
		found = append(found, driver.Found{UID: uid, Status: f.host.boxes[uid].status()})
	}
	return found, ctx.Err()
}

// Sweep implements driver.Driver.
func (f *Fake) Sweep(ctx context.Context, uid sandbox.UID) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	f.host.forget(uid)
	f.drop(uid)
	return nil
}

// DialGuest implements driver.Driver.
func (f *Fake) DialGuest(ctx context.Context, h driver.Handle) (net.Conn, error) {
	l, err := f.reach(ctx, h)
	if err != nil {
		return nil, err
	}
	return l.Dial(ctx)
}

// AcceptEgress implements driver.Driver.
func (f *Fake) AcceptEgress(ctx context.Context, h driver.Handle) (net.Conn, sandbox.Door, error) {
	l, err := f.reach(ctx, h)
	if err != nil {
		return nil, "", err
	}
	return l.AcceptEgress(ctx)
}

// reach returns what this Fake holds of a sandbox's channel.
func (f *Fake) reach(ctx context.Context, h driver.Handle) (*channel.Listener, error) {
	uid, err := uidOf(h)
	if err := errors.Join(err, ctx.Err()); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.held[uid]
	if l == nil {
		return nil, errs.E(errs.Unavailable, "sandbox is not running")
	}
	return l, nil
}

// Stats implements driver.Driver. The numbers are made up and constant.
func (f *Fake) Stats(ctx context.Context, h driver.Handle) (driver.Stats, error) {
	b, err := f.of(ctx, h)
	if err != nil {
		return driver.Stats{}, err
	}
	if b == nil || b.status().Phase != driver.PhaseRunning {
		return driver.Stats{}, errs.E(errs.WrongState, "sandbox is not running")
	}
	return driver.Stats{MemoryBytes: 10 << 20, CPUTime: time.Millisecond, PIDs: 1}, nil
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
