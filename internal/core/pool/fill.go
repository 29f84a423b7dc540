package pool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/guest"
	"github.com/cubbyhq/cubby/internal/image"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/storage"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

const (
	// quietTime is how long no create was under way before the pool is filled:
	// what was just made has something to do first.
	quietTime = 250 * time.Millisecond
	// giveUpTime is how long the pool stays as it is after the host was short of
	// memory.
	giveUpTime = 30 * time.Second
	checkEvery = 10 * time.Second
	fillTime   = 2 * time.Minute
	// Pauses after failures.
	firstPause = 5 * time.Second
	lastPause  = 5 * time.Minute
	// lasting is how long a kind fails until that is a problem.
	lasting = time.Minute
)

// fills is how the attempts to make members of a kind went.
type fills struct {
	failures int           // in a row
	since    time.Duration // of the first of them, by Uptime
	next     time.Duration // when it is tried again
	err      error
}

// Run keeps the pool filled until ctx ends, and then removes all members.
func (p *Pool) Run(ctx context.Context) {
	defer p.close()
	for ctx.Err() == nil {
		t := time.NewTimer(p.Turn(ctx))
		select {
		case <-ctx.Done():
		case <-p.kick:
		case <-t.C:
		}
		t.Stop()
	}
}

// Turn does the next thing that is to be done: it removes members whose image has
// changed, and makes one that is missing. It returns when to call it again.
func (p *Pool) Turn(ctx context.Context) (again time.Duration) {
	p.forget()
	p.mu.Lock()
	kinds := p.kinds()
	p.mu.Unlock()
	if len(kinds) == 0 {
		return checkEvery
	}
	room := p.cfg.Room()
	if room == NoRoom {
		if n := p.GiveUp(len(kinds) * maxMembers); n > 0 {
			p.cfg.Log.Info("gave up sandboxes that were kept ready, because memory is short", "sandboxes", n)
		}
	}
	images := p.resolve(ctx, kinds)
	kind, again := p.next(kinds)
	if kind < 0 || room != RoomForMore || images[max(kind, 0)].Digest == "" || ctx.Err() != nil {
		return cmp.Or(again, checkEvery)
	}
	img := images[kind]
	p.fill(ctx, &Member{UID: sandbox.NewUID(), kind: kind, of: kinds[kind], Digest: img.Digest, imageAt: img.CreatedAt, stop: func() {}}, img)
	return 0
}

// maxMembers is more than the pool has of a kind.
const maxMembers = 1000

// isOf reports whether a member was made of an image.
func (m *Member) isOf(img image.Image) bool {
	return m.Digest == img.Digest && m.imageAt.Equal(img.CreatedAt)
}

// resolve finds the images of all kinds, and removes the members that were made of
// another. A kind whose image cannot be found has the zero one, and has failed.
func (p *Pool) resolve(ctx context.Context, kinds []Kind) []image.Image {
	images := make([]image.Image, len(kinds))
	for i, k := range kinds {
		img, err := p.cfg.Images.Resolve(ctx, k.Image)
		if ctx.Err() != nil {
			return images
		}
		if err == nil {
			images[i] = img
		} else if p.due(i) {
			p.failed(i, k, err)
		}
		if err == nil || errors.Is(err, errs.NotFound) {
			p.discardAll(func(m *Member) bool { return m.kind == i && !m.isOf(img) })
		}
	}
	return images
}

// discardAll removes the members that which says.
func (p *Pool) discardAll(which func(*Member) bool) {
	p.mu.Lock()
	var gone []*Member
	p.ready = slices.DeleteFunc(p.ready, func(m *Member) bool {
		if which(m) {
			gone = append(gone, m)
			return true
		}
		return false
	})
	p.mu.Unlock()
	for _, m := range gone {
		m.stop()
		p.Discard(m)
	}
}

// due reports whether a kind is to be tried, were it not full.
func (p *Pool) due(kind int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fills[kind].next <= p.cfg.Uptime()
}

// next is the kind that a member is to be made of; -1 when there is none now, and
// then when to look again.
func (p *Pool) next(kinds []Kind) (kind int, again time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.cfg.Uptime()
	if p.closed || p.creating > 0 {
		return -1, checkEvery // the end of the create stirs
	}
	if now < p.quiet {
		return -1, min(p.quiet-now, checkEvery)
	}
	again = checkEvery
	for i, k := range kinds {
		switch wait := p.fills[i].next - now; {
		case p.countReady(i) >= k.Count:
		case wait > 0:
			again = min(again, wait)
		default:
			return i, 0
		}
	}
	return -1, again
}

// fill makes one member.
func (p *Pool) fill(life context.Context, m *Member, img image.Image) {
	ctx, cancel := context.WithTimeout(life, fillTime)
	defer cancel()
	p.mu.Lock()
	p.held[m.UID], p.abort = true, cancel
	p.mu.Unlock()
	err := p.make(ctx, m, img)
	p.mu.Lock()
	given := p.abort == nil // by GiveUp
	p.abort = nil
	p.mu.Unlock()
	if err == nil && !given && p.add(m) {
		p.worked(m.kind)
		return
	}
	p.remove(m)
	if err != nil && !given && life.Err() == nil {
		p.failed(m.kind, m.of, err)
	}
}

// make takes the steps to a member that waits. The disk comes first and goes last: by it
// the reconciler knows the pin for this daemon's.
func (p *Pool) make(ctx context.Context, m *Member, img image.Image) error {
	k := m.of
	if err := p.supports(k.Isolation); err != nil {
		return err
	}
	if err := p.cfg.Disks.Create(ctx, m.UID, storage.Own, p.cfg.DiskBytes(k.Limits)); err != nil {
		return err
	}
	if m.kind != p.followed() {
		if err := p.cfg.Images.Pin(ctx, m.Digest, m.UID); err != nil {
			return err
		}
	}
	disks, err := p.cfg.Disks.Attach(ctx, storage.Use{User: m.UID, Own: m.UID})
	if err != nil {
		return err
	}
	spec := p.cfg.Spec(k, m.UID, img, disks)
	if m.Handle, err = p.cfg.Driver.Create(ctx, spec); err != nil {
		return err
	}
	if err := p.cfg.Driver.Start(ctx, m.Handle); err != nil {
		return err
	}
	return p.prepare(ctx, m, k)
}

// prepare starts the kernel of a member, and has it run a command.
func (p *Pool) prepare(ctx context.Context, m *Member, k Kind) error {
	agent := guest.New(func(ctx context.Context) (net.Conn, error) { return p.cfg.Driver.DialGuest(ctx, m.Handle) })
	defer telemetry.Close(p.cfg.Log, agent)
	if err := p.rehearse(ctx, agent, k); err != nil {
		return fmt.Errorf("the first command of a sandbox that is kept ready: %w", err)
	}
	if k.Kernel == "" {
		return nil
	}
	err := agent.PrepareKernel(ctx, sandbox.KernelSpec{Language: k.Kernel, User: k.User, Cwd: sandbox.WorkspaceDir}, k.Modules)
	if err != nil {
		return fmt.Errorf("the kernel of a sandbox that is kept ready: %w", err)
	}
	return nil
}

// rehearse runs a command of which nothing stays: the first one in a sandbox loads
// the shell and its libraries, and takes twice as long as the others. An image
// without a shell is as good.
func (p *Pool) rehearse(ctx context.Context, agent *guest.Client, k Kind) error {
	uid := sandbox.NewUID()
	s, err := agent.Exec(ctx, uid, &guest.Start{ExecSpec: sandbox.ExecSpec{Shell: "true", User: k.User, Cwd: sandbox.WorkspaceDir}}, 0)
	if err != nil {
		return err
	}
	defer telemetry.Close(p.cfg.Log, s)
	for {
		switch _, err := s.Next(); {
		case errors.Is(err, io.EOF):
			return agent.Release(ctx, uid)
		case err != nil:
			return err
		}
	}
}

func (p *Pool) supports(isolation sandbox.Isolation) error {
	for _, i := range p.cfg.Driver.Capabilities().Isolations {
		if i.Isolation == isolation {
			return i.Err
		}
	}
	return errs.E(errs.Unsupported, "isolation %q is not available on this host", isolation)
}

// add makes a member one that waits; false when nobody wants it any more.
func (p *Pool) add(m *Member) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || m.kind == p.followed() && m.of.shape() != p.following.kind.shape() {
		return false
	}
	ctx, stop := context.WithCancel(p.cfg.Gate.Context())
	m.stop = stop
	handle := m.Handle // whoever takes the member gives it another
	if !p.cfg.Gate.Spawn(func(context.Context) { p.watch(ctx, m, handle) }) {
		stop()
		return false
	}
	p.ready = append(p.ready, m)
	return true
}

// watch removes a member that ends by itself.
func (p *Pool) watch(ctx context.Context, m *Member, handle driver.Handle) {
	death, err := p.cfg.Driver.Wait(ctx, handle)
	if ctx.Err() != nil {
		return
	}
	p.mu.Lock()
	i := slices.Index(p.ready, m)
	if i >= 0 {
		p.ready = slices.Delete(p.ready, i, i+1)
	}
	p.mu.Unlock()
	if i < 0 {
		return // it was taken in this moment
	}
	m.stop()
	p.cfg.Log.Warn("a sandbox that was kept ready has ended", telemetry.KeyUID, m.UID, "cause", death.Cause, "detail", death.Detail, telemetry.KeyErr, err)
	if err == nil {
		err = errs.E(errs.Unavailable, "it ended by itself: %s", death.Cause)
	}
	p.failed(m.kind, m.of, err)
	p.remove(m)
	p.stir()
}

// remove takes down all of a member that there is. What stays is the reconciler's.
func (p *Pool) remove(m *Member) {
	ctx, cancel := gate.Detached(context.Background())
	defer cancel()
	err := p.takeDown(ctx, m)
	p.unhold(m.UID)
	if err != nil {
		p.cfg.Log.Error("remove a sandbox that was kept ready", telemetry.KeyUID, m.UID, telemetry.KeyErr, err)
		p.cfg.Left()
	}
}

func (p *Pool) takeDown(ctx context.Context, m *Member) (err error) {
	if m.Handle != nil {
		err = p.cfg.Driver.Destroy(ctx, m.Handle)
	} else {
		err = p.cfg.Driver.Sweep(ctx, m.UID)
	}
	if err != nil {
		return err // its disk is in use as long as it may run
	}
	if err := p.cfg.Images.Unpin(ctx, m.Digest, m.UID); err != nil {
		return err
	}
	_, err = p.cfg.Disks.Remove(ctx, m.UID)
	return errors.Join(err, p.cfg.Disks.Detach(ctx, m.UID, m.UID))
}

// worked notes that a member could be made.
func (p *Pool) worked(kind int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fills[kind] = fills{}
}

// failed notes that no member of a kind, which was k then, could be made or lived on, and
// when it is tried again.
func (p *Pool) failed(kind int, k Kind, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if kind == p.followed() {
		p.failedFollowing(k, err)
		return
	}
	f := &p.fills[kind]
	now := p.cfg.Uptime()
	if k.Optional && (errors.Is(err, errs.NotFound) || errors.Is(err, errs.Unsupported)) {
		*f = fills{next: now + checkEvery}
		return
	}
	if f.failures == 0 {
		f.since = now
	}
	f.failures++
	pause := lastPause
	if n := f.failures - 1; n < 10 {
		pause = min(firstPause<<n, lastPause)
	}
	f.next, f.err = now+pause, err
	p.cfg.Log.Warn("make a sandbox to keep ready", "kind", k.String(), "again_after", pause, telemetry.KeyErr, err)
}

// close removes all members and lets none come.
func (p *Pool) close() {
	p.mu.Lock()
	p.closed = true
	gone := p.ready
	p.ready = nil
	p.mu.Unlock()
	var all sync.WaitGroup
	for _, m := range gone {
		m.stop()
		all.Go(func() { p.remove(m) })
	}
	all.Wait()
}
