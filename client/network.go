package client

import (
	"context"
	"net/http"
	"net/url"
)

// EgressConnection is a connection that a sandbox has to a host outside.
type EgressConnection struct {
	Host string `json:"host"` // in the form that the rules compare
	Port int    `json:"port"`
	Rule string `json:"rule"` // what allowed it: "allowlist", "open" or "operator"
	// Protocol is how the sandbox asked for it: "connect", "socks", "http" for
	// one request with an absolute URL, or "transparent" for a program that
	// connected by itself, without the proxy.
	Protocol string `json:"protocol"`
	// Bytes by now, as seen from the sandbox.
	BytesSent     int64 `json:"bytes_sent"`
	BytesReceived int64 `json:"bytes_received"`
	AgeMS         int64 `json:"age_ms"` // milliseconds since it was asked for
}

// EgressConnections lists the connections that a sandbox has to hosts outside
// now, the oldest first. What has ended is in its history.
func (c *Client) EgressConnections(ctx context.Context, id string) ([]EgressConnection, error) {
	var list struct {
		Connections []EgressConnection `json:"connections"`
	}
	err := c.do(ctx, call{method: http.MethodGet, path: sandboxPath(id, "network", "connections")}, &list)
	return list.Connections, err
}

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
