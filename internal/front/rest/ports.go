package rest

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Port is a TCP port of a sandbox.
type Port struct {
	Port      int    `json:"port"`
	Listening bool   `json:"listening" doc:"Whether something accepts connections now."`
	Declared  bool   `json:"declared" doc:"Whether it is among the sandbox's ports."`
	Program   string `json:"program" doc:"The name of a process that listens; empty when that cannot be told."`
	PID       int64  `json:"pid" doc:"Its id inside the sandbox; 0 when that cannot be told."`
	URL       string `json:"url,omitempty" doc:"Its preview, for whoever may see it; absent while the daemon serves none."`
}

// PortList is the ports of a sandbox.
type PortList struct {
	Ports []Port `json:"ports" nullable:"false" doc:"By number."`
}

// LinkInput is how long a link is to hold.
type LinkInput struct {
	ExpiresIn *float64 `json:"expires_in,omitempty" exclusiveMinimum:"0" maximum:"7776000" doc:"Seconds; default a day."`
}

// Link shows a port to whoever has it.
type Link struct {
	URL       string    `json:"url" doc:"The preview with a token, which its first answer takes out of the address."`
	ExpiresAt time.Time `json:"expires_at"`
}

// PortInput is exported because huma sets it inside of other inputs.
type PortInput struct {
	IDInput
	Port int `path:"port" minimum:"1" maximum:"65535"`
}

func (d *door) portJSON(id string, p sandbox.Port) Port {
	return Port{
		Port: p.Port, Listening: p.Listening, Declared: p.Declared, Program: p.Program, PID: p.PID,
		URL: d.Core.Previews().URL(sandbox.ID(id), p.Port),
	}
}

func (d *door) portRoutes() {
	const path = "/v1/sandboxes/{id}/ports"
	register(d, operation{
		id: "list-ports", method: http.MethodGet, path: path, tag: "ports",
		summary:     "List the ports that something listens on, and the declared ones",
		description: "It is no activity and wakes nothing: of a sandbox that does not run it lists the declared ports, on which nothing listens then. The agent's own ports and those of kernels are left out.",
	}, func(ctx context.Context, in *IDInput) (*struct{ Body PortList }, error) {
		ports, err := d.Core.Ports().List(ctx, in.ID)
		if err != nil {
			return nil, err
		}
		out := PortList{Ports: make([]Port, len(ports))}
		for i, p := range ports {
			out.Ports[i] = d.portJSON(in.ID, p)
		}
		return &struct{ Body PortList }{out}, nil
	})
	register(d, operation{
		id: "get-port", method: http.MethodGet, path: path + "/{port}", tag: "ports", summary: "Get a port, whether or not something listens on it",
	}, func(ctx context.Context, in *PortInput) (*struct{ Body Port }, error) {
		p, err := d.Core.Ports().Get(ctx, in.ID, in.Port)
		if err != nil {
			return nil, err
		}
		return &struct{ Body Port }{d.portJSON(in.ID, p)}, nil
	})
	register(d, operation{
		id: "create-port-link", method: http.MethodPost, path: path + "/{port}/links", tag: "ports", status: http.StatusCreated,
		summary:     "Make a link to the preview of a port",
		description: "Whoever has it sees the port until it expires, or until all links of the sandbox are ended. It wakes nothing, and nothing need listen yet. 409 while the daemon serves no previews.",
	}, func(ctx context.Context, in *struct {
		PortInput
		Body *LinkInput `required:"false"`
	}) (*struct{ Body Link }, error) {
		var holds time.Duration
		if in.Body != nil && in.Body.ExpiresIn != nil {
			holds = max(1, time.Duration(*in.Body.ExpiresIn*float64(time.Second))) // 0 is the default
		}
		l, err := d.Core.Previews().Link(ctx, in.ID, in.Port, holds)
		if err != nil {
			return nil, err
		}
		return &struct{ Body Link }{Link{URL: l.URL, ExpiresAt: l.Expires.UTC()}}, nil
	})
	register(d, operation{
		id: "end-port-links", method: http.MethodDelete, path: "/v1/sandboxes/{id}/links", tag: "ports", status: http.StatusNoContent,
		summary:     "End all links of a sandbox",
		description: "Those who came by one are not let in any more. Requests that are under way go on.",
	}, func(ctx context.Context, in *IDInput) (*struct{}, error) {
		return nil, d.Core.Previews().EndLinks(ctx, in.ID)
	})
	d.OpenAPI.AddOperation(d.connectOperation())
}

// connectOperation describes the WebSocket, which is a door of its own.
func (d *door) connectOperation() *huma.Operation {
	low, high := 1.0, 65535.0
	return &huma.Operation{
		OperationID: "connect-port", Method: http.MethodGet, Path: "/v1/sandboxes/{id}/ports/{port}/connect", Tags: []string{"ports"},
		Summary: "Connect to a TCP port, as a WebSocket",
		Description: "Binary messages are the bytes of one TCP connection, in both directions. An empty one ends its direction, and the other goes on. " +
			"Code 1000 closes the WebSocket when both have ended, and 1011 when the connection to the program broke. It is activity when it begins and when bytes flow, and wakes the sandbox as commands do. 502 when nothing listens. " +
			"The subprotocol is cubby.port.v1; a page gives its token as a further one, cubby.token. followed by the token in unpadded base64url.",
		Parameters: []*huma.Param{
			{Name: "id", In: "path", Required: true, Schema: &huma.Schema{Type: huma.TypeString}},
			{Name: "port", In: "path", Required: true, Schema: &huma.Schema{Type: huma.TypeInteger, Minimum: &low, Maximum: &high}},
		},
		Responses: map[string]*huma.Response{
			"101":     {Description: "A connection to the port"},
			"default": d.ErrorResponse(),
		},
	}
}
