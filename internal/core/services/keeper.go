package services

import (
	"context"
	"errors"
	"sync"

	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// keeper keeps the services of one run of a sandbox. It ends with the run; the next
// run has another one, which takes up what goes on.
type keeper struct {
	s       *Services
	run     *live.Run
	begun   chan struct{} // closed when what goes on is taken up
	changed chan struct{} // a token when wanted is another one
	serving sync.WaitGroup
	saving  sync.Mutex // held around writes of the states

	mu     sync.Mutex
	wanted []sandbox.Service // guarded by mu
	units  map[string]*unit  // guarded by mu
}

func newKeeper(s *Services, r *live.Run, wanted []sandbox.Service) *keeper {
	return &keeper{
		s: s, run: r, wanted: wanted, begun: make(chan struct{}), changed: make(chan struct{}, 1), units: make(map[string]*unit),
	}
}

// apply makes other services the wanted ones.
func (k *keeper) apply(wanted []sandbox.Service) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.wanted = wanted
	select {
	case k.changed <- struct{}{}:
	default:
	}
}

// serve keeps the services until the run ends.
func (k *keeper) serve() {
	defer k.serving.Wait()
	ctx := live.Context(k.run)
	pauses := gate.NewPauses()
	for {
		err := k.begin(ctx)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return
		}
		k.s.cfg.Log.Warn("take up the services of a sandbox", telemetry.KeyUID, k.run.UID, telemetry.KeyErr, err)
		if !gate.Sleep(ctx, pauses.NextBackOff()) {
			return
		}
	}
	close(k.begun)
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.changed:
			k.arrange(ctx)
		}
	}
}

// begin takes up what goes on in the sandbox, and starts what should and does not.
func (k *keeper) begin(ctx context.Context) error {
	b, err := k.s.cfg.Store.SandboxByUID(ctx, k.run.UID)
	if err != nil {
		return err
	}
	execs, err := live.ServiceExecs(ctx, k.run, b, func(run sandbox.ServiceRun) sandbox.ExecSpec {
		return specOf(b.Spec.Services, run)
	})
	if err != nil {
		return err
	}
	unnoted, err := k.unnoted(ctx, b)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, e := range execs {
		// Whether it should run is decided when it is arranged.
		name := e.Service().Name
		u := k.units[name]
		if u == nil {
			u = newUnit(k, name, b.Services[name])
			k.units[name] = u
		}
		if old := u.running(); old != nil {
			k.serving.Go(func() { terminate(ctx, old) }) // an agent that says so is wrong
		}
		u.adopt(e)
	}
	for name, state := range b.Services {
		if k.units[name] == nil {
			k.units[name] = newUnit(k, name, state)
		}
	}
	for name, state := range unnoted {
		if u := k.units[name]; u == nil || u.running() == nil {
			k.units[name] = newUnit(k, name, state)
		}
	}
	k.arrangeUnits(ctx)
	return nil
}

// unnoted are the states of services that are not always restarted and whose last
// run is not in their state: the daemon was killed when it had started that. They
// shall not run twice.
func (k *keeper) unnoted(ctx context.Context, b sandbox.Sandbox) (map[string]sandbox.ServiceState, error) {
	states := make(map[string]sandbox.ServiceState)
	for _, service := range b.Spec.Services {
		state := b.Services[service.Name]
		if service.Restart == "" || service.Restart == sandbox.RestartAlways ||
			state.Phase == sandbox.ServiceStopped || state.Phase == sandbox.ServiceFailed {
			continue
		}
		last, err := k.s.cfg.Store.Execs(ctx, b.UID, store.ExecQuery{Service: service.Name, AfterSeq: max(state.Exec, 0), Newest: true, Limit: 1})
		if err != nil {
			return nil, err
		}
		if len(last) == 0 || last[0].CreatedAt.Before(b.StartedAt) || last[0].Spec.Service.Revision != service.Revision {
			continue
		}
		state.Phase, state.Exec, state.Revision = sandbox.ServiceRunning, last[0].Seq, service.Revision
		states[service.Name] = state
	}
	return states, nil
}

// specOf is the command of a run that the sandbox's memory brought with it.
func specOf(services []sandbox.Service, run sandbox.ServiceRun) sandbox.ExecSpec {
	for _, service := range services {
		if service.Name == run.Name && service.Revision == run.Revision {
			return service.ExecSpec()
		}
	}
	// It is ended as soon as it is known.
	return sandbox.ExecSpec{Shell: "service " + run.Name, Service: &run}
}

// arrange gives every service that is wanted a unit, and lets the others end.
func (k *keeper) arrange(ctx context.Context) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.arrangeUnits(ctx)
}

// arrangeUnits is arrange for who holds mu.
func (k *keeper) arrangeUnits(ctx context.Context) {
	wanted := make(map[string]bool, len(k.wanted))
	for _, service := range k.wanted {
		wanted[service.Name] = true
		u := k.units[service.Name]
		if u == nil {
			u = newUnit(k, service.Name, sandbox.ServiceState{})
			k.units[service.Name] = u
		}
		u.want(&service)
	}
	for name, u := range k.units {
		if !wanted[name] {
			u.want(nil)
		}
		if !u.serving {
			u.serving = true
			k.serving.Go(func() { u.serve(ctx) })
		}
	}
}

// drop forgets a unit that has ended. It reports false when it is wanted again.
func (k *keeper) drop(u *unit) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if u.wanted() {
		return false
	}
	delete(k.units, u.name)
	return true
}

// unit returns a service when what goes on is taken up; nil when there is none, or
// ctx or the run ended first.
func (k *keeper) unit(ctx context.Context, name string) *unit {
	select {
	case <-k.begun:
	case <-ctx.Done():
		return nil
	case <-live.Context(k.run).Done():
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.units[name]
}

// all returns the units.
func (k *keeper) all() []*unit {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := make([]*unit, 0, len(k.units))
	for _, u := range k.units {
		all = append(all, u)
	}
	return all
}

// look is [Services.Look].
func (k *keeper) look() {
	for _, u := range k.all() {
		u.look()
	}
}

// states is what the store is to know of the units.
func (k *keeper) states() map[string]sandbox.ServiceState { return k.statesBy((*unit).stored) }

// shown is what somebody may have been told of the units.
func (k *keeper) shown() map[string]sandbox.ServiceState {
	return k.statesBy(func(u *unit) (sandbox.ServiceState, bool) {
		state, known, _ := u.shown()
		return state, known
	})
}

func (k *keeper) statesBy(of func(*unit) (sandbox.ServiceState, bool)) map[string]sandbox.ServiceState {
	states := make(map[string]sandbox.ServiceState)
	for _, u := range k.all() {
		if state, ok := of(u); ok {
			states[u.name] = state
		}
	}
	return states
}

// save writes down where the services stand, with events. What cannot be written
// is written with the next change; a daemon that is killed before finds the runs
// themselves.
func (k *keeper) save(ctx context.Context, events ...sandbox.Event) {
	_ = k.write(ctx, events...) // it is logged
}

// write is save for who has to know whether it was written. It is not where the sandbox
// has stopped, which may be taken back.
func (k *keeper) write(ctx context.Context, events ...sandbox.Event) error {
	if ctx.Err() != nil {
		return errStopped() // the next run's to say
	}
	k.saving.Lock()
	defer k.saving.Unlock()
	err := k.s.cfg.Store.SetServices(context.WithoutCancel(ctx), k.run.UID, k.states(), events...)
	if errors.Is(err, errs.WrongState) || errors.Is(err, errs.NotFound) {
		return errStopped()
	}
	if err != nil {
		k.s.cfg.Log.Error("note where services stand", telemetry.KeyUID, k.run.UID, telemetry.KeyErr, err)
	}
	return err
}
