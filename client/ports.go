package client

import (
	"context"
	"net/http"
	"strconv"
	"time"
)

// Port is a TCP port of a sandbox that something listens on, or that the
// sandbox declares.
type Port struct {
	Port      int    `json:"port"`
	Listening bool   `json:"listening"` // something accepts connections now
	Declared  bool   `json:"declared"`  // it is among the sandbox's Ports
	Program   string `json:"program"`   // name of a process that listens; "": cannot be told
	PID       int64  `json:"pid"`       // of that process, inside the sandbox; 0: cannot be told
	// URL is its preview, for whoever may see it; "" while the daemon serves none.
	URL string `json:"url,omitempty"`
}

// Link shows a port to whoever has it.
type Link struct {
	URL       string    `json:"url"`
	ExpiresAt time.Time `json:"expires_at"`
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

// Port returns one port of a sandbox, whether or not something listens on it.
func (c *Client) Port(ctx context.Context, id string, port int) (Port, error) {
	var p Port
	return p, c.do(ctx, call{method: http.MethodGet, path: sandboxPath(id, "ports", strconv.Itoa(port))}, &p)
}

// PortURL is the address of a port's preview for whoever has it: the plain one
// where everybody may see the port, else a link that holds for a day.
func (c *Client) PortURL(ctx context.Context, id string, port int) (string, error) {
	box, err := c.Get(ctx, id)
	if err != nil {
		return "", err
	}
	if box.Visibility == "public" {
		p, err := c.Port(ctx, id, port)
		if err != nil || p.Declared && p.URL != "" {
			return p.URL, err
		}
	}
	l, err := c.PortLink(ctx, id, port, 0)
	return l.URL, err
}

// PortLink makes a link to the preview of a port, which holds for a time, 0
// being a day, or until [Client.EndLinks].
func (c *Client) PortLink(ctx context.Context, id string, port int, holds time.Duration) (Link, error) {
	var in struct {
		ExpiresIn float64 `json:"expires_in,omitempty"`
	}
	in.ExpiresIn = holds.Seconds()
	var l Link
	return l, c.do(ctx, call{method: http.MethodPost, path: sandboxPath(id, "ports", strconv.Itoa(port), "links"), json: in}, &l)
}

// EndLinks ends all links to the ports of a sandbox.
func (c *Client) EndLinks(ctx context.Context, id string) error {
	return c.do(ctx, call{method: http.MethodDelete, path: sandboxPath(id, "links")}, nil)
}
