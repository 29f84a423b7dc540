package services

import (
	"context"
	"net"
	"slices"
	"time"

	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// State is what a service does.
type State string

// The states of services.
const (
	Waiting  State = "waiting"  // for the path that it requires
	Starting State = "starting" // it has not begun, or nothing listens on its port yet
	Running  State = "running"  // it has no port
	Ready    State = "ready"    // its port is open
	Backoff  State = "backoff"  // it ended, and starts again in a while
	Failed   State = "failed"   // given up
	Stopped  State = "stopped"
	Sleeping State = "sleeping" // it goes on when the sandbox wakes
)

// Status is a service as it stands now.
type Status struct {
	Service  sandbox.Service
	State    State
	Reason   string // why it failed, or cannot be started now
	PID      int64  // inside the sandbox; 0: it does not run, or that is not known
	Restarts int    // since the sandbox began cold
	Exec     int64  // the seq of the last run, whose output is the service's; 0: none
	// Exit is how the last run ended; nil while it goes on.
	Exit      *sandbox.Exit
	StartedAt time.Time // of the last run; zero: none
}

// List returns the services of a sandbox in their order. It is a look: it wakes
// nothing, and is no use.
func (s *Services) List(ctx context.Context, id string) ([]Status, error) {
	b, err := s.cfg.Scope.Find(ctx, id)
	if err != nil {
		return nil, err
	}
	all := make([]Status, 0, len(b.Spec.Services))
	var open []int
	if b.State == sandbox.Running && slices.ContainsFunc(b.Spec.Services, func(s sandbox.Service) bool { return s.Port != 0 }) {
		open = s.open(ctx, id)
	}
	k := s.of(b.UID)
	for _, service := range b.Spec.Services {
		st := Status{Service: service, State: Stopped}
		switch b.State {
		case sandbox.Running, sandbox.Sleeping:
			s.complete(ctx, b, k, open, &st)
		}
		all = append(all, st)
	}
	return all, nil
}

// Get returns one service of a sandbox.
func (s *Services) Get(ctx context.Context, id, name string) (Status, error) {
	all, err := s.List(ctx, id)
	if err != nil {
		return Status{}, err
	}
	if i := slices.IndexFunc(all, func(st Status) bool { return st.Service.Name == name }); i >= 0 {
		return all[i], nil
	}
	return Status{}, errNoService()
}

// Connect opens a connection to a port of a running sandbox. It is no use of it.
func (s *Services) Connect(ctx context.Context, id string, port int) (net.Conn, error) {
	_, r, err := s.cfg.Live.Find(ctx, id)
	if err != nil {
		return nil, err
	}
	return live.Connect(ctx, r, port)
}

// open are the ports on which something listens, as far as that can be told.
func (s *Services) open(ctx context.Context, id string) (open []int) {
	ports, err := s.cfg.Live.Ports().List(ctx, id)
	if err != nil {
		return nil // it ends just now, or is not reachable yet
	}
	for _, p := range ports {
		if p.Listening {
			open = append(open, p.Port)
		}
	}
	return open
}

// complete adds what becomes of a service whose sandbox has a memory.
func (s *Services) complete(ctx context.Context, b sandbox.Sandbox, k *keeper, open []int, st *Status) {
	state, known := b.Services[st.Service.Name]
	var running *live.Exec
	if k != nil {
		k.mu.Lock()
		u := k.units[st.Service.Name]
		k.mu.Unlock()
		if u != nil {
			state, known, running = u.shown()
		}
	}
	if state.Revision != st.Service.Revision {
		// It was changed just now.
		state, known, running = sandbox.ServiceState{}, false, nil
	}
	st.State, st.Reason, st.Restarts, st.Exec = stateOf(state.Phase), state.Reason, state.Restarts, max(state.Exec, 0)
	if !known {
		st.State = Starting
	}
	if st.Exec != 0 {
		x, err := s.cfg.Live.Execs().Get(ctx, string(b.ID), st.Exec)
		if err == nil {
			st.StartedAt, st.Exit = x.StartedAt, x.Exit
		}
	}
	switch {
	case b.State == sandbox.Sleeping:
		if st.State == Starting && st.Exit == nil {
			st.State = Sleeping
		}
	case running == nil || isDone(running):
	case running.PID() == 0: // the agent has not said yet that it runs
		st.State = Starting
	default:
		st.PID = running.PID()
		switch {
		case st.Service.Port == 0:
			st.State = Running
		case slices.Contains(open, st.Service.Port):
			st.State = Ready
		default:
			st.State = Starting
		}
	}
}

// stateOf is what a phase is of a service without a run.
func stateOf(phase sandbox.ServicePhase) State {
	switch phase {
	case sandbox.ServiceWaiting:
		return Waiting
	case sandbox.ServiceBackoff:
		return Backoff
	case sandbox.ServiceFailed:
		return Failed
	case sandbox.ServiceStopped:
		return Stopped
	case sandbox.ServiceRunning:
	}
	return Starting
}
