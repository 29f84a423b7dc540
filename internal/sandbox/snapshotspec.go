package sandbox

import (
	"cmp"

	"github.com/cubbyhq/cubby/internal/errs"
)

// SpecOf completes what was asked for of a sandbox that begins from a snapshot with
// what the snapshot says, and refuses what such a sandbox cannot be.
func (n Snapshot) SpecOf(spec Spec) (Spec, error) {
	was := n.Spec
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
