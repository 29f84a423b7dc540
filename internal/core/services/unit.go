package services

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// stopGrace is what a service gets between SIGTERM and SIGKILL.
const stopGrace = 10 * time.Second

// wish is what somebody asks of a service.
type wish int

const (
	toStart wish = iota + 1
	toStop
	toRestart
)

// request is a wish and who waits for it.
type request struct {
	what wish
	done chan error // gets one value
}

// unit is one service while its sandbox runs. One goroutine acts on it.
type unit struct {
	k       *keeper
	name    string
	serving bool          // it has its goroutine; guarded by the keeper's mu
	pokes   chan struct{} // a token when there is something else to do
	gone    chan struct{} // closed when the sandbox has no such service any more

	mu       sync.Mutex
	service  *sandbox.Service     // nil: not wanted; guarded by mu
	state    sandbox.ServiceState // guarded by mu
	exec     *live.Exec           // that runs, or has ended and is not accounted for; nil: none; guarded by mu
	telling  bool                 // it is being written down that it is given up; guarded by mu
	requests []request            // guarded by mu
}

func newUnit(k *keeper, name string, state sandbox.ServiceState) *unit {
	return &unit{k: k, name: name, state: state, pokes: make(chan struct{}, 1), gone: make(chan struct{})}
}

// adopt makes a run that goes on the service's.
func (u *unit) adopt(e *live.Exec) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.exec = e
	u.state.Phase, u.state.Exec, u.state.Revision = sandbox.ServiceRunning, e.Snapshot().Seq, e.Service().Revision
	u.state.Reason = ""
}

func (u *unit) poke() {
	select {
	case u.pokes <- struct{}{}:
	default:
	}
}

// want says what the service is; nil: there should be none.
func (u *unit) want(service *sandbox.Service) {
	u.mu.Lock()
	defer u.mu.Unlock()
	same := service != nil && u.service != nil && service.Revision == u.service.Revision && service.Requires == u.service.Requires
	u.service = service
	if !same {
		u.poke()
	}
}

func (u *unit) wanted() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.service != nil
}

// look wakes a service that waits for a path.
func (u *unit) look() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.state.Phase == sandbox.ServiceWaiting && u.exec == nil {
		u.poke()
	}
}

// stored is what the store is to know; false: nothing. A service that was removed
// stays there until its run has ended: a daemon that comes before has to end it.
func (u *unit) stored() (sandbox.ServiceState, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.state, u.service != nil || u.exec != nil
}

// shown is where the service stands for who looks at it: a run that has ended counts,
// although nobody has accounted for it yet. That a service is given up is not said
// before it is: with its event.
func (u *unit) shown() (state sandbox.ServiceState, known bool, e *live.Exec) {
	u.mu.Lock()
	defer u.mu.Unlock()
	state, e = u.state, u.exec
	unsaid := u.telling
	if e != nil && isDone(e) {
		state, unsaid = u.after(e.Snapshot()), true
	}
	if unsaid && state.Phase == sandbox.ServiceFailed {
		state.Phase, state.Reason = sandbox.ServiceBackoff, ""
	}
	return state, u.service != nil || e != nil, e
}

// after is what becomes of the service after a run, for who holds mu.
func (u *unit) after(x sandbox.Exec) sandbox.ServiceState {
	e := endOf(x)
	if live.IsEnding(u.k.run) {
		e.reason = sandbox.EndStopped // whatever it made of that
	}
	var policy sandbox.RestartPolicy
	if u.service != nil {
		policy = u.service.Restart
	}
	next := after(policy, u.state, e)
	next.Exec = x.Seq
	return next
}

// ask has a wish carried out, and waits for that.
func (u *unit) ask(ctx context.Context, what wish) error {
	r := request{what: what, done: make(chan error, 1)}
	u.mu.Lock()
	u.requests = append(u.requests, r)
	u.mu.Unlock()
	u.poke()
	select {
	case err := <-r.done:
		return err
	case <-u.gone:
		return errNoService()
	case <-ctx.Done():
		return ctx.Err()
	case <-live.Context(u.k.run).Done():
		return errStopped()
	}
}

func errStopped() error {
	return errs.E(errs.Unavailable, "the sandbox has stopped meanwhile").RetryAfter(time.Second)
}

// serve acts on the service until it is not wanted any more or the run ends.
func (u *unit) serve(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-u.pokes: // what it is about is seen now
		default:
		}
		if !u.wanted() {
			u.end(ctx)
			if ctx.Err() == nil && u.k.drop(u) {
				close(u.gone)
				u.k.save(ctx)
				return
			}
			continue
		}
		if u.revised() {
			u.end(ctx)
			u.reset(ctx)
			continue
		}
		if r, ok := u.next(); ok {
			r.done <- u.carryOut(ctx, r.what)
			continue
		}
		u.step(ctx)
	}
}

func (u *unit) next() (request, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.requests) == 0 {
		return request{}, false
	}
	r := u.requests[0]
	u.requests = u.requests[1:]
	return r, true
}

// revised reports whether what runs, or ran, is not what is wanted now.
func (u *unit) revised() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.exec != nil {
		return u.exec.Service().Revision != u.service.Revision
	}
	return u.state.Revision != u.service.Revision
}

// reset begins a service anew that is another one than before.
func (u *unit) reset(ctx context.Context) {
	u.set(ctx, func(s *sandbox.ServiceState) {
		if u.service != nil {
			*s = sandbox.ServiceState{Phase: sandbox.ServiceRunning, Revision: u.service.Revision}
		}
	})
}

// set changes where the service stands, and writes it down. The change is called
// with mu held.
func (u *unit) set(ctx context.Context, change func(*sandbox.ServiceState), events ...sandbox.Event) {
	_ = u.mustSet(ctx, change, events...) // what cannot be written is logged
}

// mustSet is set for what the next daemon has to know. After an error it holds here.
func (u *unit) mustSet(ctx context.Context, change func(*sandbox.ServiceState), events ...sandbox.Event) error {
	u.mu.Lock()
	change(&u.state)
	u.mu.Unlock()
	return u.k.write(ctx, events...)
}

// carryOut does what somebody asked for.
func (u *unit) carryOut(ctx context.Context, what wish) error {
	if what != toStart {
		u.end(ctx)
	}
	if ctx.Err() != nil {
		return errStopped()
	}
	if what == toStop {
		// The next daemon starts what it does not know to be stopped.
		return u.mustSet(ctx, func(s *sandbox.ServiceState) {
			*s = sandbox.ServiceState{Phase: sandbox.ServiceStopped, Revision: s.Revision, Exec: s.Exec, Restarts: s.Restarts}
		})
	}
	if e := u.running(); e != nil && !isDone(e) {
		return nil
	}
	u.end(ctx) // what a run has left that ended just now
	u.set(ctx, func(s *sandbox.ServiceState) {
		*s = sandbox.ServiceState{Phase: sandbox.ServiceRunning, Revision: s.Revision, Exec: s.Exec, Restarts: s.Restarts}
	})
	return u.start(ctx)
}

func (u *unit) running() *live.Exec {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.exec
}

// end ends the run that is there, if any, and does not count that.
func (u *unit) end(ctx context.Context) {
	if e := u.running(); e != nil {
		terminate(ctx, e)
		if ctx.Err() == nil {
			e.KillLeft()
			u.mu.Lock()
			u.exec = nil
			u.mu.Unlock()
		}
	}
}

func terminate(ctx context.Context, e *live.Exec) {
	grace, cancel := context.WithTimeout(ctx, stopGrace)
	defer cancel()
	e.Terminate(grace)
}

func isDone(e *live.Exec) bool {
	select {
	case <-e.Done():
		return true
	default:
		return false
	}
}

// step does the next thing that is due, or waits for it.
func (u *unit) step(ctx context.Context) {
	if e := u.running(); e != nil {
		select {
		case <-ctx.Done():
		case <-u.pokes:
		case <-e.Done():
			if ctx.Err() == nil {
				e.KillLeft()
				u.account(ctx, e.Snapshot())
			}
		}
		return
	}
	state, _ := u.stored()
	switch state.Phase {
	case sandbox.ServiceBackoff:
		if u.pause(ctx, pause(state.Tries)) {
			_ = u.start(ctx) // the state says it
		}
	case sandbox.ServiceStopped, sandbox.ServiceFailed:
		u.rest(ctx)
	case sandbox.ServiceRunning:
		if state.Exec != 0 {
			u.missing(ctx, state.Exec)
			return
		}
		_ = u.start(ctx)
	default:
		if err := u.start(ctx); err == nil && u.running() == nil {
			u.rest(ctx)
		}
	}
}

// rest waits until there is something else to do.
func (u *unit) rest(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-u.pokes:
	}
}

// pause waits before a start. It reports false when there is something else to do.
func (u *unit) pause(ctx context.Context, d time.Duration) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	over := make(chan bool, 1)
	go func() { over <- u.k.s.cfg.Pause(ctx, d) }()
	select {
	case <-u.pokes:
		cancel()
		<-over
		return false
	case due := <-over:
		return due
	}
}

// account decides what becomes of the service after a run has ended. Whoever looks sees
// the run that has ended or what comes of it, and nothing in between.
func (u *unit) account(ctx context.Context, x sandbox.Exec) {
	u.mu.Lock()
	next := u.after(x)
	u.exec, u.state = nil, next
	u.telling = next.Phase == sandbox.ServiceFailed
	u.mu.Unlock()
	defer func() {
		u.mu.Lock()
		u.telling = false
		u.mu.Unlock()
	}()
	var events []sandbox.Event
	if next.Phase == sandbox.ServiceFailed {
		events = append(events, event.New(u.k.run.UID, "", event.ServiceFail{Service: u.name, Reason: next.Reason}))
	}
	u.k.save(ctx, events...)
}

// missing accounts for a run that ended while nobody looked: when the daemon was
// away, or in the moment in which the memory was copied.
func (u *unit) missing(ctx context.Context, seq int64) {
	x, err := u.k.s.cfg.Store.Exec(ctx, u.k.run.UID, seq)
	switch {
	case errors.Is(err, errs.NotFound) || err == nil && (x.Spec.Service == nil || x.Spec.Service.Name != u.name):
		x = sandbox.Exec{} // it was another sandbox's
	case err != nil:
		gate.Sleep(ctx, time.Second)
		return
	default:
		live.KillLeft(u.k.run, x)
	}
	u.account(ctx, x)
}

// start runs the service unless the path that it requires is missing. After an error
// it is tried again in a while.
func (u *unit) start(ctx context.Context) error {
	u.mu.Lock()
	service, restarts, waits := u.service, u.state.Restarts, u.state.Phase == sandbox.ServiceWaiting
	if u.state.Exec != 0 {
		restarts++
	}
	u.mu.Unlock()
	if service == nil || ctx.Err() != nil {
		return nil
	}
	err := u.required(ctx, service.Requires)
	if errors.Is(err, errs.NotFound) {
		if !waits { // else each use of the sandbox would be a write
			u.set(ctx, func(s *sandbox.ServiceState) { s.Phase, s.Reason = sandbox.ServiceWaiting, "" })
			// Who made the path before that has woken nobody.
			if u.required(ctx, service.Requires) == nil {
				u.poke()
			}
		}
		return nil
	}
	var e *live.Exec
	if err == nil {
		b := sandbox.Sandbox{UID: u.k.run.UID, Spec: u.k.run.Spec()}
		e, err = u.k.run.Begin(ctx, b, service.ExecSpec())
	}
	if err != nil {
		if ctx.Err() != nil {
			return err
		}
		reason := errs.Public(err).Message
		u.set(ctx, func(s *sandbox.ServiceState) {
			s.Phase, s.Reason = sandbox.ServiceBackoff, "it cannot be started now: "+reason
			s.Tries++
		})
		return err
	}
	u.set(ctx, func(s *sandbox.ServiceState) {
		u.exec = e
		s.Phase, s.Reason, s.Exec, s.Restarts = sandbox.ServiceRunning, "", e.Snapshot().Seq, restarts
		s.Revision = service.Revision
	})
	return nil
}

// required is NotFound when a path is not there that has to be.
func (u *unit) required(ctx context.Context, name string) error {
	if name == "" {
		return nil
	}
	_, err := u.k.run.Guest.Stat(ctx, name, true)
	return err
}
