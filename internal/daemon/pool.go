package daemon

import (
	"github.com/cubbyhq/cubby/internal/config"
	"github.com/cubbyhq/cubby/internal/core/pool"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// poolKinds is what the operator wants to be kept ready.
func poolKinds(cfg config.Pools) []pool.Kind {
	kinds := make([]pool.Kind, len(cfg.List))
	for i, p := range cfg.List {
		kinds[i] = pool.Kind{
			Image: p.Image, Isolation: p.Isolation, Limits: sandbox.Limits(p.Limits), User: p.User,
			Kernel: p.Kernel, Modules: p.Modules, Count: p.Count,
		}
	}
	return kinds
}

// poolStatus is how full the pool is, for metrics.
func (d *Daemon) poolStatus() []telemetry.Pool {
	var all []telemetry.Pool
	for _, s := range d.core.Sandboxes().Pool().Status() {
		all = append(all, telemetry.Pool{Image: s.Image, Isolation: string(s.Isolation), Kernel: s.Kernel, Ready: s.Ready, Wanted: s.Count})
	}
	return all
}
