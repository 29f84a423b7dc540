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

func (d *Door) networkRoutes() {
	register(d, operation{
		id: "explain-egress", method: http.MethodGet, path: "/v1/sandboxes/{id}/network/explain", tag: "sandboxes",
		summary:     "What would a request of the sandbox get, and why?",
		description: "The name is looked up; nothing is connected.",
	}, func(ctx context.Context, in *explainInput) (*struct{ Body EgressDecision }, error) {
		e, err := d.core.ExplainEgress(ctx, in.ID, in.Target)
		if err != nil {
			return nil, err
		}
		return &struct{ Body EgressDecision }{EgressDecision{
			Allow: e.Allow, Host: e.Host, Port: e.Port, Rule: string(e.Rule), Reason: e.Reason, Hint: e.Hint,
		}}, nil
	})
}
