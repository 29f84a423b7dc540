package core

import (
	"context"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/guest"
	"github.com/cubbyhq/cubby/internal/keylock"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

const (
	// maxExecs keeps connections of the channel free for files and dials:
	// every exec that runs holds one.
	maxExecs = 192
	// drainTime is how long the last output of a sandbox that is gone may
	// take from the sockets to the journal.
	drainTime    = time.Second
	touchEvery   = 15 * time.Second
	releaseDelay = 100 * time.Millisecond
)

// run is one sandbox while it runs: the client of its agent, its execs, and
// the goroutines that serve it. It begins after the driver has started or
// adopted the sandbox and ends when the sandbox does, or with the service,
// which leaves the sandbox running.
type run struct {
	s      *Service
	uid    sandbox.UID
	id     sandbox.ID
	tenant string
	handle driver.Handle
	guest  *guest.Client
	spec   atomic.Pointer[sandbox.Spec]
	listed *rate.Limiter // events about what the egress proxy decides

	ctx     context.Context // of everything that talks to the agent
	cancel  context.CancelFunc
	over    context.Context // ends when the agent is gone for good: nobody dials it any more
	setOver context.CancelFunc
	pumps   sync.WaitGroup // Add only under mu while ending is nil
	dead    chan struct{}  // closed when the driver says that the sandbox does not run any more
	death   driver.Death   // set before dead is closed
	// sessions orders those who put commands into queues, by queue.
	sessions keylock.Locks
	// tells is held while unlisted is told of, before mu.
	tells sync.Mutex

	mu        sync.Mutex
	net       *network            // of the streams that come next; guarded by mu
	unlisted  event.Unlisted      // since the last event that said so; guarded by mu
	telling   bool                // somebody will tell of unlisted; guarded by mu
	ending    *ending             // not nil: no exec is taken any more; guarded by mu
	execs     map[int64]*liveExec // by seq; guarded by mu
	queues    map[string]*queue   // by name; guarded by mu
	queued    map[int64]*queued   // by seq; guarded by mu
	languages map[string]string   // of kernels that the agent had, by name; guarded by mu
	queueing  int                 // commands of sessions that have no seq yet; guarded by mu
	starting  int                 // execs that have no seq yet; guarded by mu
	places    []func()            // gives back each one of the tenant's that the execs have; guarded by mu
	streams   int                 // open files, dials and watches; guarded by mu
	activeAt  time.Time           // for people; guarded by mu
	activeUp  time.Duration       // uptime at activeAt; guarded by mu
	touched   time.Duration       // uptime of what the store knows; guarded by mu
	leaseEnds time.Duration       // uptime at which the spec's lease is over; guarded by mu
	// queuedSecrets is how many bytes of secrets wait in queues; guarded by mu.
	queuedSecrets int
	queuedText    int           // as much of what textOf counts; guarded by mu
	releases      []sandbox.UID // finished execs that the agent may forget; guarded by mu
	releasing     bool          // guarded by mu
}

// ending says how execs end that a sandbox takes with it.
type ending struct {
	reason  sandbox.EndReason
	message string
}

// attach makes the run of a sandbox that the driver says is running. The
// caller holds the sandbox's lock.
func (s *Service) attach(b sandbox.Sandbox) *run {
	r := &run{
		s: s, uid: b.UID, id: b.ID, tenant: b.Tenant, handle: driver.Handle(b.Handle),
		listed: rate.NewLimiter(listedRate, listedBurst),
		execs:  make(map[int64]*liveExec), queues: make(map[string]*queue), queued: make(map[int64]*queued),
		languages: make(map[string]string),
		activeAt:  b.LastActiveAt, dead: make(chan struct{}),
	}
	r.activeUp = s.uptime() - unusedAtReturn(b.Spec, s.now(), b.LastActiveAt)
	r.touched = r.activeUp
	r.setSpec(b.Spec)
	r.ctx, r.cancel = context.WithCancel(s.gate.Context())
	r.over, r.setOver = context.WithCancel(context.Background())
	r.net = newNetwork(r.ctx)
	r.guest = guest.New(r.dial)

	s.admission.adopt(b)
	s.mu.Lock()
	s.running[r.uid] = r
	s.mu.Unlock()
	s.gate.Spawn(func(context.Context) { r.watch() })
	s.gate.Spawn(func(context.Context) { r.serveEgress() })
	s.gate.Spawn(func(context.Context) {
		<-r.ctx.Done()
		telemetry.Close(s.log, r.guest)
	})
	return r
}

// setSpec makes an update hold for what runs.
func (r *run) setSpec(spec sandbox.Spec) {
	r.mu.Lock()
	defer r.mu.Unlock()
	was := r.spec.Swap(&spec)
	if was != nil && spec.KeptUntil.Equal(was.KeptUntil) {
		return // its end is where it was, wherever the wall clock is now
	}
	r.leaseEnds = 0
	if !spec.KeptUntil.IsZero() {
		r.leaseEnds = r.s.uptime() + spec.KeptUntil.Sub(r.s.now())
	}
}

// end says that the sandbox is about to end: no exec is taken any more, and
// those that end with it say why. The first one to say so is right.
func (r *run) end(e ending) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ending == nil {
		r.ending = &e
	}
}

// goOn takes back an end that did not happen.
func (r *run) goOn() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ending = nil
}

func (r *run) endingNow() *ending {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ending
}

// finish is called once the sandbox does not run any more, after end. It
// returns when every exec has its end and nothing of the run is left; the
// sandbox's place is free then.
func (r *run) finish() {
	r.setOver()
	drained := make(chan struct{})
	go func() {
		r.pumps.Wait()
		close(drained)
	}()
	t := time.NewTimer(drainTime)
	defer t.Stop()
	select {
	case <-drained:
	case <-t.C:
	case <-r.ctx.Done():
	}
	r.cancel()
	<-drained
	r.hangUp()

	s := r.s
	s.mu.Lock()
	if s.running[r.uid] == r {
		delete(s.running, r.uid)
	}
	s.mu.Unlock()
	s.admission.give(r.uid)
}

// isOver reports that the agent is gone for good. The end of the service alone
// is not that.
func (r *run) isOver() bool { return r.over.Err() != nil }

// dial opens a connection to the agent. It does not wait for one that will
// never come back.
func (r *run) dial(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.over, cancel)()
	return r.s.cfg.Driver.DialGuest(ctx, r.handle)
}

// watch waits for the sandbox's death.
func (r *run) watch() {
	pauses := gate.NewPauses()
	for {
		death, err := r.s.cfg.Driver.Wait(r.ctx, r.handle)
		if r.ctx.Err() != nil {
			return
		}
		if err == nil {
			r.death = death
			close(r.dead)
			r.s.died(r, death)
			return
		}
		r.s.log.Error("wait for the end of a sandbox", telemetry.KeyUID, r.uid, telemetry.KeyErr, err)
		r.sleep(pauses.NextBackOff())
	}
}

// serveEgress carries the streams that the sandbox opens to the outside.
func (r *run) serveEgress() {
	pauses := gate.NewPauses()
	for {
		conn, door, err := r.s.cfg.Driver.AcceptEgress(r.ctx, r.handle)
		if r.ctx.Err() != nil {
			if err == nil {
				conn.Close()
			}
			return
		}
		if err != nil {
			r.sleep(pauses.NextBackOff())
			continue
		}
		pauses.Reset()
		r.serveStream(conn, door)
	}
}

// sleep waits for d or the end of the run.
func (r *run) sleep(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-r.over.Done():
	case <-r.ctx.Done():
	}
}

// active notes that somebody uses the sandbox. The store hears of it now and
// then.
func (r *run) active(ctx context.Context) {
	r.mu.Lock()
	r.usedNow()
	now := r.activeAt
	due := r.activeUp-r.touched >= touchEvery
	if due {
		r.touched = r.activeUp
	}
	r.mu.Unlock()
	if !due {
		return
	}
	if err := r.s.cfg.Store.Touch(context.WithoutCancel(ctx), r.uid, now); err != nil {
		r.s.log.Warn("note the activity of a sandbox", telemetry.KeyUID, r.uid, telemetry.KeyErr, err)
	}
}

// usedNow notes that somebody used the sandbox this moment. The caller holds
// mu.
func (r *run) usedNow() { r.activeAt, r.activeUp = r.s.now(), r.s.uptime() }

// open counts a stream that keeps the sandbox in use until it is closed.
func (r *run) open(ctx context.Context) (closed func()) {
	r.active(ctx)
	r.mu.Lock()
	r.streams++
	r.mu.Unlock()
	return sync.OnceFunc(func() {
		r.mu.Lock()
		r.streams--
		r.usedNow()
		r.mu.Unlock()
	})
}

// use tells when the sandbox was used last and how many execs run.
func (r *run) use() (lastActive time.Time, execs int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.activeAt, len(r.execs) + r.starting
}

// attention tells how much the sandbox is used. The program of a terminal does
// not count by itself: who looks at it does, and so does what it prints.
func (r *run) attention() attention {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := attention{inUse: r.starting+r.streams+len(r.queues) > 0}
	for _, e := range r.execs {
		if e.terminal == "" {
			a.inUse = true
			break
		}
	}
	now := r.s.uptime()
	a.unused, a.lease = now-r.activeUp, r.leaseEnds-now
	return a
}

// reserve takes a place for one more exec, of the sandbox's and of its tenant's;
// it is given back by unreserve, or by the end of what register made of it.
func (r *run) reserve() error { return r.reserveFor(false) }

// reserveFor does so for one that runs already, and that the tenant's bound
// cannot undo.
func (r *run) reserveFor(runs bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ending != nil {
		return errs.E(errs.WrongState, "the sandbox is ending")
	}
	if len(r.execs)+r.starting >= maxExecs {
		return errs.E(errs.Exhausted, "%d commands run in this sandbox already", maxExecs).
			Hint("wait for one to end, or cancel one").RetryAfter(time.Second)
	}
	leave, err := r.s.commandPlace(r.tenant)
	if err != nil && !runs {
		return err
	}
	r.starting++
	if err == nil {
		r.places = append(r.places, leave)
	}
	return nil
}

func (r *run) unreserve() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.starting--
	r.leavePlace()
}

// leavePlace gives one of the tenant's places back, of which those that are
// beyond its bound have none. The caller holds mu.
func (r *run) leavePlace() {
	if n := len(r.places); n > len(r.execs)+r.starting {
		r.places[n-1]()
		r.places = r.places[:n-1]
	}
}

// register makes the place of reserve the exec's and pumps its output. When
// the sandbox has ended meanwhile it reports false, and the exec is for the
// caller to finish.
func (r *run) register(e *liveExec, pump func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.starting--
	if r.ending != nil {
		r.leavePlace()
		return false
	}
	r.execs[e.seq] = e
	r.pumps.Add(1)
	if !r.s.gate.Spawn(func(context.Context) { defer r.pumps.Done(); pump() }) {
		r.pumps.Done()
	}
	return true
}

func (r *run) liveExecs() []*liveExec {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.execs))
}

func (r *run) liveExec(seq int64) *liveExec {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.execs[seq]
}

// forget ends the exec's time as a live one; its agent may forget it too.
func (r *run) forget(e *liveExec) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.execs, e.seq)
	r.leavePlace()
	r.usedNow()
	r.release(e.uid)
}

// release lets the agent forget a finished exec, several with one request. The
// caller holds mu.
func (r *run) release(uids ...sandbox.UID) {
	if r.isOver() || len(uids) == 0 {
		return
	}
	r.releases = append(r.releases, uids...)
	if r.releasing {
		return
	}
	r.releasing = r.s.gate.Spawn(func(context.Context) {
		for {
			r.sleep(releaseDelay)
			r.mu.Lock()
			batch := r.releases
			r.releases = nil
			if len(batch) == 0 || r.isOver() || r.ctx.Err() != nil {
				r.releasing = false
				r.mu.Unlock()
				return
			}
			r.mu.Unlock()
			ctx, cancel := context.WithTimeout(r.ctx, gate.DetachedTime)
			// What is not released now is found and released at the next
			// adoption; the agent bounds what it keeps.
			if err := r.guest.Release(ctx, batch...); err != nil && r.ctx.Err() == nil {
				r.s.log.Debug("release execs", telemetry.KeyUID, r.uid, telemetry.KeyErr, err)
			}
			cancel()
		}
	})
}
