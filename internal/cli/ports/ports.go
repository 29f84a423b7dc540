// Package ports is what the commands about the ports of a sandbox do: it lists
// them and finds the addresses of their previews.
package ports

import (
	"context"
	"io"
	"strconv"
	"time"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/cli/format"
)

// Print lists ports as a table.
func Print(out io.Writer, ports []client.Port) error {
	rows := make([][]string, len(ports))
	for i, p := range ports {
		program, declared := p.Program, ""
		if !p.Listening {
			program = "(nothing listens)"
		}
		if p.Declared {
			declared = "declared"
		}
		rows[i] = []string{strconv.Itoa(p.Port), program, p.URL, declared}
	}
	return format.Table(out, []string{"PORT", "PROGRAM", "URL", ""}, rows)
}

// Address is where a port is seen.
type Address struct {
	URL       string     `json:"url"`
	ExpiresAt *time.Time `json:"expires_at,omitempty"` // of a link; nil: it is none
}

// Find returns the address of a port: the plain one where everybody may see it,
// else a link that holds for a time, 0 being the daemon's default. A time, or
// link, asks for a link in any case.
func Find(ctx context.Context, c *client.Client, id string, port int, link bool, holds time.Duration) (Address, error) {
	if !link && holds == 0 {
		url, err := open(ctx, c, id, port)
		if err != nil || url != "" {
			return Address{URL: url}, err
		}
	}
	l, err := c.PortLink(ctx, id, port, holds)
	return Address{URL: l.URL, ExpiresAt: &l.ExpiresAt}, err
}

// open is the address of a port that everybody may see; "" when not everybody
// may.
func open(ctx context.Context, c *client.Client, id string, port int) (string, error) {
	box, err := c.Get(ctx, id)
	if err != nil || box.Visibility != "public" {
		return "", err
	}
	ports, err := c.Ports(ctx, id)
	if err != nil {
		return "", err
	}
	for _, p := range ports {
		if p.Port == port && p.Declared {
			return p.URL, nil
		}
	}
	return "", nil
}
