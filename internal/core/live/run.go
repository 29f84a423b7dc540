package live

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/core/live/activity"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/guest"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// drainTime is how long the last output of a sandbox that is gone may take from
// the sockets to the journal.
const drainTime = time.Second

// Run is one sandbox while it runs: the client of its agent, its execs, and the
// goroutines that serve it. It begins after the driver has started or adopted
// the sandbox and ends when the sandbox does, or with the service, which leaves
// the sandbox running.
type Run struct {
	UID    sandbox.UID
	ID     sandbox.ID
	Tenant string
	Handle driver.Handle
	Guest  *guest.Client

	s        *Sandboxes
	spec     atomic.Pointer[sandbox.Spec]
	activity *activity.Activity
	execs    *execs
	queues   *queues
	out      *outbound
	// languages are of kernels, which a run has and a sandbox has not.
	languages languages

	began time.Time     // when the sandbox began to run, or woke
	left  chan struct{} // closed when the run is suspended and nothing of it goes on

	ctx     context.Context // of everything that talks to the agent
	cancel  context.CancelFunc
	over    context.Context // ends when the agent is gone for good: nobody dials it any more
	setOver context.CancelFunc
	dead    chan struct{} // closed when the driver says that the sandbox does not run any more
	death   driver.Death  // set before dead is closed
}

// Ending says how execs end that a sandbox takes with it.
type Ending struct {
	Reason  sandbox.EndReason
	Message string
}

func (e Ending) exit() sandbox.Exit { return sandbox.Exit{Reason: e.Reason, Message: e.Message} }

// EndOf is how execs ended that were lost with a sandbox.
func EndOf(why sandbox.Why) Ending {
	switch {
	case why.Cause == sandbox.CauseOOM:
		return Ending{sandbox.EndOOM, why.Reason}
	case why.Cause.Died():
		return Ending{sandbox.EndDied, why.Reason}
	case why.Cause == sandbox.CauseMemoryLost:
		return Ending{sandbox.EndLost, why.Reason}
	}
	return Ending{sandbox.EndStopped, "the sandbox was stopped"}
}

// Attach makes the run of a sandbox that has begun to run, and in which nothing
// runs yet. The caller holds the sandbox's lock.
func (s *Sandboxes) Attach(b sandbox.Sandbox) *Run {
	r := s.newRun(b)
	s.publish(r)
	return r
}

// publish lets others find the run.
func (s *Sandboxes) publish(r *Run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running[r.UID] = r
}

// newRun makes a run that only its maker knows.
func (s *Sandboxes) newRun(b sandbox.Sandbox) *Run {
	r := &Run{
		UID: b.UID, ID: b.ID, Tenant: b.Tenant, Handle: driver.Handle(b.Handle), began: b.StartedAt,
		s: s, activity: activity.New(s.cfg.Now, s.cfg.Uptime, b), dead: make(chan struct{}), left: make(chan struct{}),
	}
	r.SetSpec(b.Spec)
	r.ctx, r.cancel = context.WithCancel(s.cfg.Gate.Context())
	r.over, r.setOver = context.WithCancel(context.Background())
	r.execs, r.queues, r.out = newExecs(r), newQueues(r), newOutbound(r)
	r.Guest = guest.NewOnDisk(r.dial, guest.Disk{
		Writable: func() error { return s.cfg.Disks.Writable(b.UID) },
		Examine:  func() error { return s.cfg.Disks.Examine(b.UID) },
		Sync:     func(ctx context.Context) error { return s.cfg.Disks.Sync(ctx, b.UID) },
	})

	s.cfg.Gate.Spawn(func(context.Context) { r.watch() })
	r.out.begin()
	s.cfg.Gate.Spawn(func(context.Context) {
		<-r.ctx.Done()
		telemetry.Close(s.cfg.Log, r.Guest)
	})
	return r
}

// SetSpec makes an update hold for what runs. The caller holds the sandbox's
// lock.
func (r *Run) SetSpec(spec sandbox.Spec) { r.activity.SetSpec(r.spec.Swap(&spec), &spec) }

// Spec is the sandbox's, as it is now.
func (r *Run) Spec() sandbox.Spec { return *r.spec.Load() }

// End says that the sandbox is about to end: no exec is taken any more, and
// those that end with it say why. The first one to say so is right.
func (r *Run) End(e Ending) { r.execs.end(e) }

// GoOn takes back an end that did not happen, and a [Run.Leave].
func (r *Run) GoOn() {
	r.execs.goOn()
	r.activity.Stay()
}

// Finish is called once the sandbox does not run any more, after End. It
// returns when every exec has its end and nothing of the run is left; the
// sandbox's place is free then.
func (r *Run) Finish() {
	r.setOver()
	drained := make(chan struct{})
	go func() {
		r.execs.pumps.Wait()
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
	r.HangUp()
	r.s.forget(r)
}

// Dead is closed when the sandbox does not run any more; then Death says why.
func (r *Run) Dead() <-chan struct{} { return r.dead }

// Death says why the sandbox does not run any more, once Dead is closed.
func (r *Run) Death() driver.Death { return r.death }

// isOver reports that the agent is gone for good. The end of the service alone
// is not that.
func (r *Run) isOver() bool { return r.over.Err() != nil }

// dial opens a connection to the agent. It does not wait for one that will
// never come back.
func (r *Run) dial(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.over, cancel)()
	return r.s.cfg.Driver.DialGuest(ctx, r.Handle)
}

// watch waits for the sandbox's death.
func (r *Run) watch() {
	pauses := gate.NewPauses()
	for {
		death, err := r.s.cfg.Driver.Wait(r.ctx, r.Handle)
		if r.ctx.Err() != nil {
			return
		}
		if err == nil {
			r.death = death
			close(r.dead)
			r.s.cfg.OnDeath(r.ctx, r, death)
			return
		}
		r.s.cfg.Log.Error("wait for the end of a sandbox", telemetry.KeyUID, r.UID, telemetry.KeyErr, err)
		r.sleep(pauses.NextBackOff())
	}
}

// sleep waits for d or the end of the run.
func (r *Run) sleep(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-r.over.Done():
	case <-r.ctx.Done():
	}
}

// Touch notes that somebody uses the sandbox. The store hears of it now and
// then.
func (r *Run) Touch(ctx context.Context) {
	at, due := r.activity.Touch()
	if !due {
		return
	}
	if err := r.s.cfg.Store.Touch(context.WithoutCancel(ctx), r.UID, at); err != nil {
		r.s.cfg.Log.Warn("note the activity of a sandbox", telemetry.KeyUID, r.UID, telemetry.KeyErr, err)
	}
}

// open counts a stream that keeps the sandbox in use until it is closed. It
// reports false when the run is suspended: there will be another.
func (r *Run) open(ctx context.Context) (closed func(), ok bool) {
	left, ok := r.activity.Open()
	if !ok {
		return nil, false
	}
	r.Touch(ctx)
	return sync.OnceFunc(func() {
		left()
		r.s.cfg.OnUse(r.UID)
	}), true
}

// LastActive tells when the sandbox was used last.
func (r *Run) LastActive() time.Time { return r.activity.Last() }

// Running tells how many execs run.
func (r *Run) Running() int { return r.execs.count() }

// Attention is how much a running sandbox is used.
type Attention = activity.Attention

// Attention tells how much the sandbox is used. The program of a terminal does
// not count by itself: who looks at it does, and so does what it prints.
func (r *Run) Attention() Attention {
	// In this order: what waits no more runs, and what does not run any more was
	// used just now.
	inUse := r.queues.busy() || r.execs.busy()
	return r.activity.Attention(inUse)
}

func errEnding() error { return errs.E(errs.WrongState, "the sandbox is ending") }

// gone turns an agent's word that it does not know the command into what that
// means here: it ended in between.
func gone(err error) error {
	if errors.Is(err, errs.NotFound) {
		return execFinished()
	}
	return err
}
