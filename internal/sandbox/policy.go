package sandbox

// NetworkMode is how far a sandbox can reach.
type NetworkMode string

const (
	// NetworkNone: no way out.
	NetworkNone NetworkMode = "none"
	// NetworkAllowlist: the hosts of the policy and of the operator.
	NetworkAllowlist NetworkMode = "allowlist"
	// NetworkOpen: every public host, never private, loopback, link-local or
	// metadata addresses.
	NetworkOpen NetworkMode = "open"
)

// Policy is a sandbox's egress policy. Everything is denied that it does not
// allow. The entries of its lists are host names, names with all below them
// ("*.example.com"), addresses and networks, with or without ports; package
// egress knows them.
type Policy struct {
	Mode NetworkMode `json:"mode"`
	// Allow is for NetworkAllowlist. Empty means [DefaultAllow].
	Allow []string `json:"allow,omitempty"`
	// Deny comes before everything that allows, in every mode.
	Deny []string `json:"deny,omitempty"`
	// ProxyEnv is whether the environment names the proxy; nil is true. It
	// decides nothing, and is fixed at create.
	ProxyEnv *bool `json:"proxy_env,omitempty"`
	// Lent are further hosts, with their ports, that the engine itself needs the
	// sandbox to reach for a while. It stands in no spec.
	Lent []string `json:"-"`
}

// NamesProxy reports whether the environment of the sandbox names the proxy.
func (p Policy) NamesProxy() bool { return p.ProxyEnv == nil || *p.ProxyEnv }

// DefaultAllow returns the hosts that a sandbox may reach when its policy
// names none: the package indexes of pip, npm and cargo, and GitHub. The list
// is agentbox's, and cargo's index, without which crates are not found.
func DefaultAllow() []string {
	return []string{
		"pypi.org", "files.pythonhosted.org", "registry.npmjs.org", "github.com",
		"raw.githubusercontent.com", "objects.githubusercontent.com", "crates.io", "static.crates.io",
		"index.crates.io",
	}
}
