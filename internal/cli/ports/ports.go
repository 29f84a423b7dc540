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
	ExpiresAt *time.Time `json:"expires_at,omitempty"` // of a link whose time was given
}

// Find returns the address of a port: the plain one where everybody may see it,
// else a link. A time, or link, asks for a link in any case; a time of 0 is the
// daemon's default.
func Find(ctx context.Context, c *client.Client, id string, port int, link bool, holds time.Duration) (Address, error) {
	if !link && holds == 0 {
		url, err := c.PortURL(ctx, id, port)
		return Address{URL: url}, err
	}
	l, err := c.PortLink(ctx, id, port, holds)
	return Address{URL: l.URL, ExpiresAt: &l.ExpiresAt}, err
}
