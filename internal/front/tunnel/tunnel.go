// Package tunnel is the door to the bare TCP ports of sandboxes, for callers of
// the API: a WebSocket is one connection to a port. Binary messages are the
// bytes, in both directions. An empty one ends its direction, and the other goes
// on.
//
// A connection ends with a code: 1000 when both directions have ended, 1001 when
// the daemon stops, 1003 after a text message, 1008 after bytes that follow the
// end, 1009 after a message that is too long, 1011 when the connection to the
// program broke.
package tunnel

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/core/preview"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front"
)

// Pattern is where the door stands.
const Pattern = "GET /v1/sandboxes/{id}/ports/{port}/connect"

// Subprotocol is what a connection speaks.
const Subprotocol = "cubby.port.v1"

// dialTime bounds a connection to a port; the agent gives up earlier.
const dialTime = 10 * time.Second

// Door serves connections to ports. It expects to stand behind [front.Handler],
// which has checked the token, or the Host and the Origin.
type Door struct {
	core  *core.Service
	life  context.Context //nolint:containedctx // it outlives every request
	conns sync.WaitGroup
}

// New returns a door whose connections end with life.
func New(c *core.Service, life context.Context) *Door { return &Door{core: c, life: life} }

// Wait returns when no connection is left, or when ctx ends. The server does
// not wait for them: they are not its own any more.
func (d *Door) Wait(ctx context.Context) { front.WaitFor(ctx, &d.conns) }

// ServeHTTP connects to a port. An error is answered as by the rest of the API,
// before the connection changes its protocol.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.conns.Add(1)
	defer d.conns.Done()
	visit, err := d.open(r)
	if err != nil {
		front.WriteProblem(w, r, err)
		return
	}
	defer visit.Done()
	dialing, cancel := context.WithTimeout(r.Context(), dialTime)
	port, err := visit.Dial(dialing)
	cancel()
	if err != nil {
		front.WriteProblem(w, r, err)
		return
	}
	defer port.Close()
	// The origin was checked where it matters; with tokens any page may
	// connect that has one.
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{
		Subprotocols: []string{Subprotocol}, InsecureSkipVerify: true, CompressionMode: websocket.CompressionDisabled,
	})
	if err != nil {
		return // it was answered
	}
	// From here on the sandbox is in use when bytes flow.
	visit.Rest()
	s := &session{visit: visit, port: port, client: conn}
	s.serve(r.Context(), d.life)
}

func (d *Door) open(r *http.Request) (*preview.Visit, error) {
	if !front.IsWebSocket(r.Header) {
		return nil, errs.E(errs.Invalid, "this endpoint is a WebSocket").Hint("connect with a WebSocket client, or use `cubby port-forward`")
	}
	if r.URL.RawQuery != "" {
		return nil, errs.E(errs.Invalid, "this endpoint has no parameters")
	}
	port, err := strconv.Atoi(r.PathValue("port"))
	if err != nil {
		return nil, errs.E(errs.Invalid, "%.40q is no port", r.PathValue("port"))
	}
	return d.core.Previews().Open(r.Context(), r.PathValue("id"), port)
}
