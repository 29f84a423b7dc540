package lifecycle

import (
	"time"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

const defaultCPUs = 2

// DefaultSpec is what a sandbox is when nobody says otherwise. CPUs are the
// host's where it has fewer.
func DefaultSpec() sandbox.Spec {
	return sandbox.Spec{
		Image:     "base",
		Isolation: sandbox.GVisor,
		Limits: sandbox.Limits{
			MemoryBytes: 1 << 30,
			CPUs:        defaultCPUs,
			PIDs:        512,
			DiskBytes:   4 << 30,
			OpenFiles:   65536,
		},
		User:        sandbox.UserSandbox,
		Network:     sandbox.Policy{Mode: sandbox.NetworkAllowlist},
		Visibility:  sandbox.Private,
		ExecTimeout: 300 * time.Second,
		IdlePolicy:  sandbox.IdleSleep,
		IdleTimeout: 30 * time.Minute,
		AutoWake:    sandbox.AutoWakeIdle,
	}
}

// Defaults is what a create without a spec makes.
func (s *Sandboxes) Defaults() sandbox.Spec { return s.cfg.Settings.Defaults }
