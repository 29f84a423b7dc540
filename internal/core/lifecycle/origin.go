package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Origin is what a sandbox begins from in the place of an empty disk and a cold
// start.
type Origin struct {
	// Snapshot is what it is a copy of, as far as that has rows; its spec says what
	// a sandbox of this origin is.
	Snapshot sandbox.Snapshot
	// Files puts the files on the disk: of a new sandbox it makes that disk.
	Files func(ctx context.Context, disk sandbox.UID) error
	// Run makes a sandbox of the spec run, with the identity of the spec. Nil: it
	// starts cold. After an error nothing of it is left.
	Run func(ctx context.Context, spec driver.Spec) (driver.Handle, error)
}

// services are the states of those that go on with its memory.
func (o Origin) services() map[string]sandbox.ServiceState {
	if o.Run == nil {
		return nil
	}
	return sandbox.CopiedServices(o.Snapshot.Services)
}

// Hold finds a sandbox for an act of the caller, and keeps everybody else from
// acting on it until release.
func (s *Sandboxes) Hold(ctx context.Context, id string) (b sandbox.Sandbox, release func(), err error) {
	return s.change(ctx, id)
}

// Aside does something to a running sandbox that the caller holds and that breaks
// all streams to it. To its users the sandbox sleeps meanwhile: commands, cells and
// terminals go on afterwards, transfers break.
func (s *Sandboxes) Aside(ctx context.Context, b sandbox.Sandbox, act func() error) error {
	r := s.cfg.Live.Of(b.UID)
	if r == nil {
		return errs.E(errs.Unavailable, "the sandbox cannot be reached yet").RetryAfter(time.Second)
	}
	if err := r.Suspend(true); err != nil {
		return err
	}
	acted := act()
	undo, cancel := gate.Detached(ctx)
	defer cancel()
	b.StartedAt = s.cfg.Now() // for the time limits of commands, which stood still
	_, err := s.readopt(undo, b)
	return errors.Join(acted, err)
}

// of completes a spec with what the snapshot says, and refuses what a sandbox of
// it cannot be.
func (o Origin) of(spec sandbox.Spec) (sandbox.Spec, error) {
	was := o.Snapshot.Spec
	for _, f := range []struct {
		name  string
		fixed bool
	}{
		{"image", is(spec.Image, was.Image)},
		{"isolation", is(spec.Isolation, was.Isolation)},
		{"user", is(spec.User, was.User)},
		{"runtime", is(spec.Runtime, was.Runtime)},
		{"limits.memory_bytes", is(spec.Limits.MemoryBytes, was.Limits.MemoryBytes)},
		{"limits.cpus", is(spec.Limits.CPUs, was.Limits.CPUs)},
		{"limits.pids", is(spec.Limits.PIDs, was.Limits.PIDs)},
		{"limits.disk_bytes", is(spec.Limits.DiskBytes, was.Limits.DiskBytes)},
		{"limits.open_files", is(spec.Limits.OpenFiles, was.Limits.OpenFiles)},
		{"network.proxy_env", spec.Network.ProxyEnv == nil || spec.Network.NamesProxy() == was.Network.NamesProxy()},
		{"dependencies", len(spec.Dependencies) == 0},
	} {
		if !f.fixed {
			return spec, errs.E(errs.Invalid, "%s: it is that of the snapshot", f.name).Hint("leave it out")
		}
	}
	spec.Image, spec.Isolation, spec.User, spec.Runtime = was.Image, was.Isolation, was.User, was.Runtime
	spec.Limits, spec.Dependencies = was.Limits, was.Dependencies
	if spec.Services == nil {
		spec.Services = was.Services
	}
	env := make(map[string]string, len(was.Env)+len(spec.Env))
	for _, values := range []map[string]string{was.Env, spec.Env} {
		for name, value := range values {
			env[name] = value
		}
	}
	spec.Env = env
	if n := spec.Network; n.Mode == "" && len(n.Allow)+len(n.Deny) == 0 {
		spec.Network = was.Network
	}
	spec.Network.ProxyEnv = was.Network.ProxyEnv
	return spec, nil
}

// is reports whether a caller asked for nothing else than what there is.
func is[T comparable](asked, there T) bool { return cmp.Or(asked, there) == there }
