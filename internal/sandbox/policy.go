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
// allow.
type Policy struct {
	Mode NetworkMode `json:"mode"`
	// Allow lists exact host names, for NetworkAllowlist. Empty means
	// [DefaultAllow].
	Allow []string `json:"allow,omitempty"`
}

// DefaultAllow returns the hosts that a sandbox may reach when its policy
// names none: the package indexes of pip, npm and cargo, and GitHub. The list
// is agentbox's.
func DefaultAllow() []string {
	return []string{
		"pypi.org", "files.pythonhosted.org", "registry.npmjs.org", "github.com",
		"raw.githubusercontent.com", "objects.githubusercontent.com", "crates.io", "static.crates.io",
	}
}
