package client

import (
	"context"
	"net/http"
)

// Port is a TCP port of a sandbox that something listens on, or that the
// sandbox declares.
type Port struct {
	Port      int    `json:"port"`
	Listening bool   `json:"listening"` // something accepts connections now
	Declared  bool   `json:"declared"`  // it is among the sandbox's Ports
	Program   string `json:"program"`   // name of a process that listens; "": cannot be told
	PID       int64  `json:"pid"`       // of that process, inside the sandbox; 0: cannot be told
}

// Ports lists the ports of a sandbox that something listens on, and the
// declared ones, by number. It wakes nothing: of a sandbox that does not run it
// lists the declared ports.
func (c *Client) Ports(ctx context.Context, id string) ([]Port, error) {
	var answer struct {
		Ports []Port `json:"ports"`
	}
	err := c.do(ctx, call{method: http.MethodGet, path: sandboxPath(id, "ports")}, &answer)
	return answer.Ports, err
}
