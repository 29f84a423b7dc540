package sandbox

import (
	"cmp"
	"slices"
	"time"
)

const (
	defaultCPUs = 2
	imageOfR    = "r" // the default of the runtime r; the others are in every default image
)

// DefaultSpec is what a sandbox is when nobody says otherwise. CPUs are the
// host's where it has fewer.
func DefaultSpec() Spec {
	return Spec{
		Image:     "base",
		Isolation: GVisor,
		Limits: Limits{
			MemoryBytes: 1 << 30,
			CPUs:        defaultCPUs,
			PIDs:        512,
			DiskBytes:   4 << 30,
			OpenFiles:   65536,
		},
		User:        UserSandbox,
		Network:     Policy{Mode: NetworkAllowlist},
		Visibility:  Private,
		ExecTimeout: 300 * time.Second,
		IdlePolicy:  IdleSleep,
		IdleTimeout: 30 * time.Minute,
		AutoWake:    AutoWakeIdle,
	}
}

// WithDefaults is the spec with what d says where it says nothing.
func (s Spec) WithDefaults(d Spec) Spec {
	if len(s.Dependencies) > 0 {
		s.Runtime = cmp.Or(s.Runtime, RuntimePython)
	}
	if s.Runtime == RuntimeR {
		s.Image = cmp.Or(s.Image, imageOfR)
	}
	s.Image = cmp.Or(s.Image, d.Image)
	s.Isolation = cmp.Or(s.Isolation, d.Isolation)
	s.Limits = Limits{
		MemoryBytes: cmp.Or(s.Limits.MemoryBytes, d.Limits.MemoryBytes),
		CPUs:        cmp.Or(s.Limits.CPUs, d.Limits.CPUs),
		PIDs:        cmp.Or(s.Limits.PIDs, d.Limits.PIDs),
		DiskBytes:   cmp.Or(s.Limits.DiskBytes, d.Limits.DiskBytes),
		OpenFiles:   cmp.Or(s.Limits.OpenFiles, d.Limits.OpenFiles),
	}
	s.User = cmp.Or(s.User, d.User)
	if s.Network.Mode == "" {
		s.Network.Mode = d.Network.Mode
		if len(s.Network.Allow) > 0 {
			s.Network.Mode = NetworkAllowlist
		} else {
			s.Network.Allow = slices.Clone(d.Network.Allow)
		}
	}
	s.Visibility = cmp.Or(s.Visibility, d.Visibility)
	s.IdlePolicy = cmp.Or(s.IdlePolicy, d.IdlePolicy)
	s.AutoWake = cmp.Or(s.AutoWake, d.AutoWake)
	s.ExecTimeout = cmp.Or(s.ExecTimeout, d.ExecTimeout)
	s.IdleTimeout = cmp.Or(s.IdleTimeout, d.IdleTimeout)
	s.MaxLifetime = cmp.Or(s.MaxLifetime, d.MaxLifetime)
	return s
}
