package admission

import (
	"cmp"
	"maps"
	"slices"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Interface names the way through which a sandbox is made. The zero value is
// cubby's own.
type Interface string

// InterfaceLimits are the default limits of sandboxes that are made through an
// interface. What both leave zero is as for cubby's own.
type InterfaceLimits struct {
	// Documented is what the system documents whose interface it is, on a host
	// that has it all.
	Documented sandbox.Limits
	// Operator is what the operator set instead.
	Operator sandbox.Limits
}

// LimitsOfInterfaces completes the limits of interfaces. What a system documents is
// given as far as the host has it; what the operator set and the host has not
// is an error.
func LimitsOfInterfaces(of map[Interface]InterfaceLimits, d sandbox.Limits, host Host) (map[Interface]sandbox.Limits, error) {
	all := make(map[Interface]sandbox.Limits)
	for _, i := range slices.Sorted(maps.Keys(of)) {
		own, op := of[i].Documented, of[i].Operator
		own.CPUs = min(own.CPUs, float64(host.CPUs))
		own.MemoryBytes = min(own.MemoryBytes, host.MemoryBytes)
		l := sandbox.Limits{
			MemoryBytes: cmp.Or(op.MemoryBytes, own.MemoryBytes, d.MemoryBytes),
			CPUs:        cmp.Or(op.CPUs, own.CPUs, d.CPUs),
			PIDs:        cmp.Or(op.PIDs, own.PIDs, d.PIDs),
			DiskBytes:   cmp.Or(op.DiskBytes, own.DiskBytes, d.DiskBytes),
			OpenFiles:   cmp.Or(op.OpenFiles, own.OpenFiles, d.OpenFiles),
		}
		if err := cmp.Or(l.Validate(), host.Fits(l)); err != nil {
			info := errs.Public(err)
			return nil, errs.E(errs.Invalid, "%s-limits: %s", i, info.Message).Hint("%s", info.Hint)
		}
		all[i] = l
	}
	return all, nil
}
