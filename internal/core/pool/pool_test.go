package pool_test

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/core/pool"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/driver/drivertest"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/guest"
	"github.com/cubbyhq/cubby/internal/image"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/storage"
	"github.com/cubbyhq/cubby/internal/storage/local"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a pool on a host with real disks, whose clock and memory are the test's.
type world struct {
	*pool.Pool
	t      *testing.T
	ctx    context.Context
	fake   *drivertest.Fake
	faults *drivertest.Faulty
	disks  *local.Disks
	gate   *gate.Gate
	stop   func()

	mu      sync.Mutex
	now     time.Duration // guarded by mu
	room    pool.Room     // guarded by mu
	digest  string        // "": there is no image; guarded by mu
	pins    map[sandbox.UID]string
	imageAt time.Time // guarded by mu
	pin     error     // guarded by mu
	unpin   error     // guarded by mu
	left    int       // guarded by mu
}

var limits = sandbox.Limits{MemoryBytes: 1 << 30, CPUs: 1, PIDs: 512, DiskBytes: 64 << 20, OpenFiles: 4096}

func kind(n int) pool.Kind {
	return pool.Kind{Image: "base", Isolation: sandbox.GVisor, Limits: limits, User: sandbox.UserSandbox, Count: n}
}

const digest = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func want() pool.Want {
	return pool.Want{Digest: digest, Isolation: sandbox.GVisor, Limits: limits, User: sandbox.UserSandbox}
}

func newWorld(t *testing.T, kinds ...pool.Kind) *world {
	t.Helper()
	return newWorldOf(t, pool.Config{Kinds: kinds})
}

// newWorldOf completes a configuration.
func newWorldOf(t *testing.T, cfg pool.Config) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	fake := drivertest.NewFake(t)
	w := &world{t: t, ctx: ctx, fake: fake, faults: drivertest.NewFaulty(fake), gate: gate.New(), digest: digest, pins: make(map[sandbox.UID]string)}
	dir := t.TempDir()
	var err error
	if w.disks, err = local.New(local.Config{Dir: filepath.Join(dir, "disks"), Plain: true, Reserve: 1}); err != nil {
		t.Fatal(err)
	}
	inner, end := context.WithCancel(context.WithoutCancel(ctx))
	if err := w.gate.Begin(inner); err != nil {
		t.Fatal(err)
	}
	w.gate.Open()
	cfg.Driver, cfg.Disks, cfg.Images, cfg.Gate, cfg.Log, cfg.Uptime = w.faults, w.disks, w, w.gate, slog.New(slog.DiscardHandler), w.uptime
	cfg.Spec = func(k pool.Kind, uid sandbox.UID, img image.Image, disks storage.Mounts) driver.Spec {
		return driver.Spec{
			UID: uid, Isolation: k.Isolation, Limits: k.Limits, Image: driver.Image{Digest: img.Digest, Dir: filepath.Join(dir, "rootfs")},
			Volumes: driver.DiskVolumes(disks.Own.Dir, ""), Identity: driver.Identity{Env: []string{"PATH=/bin:/usr/bin"}},
		}
	}
	cfg.DiskBytes = func(l sandbox.Limits) int64 { return l.DiskBytes }
	cfg.Room = func() pool.Room {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.room
	}
	cfg.Left = func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.left++
	}
	w.Pool = pool.New(cfg)
	w.stop = sync.OnceFunc(func() {
		over, now := context.WithCancel(context.Background())
		now()
		w.Run(over) // removes what waits
		w.gate.End(end)
	})
	t.Cleanup(cancel)
	t.Cleanup(w.stop)
	return w
}

func (w *world) uptime() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *world) pass(d time.Duration) { w.set(func() { w.now += d }) }

func (w *world) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

// Resolve, Pin and Unpin are the image store of a world.
func (w *world) Resolve(_ context.Context, name string) (image.Image, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.digest == "" {
		return image.Image{}, errs.E(errs.NotFound, "no such image: %s", name)
	}
	return image.Image{Name: name, Digest: w.digest, CreatedAt: w.imageAt}, nil
}

func (w *world) Pin(_ context.Context, digest string, owner sandbox.UID) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pin == nil {
		w.pins[owner] = digest
	}
	return w.pin
}

func (w *world) Unpin(_ context.Context, _ string, owner sandbox.UID) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.unpin == nil {
		delete(w.pins, owner)
	}
	return w.unpin
}

// ready counts the members that wait.
func (w *world) ready() (n int) {
	for _, s := range w.Status() {
		n += s.Ready
	}
	return n
}

// has returns what there is on the host: the owners of traces, disks and pins.
func (w *world) has() (uids []sandbox.UID) {
	w.t.Helper()
	found, err := w.fake.List(w.ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, f := range found {
		uids = append(uids, f.UID)
	}
	disks, err := w.disks.List()
	if err != nil {
		w.t.Fatal(err)
	}
	uids = append(uids, disks...)
	w.set(func() {
		for uid := range w.pins {
			uids = append(uids, uid)
		}
	})
	slices.Sort(uids)
	return slices.Compact(uids)
}

// until polls for what happens in the background.
func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	for !ok() {
		select {
		case <-w.ctx.Done():
			w.t.Fatalf("it never came to this: %s", what)
		case <-time.After(time.Millisecond):
		}
	}
}

// taken is a pool of one, and its member, which somebody has.
func taken(t *testing.T) (*world, *pool.Member) {
	t.Helper()
	w := newWorld(t, kind(1))
	w.Turn(w.ctx)
	m := w.Take(w.ctx, want())
	if m == nil {
		t.Fatal("no member fits")
	}
	return w, m
}

// nothingLeft fails when the host has anything of a member.
func (w *world) nothingLeft() {
	w.t.Helper()
	if got := w.has(); len(got) != 0 {
		w.t.Errorf("the host has traces, disks and pins of %v", got)
	}
}

func (w *world) wantReady(n int) {
	w.t.Helper()
	if got := w.ready(); got != n {
		w.t.Errorf("%d members are ready, want %d", got, n)
	}
}

// TestFillsOneAtATime: a turn makes one member, and says when there is nothing
// more to do.
func TestFillsOneAtATime(t *testing.T) {
	other := kind(1)
	other.Isolation = sandbox.Container
	w := newWorld(t, kind(2), other)
	for n := 1; n <= 3; n++ {
		if again := w.Turn(w.ctx); again != 0 {
			t.Errorf("turn %d: again after %s, want at once", n, again)
		}
		w.wantReady(n)
	}
	if again := w.Turn(w.ctx); again <= 0 {
		t.Errorf("a full pool wants its next turn after %s", again)
	}
	w.wantReady(3)
	if got := w.has(); len(got) != 3 {
		t.Errorf("the host has traces, disks and pins of %v, want 3", got)
	}
	for _, uid := range w.has() {
		if !w.Holds(uid) {
			t.Errorf("member %s is not held", uid)
		}
	}
	w.stop()
	w.nothingLeft()
}

// TestDoesNotFillBesideACreate: and not in the moment after one.
func TestDoesNotFillBesideACreate(t *testing.T) {
	w := newWorld(t, kind(1))
	first, second := w.Creating(), w.Creating()
	w.Turn(w.ctx)
	first()
	w.Turn(w.ctx)
	w.wantReady(0)
	second()
	again := w.Turn(w.ctx)
	w.wantReady(0)
	w.pass(again)
	w.Turn(w.ctx)
	w.wantReady(1)
}

// TestATakenMemberIsReplaced: and stays held until it has a row.
func TestATakenMemberIsReplaced(t *testing.T) {
	w, m := taken(t)
	if w.Take(w.ctx, want()) != nil {
		t.Error("a member was given twice")
	}
	w.Turn(w.ctx)
	w.wantReady(1)
	if !w.Holds(m.UID) {
		t.Error("a member that was taken is not held")
	}
	w.Release(m)
	if w.Holds(m.UID) || w.Claimed() != 1 {
		t.Errorf("after its release the member is held: %t, and %d were claimed, want 1", w.Holds(m.UID), w.Claimed())
	}
	if err := w.fake.Destroy(w.ctx, m.Handle); err != nil {
		t.Fatal(err)
	}
}

// TestAMemberHasRunACommand of which nothing is left.
func TestAMemberHasRunACommand(t *testing.T) {
	w := newWorld(t, kind(1))
	var dialled sync.Once
	ran := false
	w.faults.SetBefore(func(_ context.Context, method string, _ sandbox.UID) {
		if method == "DialGuest" {
			dialled.Do(func() { ran = true })
		}
	})
	w.Turn(w.ctx)
	m := w.Take(w.ctx, want())
	if m == nil || !ran {
		t.Fatalf("took %v; its agent was asked = %t", m, ran)
	}
	agent := guest.New(func(ctx context.Context) (net.Conn, error) { return w.fake.DialGuest(ctx, m.Handle) })
	defer agent.Close()
	if execs, err := agent.List(w.ctx); err != nil || len(execs) > 0 {
		t.Errorf("the agent of a member knows %v, %v", execs, err)
	}
	w.Discard(m)
}

// TestAReturnedMemberWaitsAgain: one that is given back after the end is removed.
func TestAReturnedMemberWaitsAgain(t *testing.T) {
	w, m := taken(t)
	w.Return(m)
	w.wantReady(1)
	if again := w.Take(w.ctx, want()); again != m {
		t.Fatalf("took %v, want the one that was returned", again)
	}
	w.stop()
	if !w.Holds(m.UID) {
		t.Error("the end of the pool took a member from who has it")
	}
	w.Return(m)
	w.nothingLeft()
	if w.Holds(m.UID) {
		t.Error("what was returned after the end is held")
	}
}

func TestADiscardedMemberGoes(t *testing.T) {
	w, m := taken(t)
	w.Discard(m)
	w.until("the member is gone", func() bool { return !w.Holds(m.UID) })
	w.nothingLeft()
}

// TestAMemberThatDiesIsReplaced: later, so that one that always dies takes no
// processor for itself.
func TestAMemberThatDiesIsReplaced(t *testing.T) {
	w := newWorld(t, kind(1))
	w.Turn(w.ctx)
	died := w.has()[0]
	w.fake.Kill(died, driver.Death{Cause: driver.DeathSignal, Signal: "SIGKILL"})
	w.until("the member is gone", func() bool { return !w.Holds(died) })
	w.nothingLeft()
	if w.Take(w.ctx, want()) != nil {
		t.Error("a dead member was given to somebody")
	}
	again := w.Turn(w.ctx)
	w.wantReady(0)
	w.pass(again)
	w.Turn(w.ctx)
	w.wantReady(1)
}

// TestAnotherImageReplacesTheMembers: and those of before fit no create.
func TestAnotherImageReplacesTheMembers(t *testing.T) {
	const renewed = "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210"
	w := newWorld(t, kind(1))
	w.Turn(w.ctx)
	old := w.has()[0]
	w.set(func() { w.digest = renewed })
	now := want()
	now.Digest = renewed
	if w.Take(w.ctx, now) != nil {
		t.Error("a member of the old image was taken for the new one")
	}
	w.Turn(w.ctx)
	w.until("the old member is gone", func() bool { return !w.Holds(old) })
	w.wantReady(1)
	if m := w.Take(w.ctx, now); m == nil {
		t.Error("no member of the new image")
	} else {
		w.Return(m)
	}
}

// TestMemoryPressure: with little room nothing is made, with none all is given up, and
// for a while the pool stays empty.
func TestMemoryPressure(t *testing.T) {
	w := newWorld(t, kind(2))
	w.Turn(w.ctx)
	w.set(func() { w.room = pool.RoomForThese })
	w.Turn(w.ctx)
	w.wantReady(1)
	w.set(func() { w.room = pool.NoRoom })
	w.Turn(w.ctx)
	w.wantReady(0)
	w.until("the members are gone", func() bool { return len(w.has()) == 0 })
	w.set(func() { w.room = pool.RoomForMore })
	again := w.Turn(w.ctx)
	w.wantReady(0)
	for range 3 {
		w.pass(again)
		again = w.Turn(w.ctx)
	}
	w.wantReady(1)
}

// TestGiveUpAlsoEndsAFill: what is being made counts, and leaves nothing.
func TestGiveUpAlsoEndsAFill(t *testing.T) {
	w := newWorld(t, kind(2))
	begun, starts := make(chan struct{}), 0
	w.faults.Before = func(ctx context.Context, method string, _ sandbox.UID) {
		if method != "Start" {
			return
		}
		if starts++; starts == 2 {
			close(begun)
			<-ctx.Done()
		}
	}
	w.Turn(w.ctx)
	var fill sync.WaitGroup
	fill.Go(func() { w.Turn(w.ctx) })
	<-begun
	if n := w.GiveUp(1); n != 1 {
		t.Errorf("gave up %d, want the one that is being made", n)
	}
	fill.Wait()
	w.wantReady(1)
	if n := w.GiveUp(5); n != 1 {
		t.Errorf("gave up %d, want the one that waited", n)
	}
	w.until("nothing is left", func() bool { return len(w.has()) == 0 })
	if n := w.GiveUp(1); n != 0 {
		t.Errorf("gave up %d of an empty pool", n)
	}
}
