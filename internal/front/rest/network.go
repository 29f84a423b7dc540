package rest

import (
	"context"
	"net/http"
)

// EgressDecision is what a sandbox would get that asks for a host.
type EgressDecision struct {
	Allow  bool   `json:"allow"`
	Host   string `json:"host" doc:"In the form that the rules compare."`
	Port   int    `json:"port"`
	Rule   string `json:"rule" enum:"none,allowlist,open,operator,deny,address,name,server_name" doc:"What decides."`
	Reason string `json:"reason"`
	Hint   string `json:"hint,omitempty" doc:"How to allow what is denied."`
}

type explainInput struct {
	IDInput
	Target string `query:"target" required:"true" maxLength:"512" doc:"host or host:port; the port is 443 when it is left out."`
}

// EgressConnection is a connection that a sandbox has to a host outside.
type EgressConnection struct {
	Host          string `json:"host" doc:"In the form that the rules compare."`
	Port          int    `json:"port"`
	Rule          string `json:"rule" enum:"allowlist,open,operator" doc:"What allowed it."`
	Protocol      string `json:"protocol" enum:"connect,socks,http,transparent" doc:"How the sandbox asked for it: http is one request with an absolute URL, transparent a program that connected by itself, without the proxy."`
	BytesSent     int64  `json:"bytes_sent" doc:"By now, as seen from the sandbox."`
	BytesReceived int64  `json:"bytes_received"`
	AgeMS         int64  `json:"age_ms" doc:"Milliseconds since it was asked for."`
}

// EgressConnections is the list of them.
type EgressConnections struct {
	Connections []EgressConnection `json:"connections" nullable:"false" doc:"The oldest first."`
}

func (d *door) networkRoutes() {
	register(d, operation{
		id: "list-egress-connections", method: http.MethodGet, path: "/v1/sandboxes/{id}/network/connections", tag: "sandboxes",
		summary:     "The connections that the sandbox has to hosts outside",
		description: "What is open now. What has ended is in the history, as egress.allowed.",
	}, func(ctx context.Context, in *IDInput) (*struct{ Body EgressConnections }, error) {
		list, err := d.Core.Egress().Connections(ctx, in.ID)
		if err != nil {
			return nil, err
		}
		out := EgressConnections{Connections: make([]EgressConnection, 0, len(list))}
		for _, c := range list {
			out.Connections = append(out.Connections, EgressConnection{
				Host: c.Host, Port: c.Port, Rule: string(c.Rule), Protocol: string(c.Protocol),
				BytesSent: c.Sent, BytesReceived: c.Received, AgeMS: c.Duration.Milliseconds(),
			})
		}
		return &struct{ Body EgressConnections }{out}, nil
	})
	register(d, operation{
		id: "explain-egress", method: http.MethodGet, path: "/v1/sandboxes/{id}/network/explain", tag: "sandboxes",
		summary:     "What would a request of the sandbox get, and why?",
		description: "The name is looked up; nothing is connected.",
	}, func(ctx context.Context, in *explainInput) (*struct{ Body EgressDecision }, error) {
		e, err := d.Core.Egress().Explain(ctx, in.ID, in.Target)
		if err != nil {
			return nil, err
		}
		return &struct{ Body EgressDecision }{EgressDecision{
			Allow: e.Allow, Host: e.Host, Port: e.Port, Rule: string(e.Rule), Reason: e.Reason, Hint: e.Hint,
		}}, nil
	})
}
