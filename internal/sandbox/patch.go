package sandbox

import "time"

// Patch changes a sandbox; nil fields keep what is. Maps and lists replace the
// old ones.
type Patch struct {
	Labels   *map[string]string
	Metadata *map[string]string
	Ports    *[]int
	// Services have their revisions by [Patch.Apply].
	Services *[]Service
	// Network holds from the next request of the sandbox on. Without a mode
	// the present one stays, and without a mode and a list nothing changes. Its
	// ProxyEnv is nil or what the sandbox was created with.
	Network *Policy
	// CutConnections ends the open connections that the policy, changed or
	// not, does not allow; else they go on.
	CutConnections bool

	Visibility  *Visibility
	HostHeader  *HostHeader
	IdlePolicy  *IdlePolicy
	IdleTimeout *time.Duration
	AutoWake    *AutoWake
	ExecTimeout *time.Duration
	MaxLifetime *time.Duration // counts from the creation
	External    *External

	GitRemoteURL *string
}

// Apply changes spec and names the fields that the patch holds.
func (p Patch) Apply(spec *Spec) (fields []string) {
	set(&fields, "labels", &spec.Labels, p.Labels)
	set(&fields, "metadata", &spec.Metadata, p.Metadata)
	set(&fields, "ports", &spec.Ports, p.Ports)
	set(&fields, "services", &spec.Services, p.services(spec.Services))
	set(&fields, "network", &spec.Network, p.network(spec.Network))
	set(&fields, "visibility", &spec.Visibility, p.Visibility)
	set(&fields, "host_header", &spec.HostHeader, p.HostHeader)
	set(&fields, "idle_policy", &spec.IdlePolicy, p.IdlePolicy)
	set(&fields, "idle_timeout", &spec.IdleTimeout, p.IdleTimeout)
	set(&fields, "auto_wake", &spec.AutoWake, p.AutoWake)
	set(&fields, "exec_timeout", &spec.ExecTimeout, p.ExecTimeout)
	set(&fields, "max_lifetime", &spec.MaxLifetime, p.MaxLifetime)
	set(&fields, "external", &spec.External, p.External)
	set(&fields, "git_remote_url", &spec.GitRemoteURL, p.GitRemoteURL)
	return fields
}

func (p Patch) services(now []Service) *[]Service {
	if p.Services == nil {
		return nil
	}
	revised := Revise(now, *p.Services)
	return &revised
}

// network completes the patch of a policy with the present one.
func (p Patch) network(now Policy) *Policy {
	if p.Network == nil {
		return nil
	}
	if p.Network.Mode != "" {
		whole := *p.Network
		whole.ProxyEnv = now.ProxyEnv
		return &whole
	}
	if p.Network.Allow == nil && p.Network.Deny == nil {
		return nil
	}
	if p.Network.Allow != nil {
		now.Allow = p.Network.Allow
	}
	if p.Network.Deny != nil {
		now.Deny = p.Network.Deny
	}
	return &now
}

func set[T any](fields *[]string, name string, to *T, from *T) {
	if from != nil {
		*to = *from
		*fields = append(*fields, name)
	}
}
