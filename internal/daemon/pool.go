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

// containers is how many are kept ready without being named. A disk that is promised to
// one of them would be missed where promises are bounded.
func containers(cfg config.Config) int {
	if cfg.DiskOvercommit > 0 {
		return 0
	}
	return cfg.ContainerPool
}

// poolStatus is how full the pool is, for metrics.
func (d *Daemon) poolStatus() []telemetry.Pool {
	var all []telemetry.Pool
	for _, s := range d.core.Sandboxes().Pool().Status() {
		all = append(all, telemetry.Pool{Image: s.Image, Isolation: string(s.Isolation), Kernel: s.Kernel, Ready: s.Ready, Wanted: s.Count})
	}
	return all
}
