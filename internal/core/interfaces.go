package core

import (
	"cmp"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Interface is the way through which a sandbox is made: those of other systems
// have limits of their own by default. The zero value is cubby's own.
type Interface string

// The interfaces with settings of their own.
const (
	Agentbox   Interface = "agentbox"
	Sandboxed  Interface = "sandboxed"
	ECSSandbox Interface = "ecs-sandbox"
	MCP        Interface = "mcp"
	// SandboxAgent is MCP with the tools of sandbox-agent alone.
	SandboxAgent Interface = "sandbox-agent"
)

// InterfaceLimits are what the system documents whose interface it is, on a
// host that has it all. Zero fields are as for cubby's own.
func InterfaceLimits(i Interface, host Host) sandbox.Limits {
	switch i {
	case Agentbox:
		return sandbox.Limits{MemoryBytes: 4 << 30, CPUs: 4}
	case Sandboxed:
		return sandbox.Limits{MemoryBytes: 10 << 30, CPUs: float64(host.CPUs), PIDs: 1024}
	case SandboxAgent:
		return sandbox.Limits{MemoryBytes: 2 << 30, CPUs: 2, PIDs: 512}
	case ECSSandbox, MCP:
	}
	return sandbox.Limits{}
}

// interfaceLimits completes what the operator set. What a system documents is
// given as far as the host has it; what the operator set and the host has not
// is an error.
func interfaceLimits(set map[Interface]sandbox.Limits, d sandbox.Limits, host Host) (map[Interface]sandbox.Limits, error) {
	all := make(map[Interface]sandbox.Limits)
	for _, i := range []Interface{Agentbox, Sandboxed, ECSSandbox, MCP, SandboxAgent} {
		own, op := InterfaceLimits(i, host), set[i]
		own.CPUs = min(own.CPUs, float64(host.CPUs))
		own.MemoryBytes = min(own.MemoryBytes, host.MemoryBytes)
		l := sandbox.Limits{
			MemoryBytes: cmp.Or(op.MemoryBytes, own.MemoryBytes, d.MemoryBytes),
			CPUs:        cmp.Or(op.CPUs, own.CPUs, d.CPUs),
			PIDs:        cmp.Or(op.PIDs, own.PIDs, d.PIDs),
			DiskBytes:   cmp.Or(op.DiskBytes, own.DiskBytes, d.DiskBytes),
			OpenFiles:   cmp.Or(op.OpenFiles, own.OpenFiles, d.OpenFiles),
		}
		if err := cmp.Or(l.Validate(), host.fits(l)); err != nil {
			info := errs.Public(err)
			return nil, errs.E(errs.Invalid, "%s-limits: %s", i, info.Message).Hint("%s", info.Hint)
		}
		all[i] = l
	}
	return all, nil
}
