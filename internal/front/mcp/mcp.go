// Package mcp is the door for agents: the Model Context Protocol over
// streamable HTTP at /mcp. Its tools are those of internal/tools: the six of
// sandbox-agent, with the shapes that those have, and some more for files and long
// commands; files are resources too. The door makes what a tool gives fit into a
// message.
//
// The conversation of a call is that of the request's Cubby-Thread header, else
// the principal's name. What a tool refuses or fails at is a result that a model can
// read, never an error of the protocol.
//
// The endpoint speaks the protocol's stateless revisions and the older ones
// with sessions: each has its handler, and the version header decides.
package mcp

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/cubbyhq/cubby/internal/auth"
	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/core/admission"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/tools"
)

const (
	// Path is where the door is.
	Path = "/mcp"
	// ThreadHeader names the conversation that a request belongs to.
	ThreadHeader = "Cubby-Thread"
	// Interface is the way through which the tools make sandboxes, and
	// SixInterface that of clients which ask for the tools of sandbox-agent alone.
	Interface    admission.Interface = "mcp"
	SixInterface admission.Interface = "sandbox-agent"
	// MaxBody bounds a request. Files that are imported inline are in it, and
	// base64 takes a third more than they do.
	MaxBody = 64 << 20

	// stateless is the first revision without sessions.
	stateless = "2026-07-28"
	// maxSessions bounds the protocol sessions of a principal: the one that is
	// idle longest gives way. idleAfter without a request ends one too.
	maxSessions = 1000
	idleAfter   = 4 * time.Hour
)

// SixLimits are what sandbox-agent documents for its sandboxes.
func SixLimits() sandbox.Limits {
	return sandbox.Limits{MemoryBytes: 2 << 30, CPUs: 2, PIDs: 512}
}

// Config is what a Door needs.
type Config struct {
	Core    *core.Service
	Log     *slog.Logger
	Version string
	// Spool is where files are that come inside of requests.
	Spool front.Spool
	// Life ends when the daemon begins to stop: streams end, and tools that
	// wait say under which number their command goes on.
	Life context.Context //nolint:containedctx // it outlives every request
}

// Door serves MCP. It expects to stand behind [front.Handler].
type Door struct {
	core    *core.Service
	tools   *tools.Set
	log     *slog.Logger
	version string
	life    context.Context //nolint:containedctx // as in Config
	work    context.Context //nolint:containedctx // ends when nothing may go on any more
	cut     context.CancelFunc
	spool   front.Spool
	long    front.Documents // of the requests that are being served
	idle    time.Duration   // ends protocol sessions that nobody uses
	quiet   time.Duration   // after which a stream says that it lives
	streams sync.Map        // the responses that are being written, by a name of their own

	mu        sync.Mutex
	endpoints map[auth.Principal]*endpoint // guarded by mu
	closed    bool                         // guarded by mu
}

// endpoint serves one principal. A protocol session keeps the principal that
// began it, and in another one's handler its id does not exist.
type endpoint struct {
	server             *sdk.Server // of the sessions
	clients            *clients
	sessions, requests http.Handler
}

// New returns a Door. It starts nothing.
func New(c Config) *Door {
	d := &Door{
		core: c.Core, log: c.Log, version: c.Version, spool: c.Spool, life: c.Life, idle: idleAfter, quiet: keepAlive,
		endpoints: make(map[auth.Principal]*endpoint),
	}
	d.work, d.cut = context.WithCancel(context.WithoutCancel(c.Life))
	d.tools = tools.New(tools.Config{Core: c.Core, Log: c.Log, Life: c.Life, Work: d.work, Bounds: bounds})
	return d
}

// Register puts the door on mux.
func (d *Door) Register(mux *http.ServeMux) {
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
		mux.Handle(method+" "+Path, d)
	}
	mux.HandleFunc(Path, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", "GET, POST, DELETE")
		_, p := front.ProblemOf(r.Context(), errs.E(errs.Invalid, "%s is not a method of this endpoint", r.Method))
		front.WriteJSON(w, http.StatusMethodNotAllowed, p)
	})
}

func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e := d.endpoint(auth.From(r.Context()))
	if e == nil {
		front.WriteProblem(w, r, errs.E(errs.Unready, "the daemon is stopping"))
		return
	}
	if r.Method == http.MethodPost {
		doc, err := d.spool.SetAside(r.Context(), front.StreamedBody(r), MaxBody)
		if err != nil {
			front.WriteProblem(w, r, err)
			return
		}
		defer doc.Close()
		defer d.long.Add(doc)()
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(doc.JSON)), int64(len(doc.JSON))
	}
	if r.Header.Get("Mcp-Protocol-Version") >= stateless {
		d.serve(e.requests, w, r)
		return
	}
	session := r.Header.Get("Mcp-Session-Id")
	if r.Method == http.MethodPost && session == "" && !e.clients.room() {
		front.WriteProblem(w, r, errs.E(errs.OverQuota, "this client has %d MCP sessions in use", maxSessions).
			Hint("wait for the calls of some to end").RetryAfter(time.Minute))
		return
	}
	defer e.clients.using(session, r.Method)()
	if r.Method == http.MethodGet { // a stream that lasts as long as the client likes
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(d.life, cancel)()
		r = r.WithContext(ctx)
	}
	d.serve(e.sessions, w, r)
	if session == "" {
		e.clients.began(w.Header().Get("Mcp-Session-Id"))
	}
}

// endpoint returns that of a principal; nil when the door is closed.
func (d *Door) endpoint(p auth.Principal) *endpoint {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	e := d.endpoints[p]
	if e == nil {
		e = d.newEndpoint()
		d.endpoints[p] = e
	}
	return e
}

func (d *Door) newEndpoint() *endpoint {
	handler := func(s *sdk.Server, o sdk.StreamableHTTPOptions) http.Handler {
		// What a Host and an Origin may be is decided before the doors.
		o.DisableLocalhostProtection, o.MaxRequestBodyBytes = true, MaxBody
		return sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, &o)
	}
	e := &endpoint{server: d.newServer()}
	e.clients = newClients(e.server)
	e.sessions = handler(e.server, sdk.StreamableHTTPOptions{SessionTimeout: d.idle, EventStore: newReplay()})
	e.requests = handler(d.newServer(), sdk.StreamableHTTPOptions{Stateless: true, PropagateRequestCancellation: true})
	return e
}

// Close ends every session and waits for their calls, until ctx ends; then it
// breaks the calls off. It is called when no requests come any more.
func (d *Door) Close(ctx context.Context) {
	d.mu.Lock()
	d.closed = true
	endpoints := d.endpoints
	d.endpoints = nil
	d.mu.Unlock()
	defer context.AfterFunc(ctx, d.cut)()
	var sessions sync.WaitGroup
	for _, e := range endpoints {
		for s := range e.server.Sessions() {
			sessions.Go(func() { _ = s.Close() }) // what it could say is of a transport that is gone
		}
	}
	sessions.Wait()
	d.cut()
}
