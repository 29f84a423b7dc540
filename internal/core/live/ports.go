package live

import (
	"cmp"
	"context"
	"net"
	"slices"
	"time"

	"github.com/cubbyhq/cubby/internal/core/live/activity"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Ports is the TCP ports of sandboxes.
type Ports struct{ s *Sandboxes }

// List returns the ports of a sandbox that something listens on, and the
// declared ones, by number. It is a look: one that does not run has its declared
// ports, on which nothing listens then, and goes on resting.
func (h *Ports) List(ctx context.Context, id string) ([]sandbox.Port, error) {
	b, err := h.s.cfg.Scope.Find(ctx, id)
	if err != nil {
		return nil, err
	}
	var ports []sandbox.Port
	if b.State == sandbox.Running {
		_, r, err := h.s.Find(ctx, id)
		if err != nil {
			return nil, err
		}
		if ports, err = r.Guest.Ports(ctx); err != nil {
			return nil, err
		}
	}
	return withDeclared(ports, b.Spec.DeclaredPorts()), nil
}

// Get returns one port of a sandbox, whatever listens on it.
func (h *Ports) Get(ctx context.Context, id string, port int) (sandbox.Port, error) {
	if err := sandbox.ValidatePort(port); err != nil {
		return sandbox.Port{}, err
	}
	ports, err := h.List(ctx, id)
	if err != nil {
		return sandbox.Port{}, err
	}
	if i := slices.IndexFunc(ports, func(p sandbox.Port) bool { return p.Port == port }); i >= 0 {
		return ports[i], nil
	}
	return sandbox.Port{Port: port}, nil
}

// withDeclared adds the declared ports to those that something listens on.
func withDeclared(ports []sandbox.Port, declared []int) []sandbox.Port {
	for i := range ports {
		ports[i].Declared = slices.Contains(declared, ports[i].Port)
	}
	for _, port := range declared {
		if !slices.ContainsFunc(ports, func(p sandbox.Port) bool { return p.Port == port }) {
			ports = append(ports, sandbox.Port{Port: port, Declared: true})
		}
	}
	slices.SortFunc(ports, func(a, b sandbox.Port) int { return cmp.Compare(a.Port, b.Port) })
	return ports
}

// Dial opens a stream to a port on the loopback of the caller's sandbox. It
// keeps the sandbox in use until it is closed.
func (h *Ports) Dial(ctx context.Context, id string, port int) (net.Conn, error) {
	if err := sandbox.ValidatePort(port); err != nil {
		return nil, err
	}
	_, r, done, err := h.s.Use(ctx, id)
	if err != nil {
		return nil, err
	}
	conn, err := Connect(ctx, r, port)
	if err != nil {
		done()
		return nil, err
	}
	return &dialed{conn, done}, nil
}

// Ends reports whether the sandbox of a run is being ended.
func Ends(r *Run) bool { return r.execs.endingNow() != nil }

// Connect opens a stream to a port on the loopback of what runs. By itself it is
// no use. Exhausted when there are too many.
func Connect(ctx context.Context, r *Run, port int) (net.Conn, error) {
	closed, ok := r.activity.Connect()
	if !ok {
		return nil, errs.E(errs.Exhausted, "%d connections to ports of this sandbox are open", activity.MaxPortConns).RetryAfter(time.Second)
	}
	conn, err := r.Guest.DialPort(ctx, port)
	if err != nil {
		closed()
		return nil, err
	}
	return &dialed{conn, closed}, nil
}

// dialed does something when the connection is closed.
type dialed struct {
	net.Conn
	done func()
}

func (d *dialed) Close() error {
	defer d.done()
	return d.Conn.Close()
}

// CloseWrite ends the direction to the sandbox, where the stream can.
func (d *dialed) CloseWrite() error {
	if c, ok := d.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return errs.E(errs.Unsupported, "the stream has one end for both directions")
}
