package rest

import (
	"context"
	"net/http"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Port is a TCP port of a sandbox.
type Port struct {
	Port      int    `json:"port"`
	Listening bool   `json:"listening" doc:"Whether something accepts connections now."`
	Declared  bool   `json:"declared" doc:"Whether it is among the sandbox's ports."`
	Program   string `json:"program" doc:"The name of a process that listens; empty when that cannot be told."`
	PID       int64  `json:"pid" doc:"Its id inside the sandbox; 0 when that cannot be told."`
}

// PortList is the ports of a sandbox.
type PortList struct {
	Ports []Port `json:"ports" nullable:"false" doc:"By number."`
}

func portJSON(p sandbox.Port) Port {
	return Port{Port: p.Port, Listening: p.Listening, Declared: p.Declared, Program: p.Program, PID: p.PID}
}

func (d *door) portRoutes() {
	register(d, operation{
		id: "list-ports", method: http.MethodGet, path: "/v1/sandboxes/{id}/ports", tag: "ports",
		summary:     "List the ports that something listens on, and the declared ones",
		description: "It is no activity and wakes nothing: of a sandbox that does not run it lists the declared ports, on which nothing listens then. The agent's own ports and those of kernels are left out.",
	}, func(ctx context.Context, in *IDInput) (*struct{ Body PortList }, error) {
		ports, err := d.Core.Ports().List(ctx, in.ID)
		if err != nil {
			return nil, err
		}
		out := PortList{Ports: make([]Port, len(ports))}
		for i, p := range ports {
			out.Ports[i] = portJSON(p)
		}
		return &struct{ Body PortList }{out}, nil
	})
}
