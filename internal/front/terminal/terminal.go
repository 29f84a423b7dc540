// Package terminal is the WebSocket door to terminals: one connection is one
// viewer. Output and keys travel as binary messages, everything else as JSON
// in text messages. It holds no output: a connection reads the terminal's
// journal, so one that is slow holds up nothing but itself, and one that was
// lost is taken up at its offset.
//
// A connection ends with a code: 1000 when the program has ended, 1001 when
// the daemon stops, 1007 after a message that is none of the protocol, 1008
// when the program does not take its input, 1009 after a message that is too
// long, 1011 after a fault of the daemon.
package terminal

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"github.com/coder/websocket"

	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Pattern is where the door stands.
const Pattern = "GET /v1/sandboxes/{id}/terminal"

// Subprotocol is what a connection speaks.
const Subprotocol = "cubby.terminal.v1"

// Config is what a Door needs.
type Config struct {
	Core *core.Service
	Log  *slog.Logger
	// Memory is charged for input that waits for programs; nil: nothing is.
	Memory *front.Budget
	// Life ends when the daemon begins to stop; connections end with it. Nil
	// never ends.
	Life context.Context //nolint:containedctx // it outlives every request
}

// Door serves terminals. It expects to stand behind [front.Handler], which has
// checked the token, or the Host and the Origin.
type Door struct {
	core   *core.Service
	log    *slog.Logger
	memory *front.Budget
	life   context.Context //nolint:containedctx // as in Config
	conns  sync.WaitGroup
}

// New returns a door.
func New(c Config) *Door {
	d := &Door{core: c.Core, log: c.Log, memory: c.Memory, life: c.Life}
	if d.life == nil {
		d.life = context.Background()
	}
	return d
}

// Wait returns when no connection is left, or when ctx ends. The server does
// not wait for them: they are not its own any more.
func (d *Door) Wait(ctx context.Context) { front.WaitFor(ctx, &d.conns) }

// ServeHTTP opens or attaches to a terminal. What is wrong with the request is
// answered as by the rest of the API, before the connection changes its
// protocol.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.conns.Add(1)
	defer d.conns.Done()
	v, err := d.open(r)
	if err != nil {
		front.WriteProblem(w, r, err)
		return
	}
	defer v.Close()
	// The origin was checked where it matters; with tokens any page may
	// connect that has one.
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{
		Subprotocols: []string{Subprotocol}, InsecureSkipVerify: true, CompressionMode: websocket.CompressionDisabled,
	})
	if err != nil {
		return // it was answered
	}
	newSession(d, conn, v).serve(r.Context())
}

func (d *Door) open(r *http.Request) (*live.Viewer, error) {
	if !front.IsWebSocket(r.Header) {
		return nil, errs.E(errs.Invalid, "this endpoint is a WebSocket").Hint("connect with a WebSocket client, or use `cubby terminal`")
	}
	spec, err := parseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, err
	}
	return d.core.Terminals().Open(r.Context(), r.PathValue("id"), spec)
}

// parseQuery reads what a client wants. Like everywhere in the API an unknown
// parameter is an error.
func parseQuery(raw string) (live.TerminalSpec, error) {
	spec := live.TerminalSpec{After: -1}
	q, err := url.ParseQuery(raw)
	if err != nil {
		return spec, errs.E(errs.Invalid, "malformed query")
	}
	for name, values := range q {
		if len(values) > 1 {
			return spec, errs.E(errs.Invalid, "%.40s is given twice", name)
		}
		if err := setParameter(&spec, name, values[0]); err != nil {
			return spec, err
		}
	}
	if (spec.Size.Cols == 0) != (spec.Size.Rows == 0) {
		return spec, errs.E(errs.Invalid, "cols and rows belong together")
	}
	return spec, nil
}

func setParameter(spec *live.TerminalSpec, name, value string) error {
	number := func(bits int) (int64, error) {
		n, err := strconv.ParseInt(value, 10, bits)
		if err != nil || n < 0 {
			return 0, errs.E(errs.Invalid, "%s: not a number that it can be", name)
		}
		return n, nil
	}
	var n int64
	var err error
	switch name {
	case "name":
		spec.Name = value
	case "cmd":
		spec.Shell = value
	case "user":
		spec.User = value
	case "cwd":
		spec.Cwd = value
	case "seq":
		spec.Seq, err = number(64)
	case "after":
		spec.After, err = number(64)
	case "cols":
		n, err = number(16)
		spec.Size.Cols = uint16(n)
	case "rows":
		n, err = number(16)
		spec.Size.Rows = uint16(n)
	default:
		return errs.E(errs.Invalid, "unknown parameter %.40q", name).Hint("there are: %s", strings.Join(parameters, ", "))
	}
	return err
}

var parameters = []string{"name", "cols", "rows", "cmd", "user", "cwd", "after", "seq"}

// exitMessage is how the end of a program is told.
func exitMessage(x sandbox.Exit) exit {
	return exit{Type: "exit", ExitCode: x.Code, Reason: x.Reason, Message: x.Message}
}
