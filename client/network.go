package client

import (
	"context"
	"net/http"
	"net/url"
)

// EgressDecision is what a sandbox would get that asks for a host.
type EgressDecision struct {
	Allow bool   `json:"allow"`
	Host  string `json:"host"` // in the form that the rules compare
	Port  int    `json:"port"`
	// Rule names what decides: "none", "allowlist", "open", "operator",
	// "deny", "address" or "name".
	Rule   string `json:"rule"`
	Reason string `json:"reason"`
	Hint   string `json:"hint,omitempty"` // how to allow what is denied
}

// ExplainEgress tells what a sandbox would get that asks for target, "host" or
// "host:port" (443 when it is left out), and why. The name is looked up;
// nothing is connected.
func (c *Client) ExplainEgress(ctx context.Context, id, target string) (EgressDecision, error) {
	var d EgressDecision
	err := c.do(ctx, call{
		method: http.MethodGet, path: sandboxPath(id, "network", "explain"), query: url.Values{"target": {target}},
	}, &d)
	return d, err
}
