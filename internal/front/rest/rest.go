// Package rest is the HTTP door: the canonical API below /v1 and the paths of
// sandboxed and ecs-sandbox, all thin on core. A handler decodes, makes one call to core and
// encodes; rules about sandboxes live below it. The OpenAPI document is
// generated from the code and committed as api/openapi.json.
//
// Requests are read strictly: an unknown field, an unknown query parameter and
// a wrong type are errors that name the culprit. Bodies of files, archives and
// output are streamed and never held.
package rest

import (
	"context"
	"log/slog"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// Config is what a Door needs.
type Config struct {
	Core    *core.Service
	Metrics *telemetry.Metrics
	Log     *slog.Logger
	Version string
	// BodyLimit bounds JSON bodies; 0 is 1 MiB.
	BodyLimit int64
	// Spool is where the files are that come inside of JSON; the zero value is
	// below the system's directory for temporary files.
	Spool front.Spool
	// Life ends when the daemon begins to stop. Streams and waits, which could
	// go on for ever, end with it; their clients resume at the next daemon.
	// Nil never ends.
	Life context.Context //nolint:containedctx // it outlives every request
}

// Door serves the API. It expects to stand behind [front.Handler].
type Door struct {
	core    *core.Service
	metrics *telemetry.Metrics
	log     *slog.Logger
	limit   int64
	life    context.Context //nolint:containedctx // as in Config

	spool front.Spool

	mux *http.ServeMux
	api huma.API
}

// New registers every route.
func New(c Config) *Door {
	d := &Door{core: c.Core, metrics: c.Metrics, log: c.Log, limit: c.BodyLimit, life: c.Life, spool: c.Spool, mux: http.NewServeMux()}
	if d.life == nil {
		d.life = context.Background()
	}
	if d.limit == 0 {
		d.limit = 1 << 20
	}
	d.api = humago.New(d.mux, apiConfig(c.Version))
	d.api.UseMiddleware(strictJSON)

	d.sandboxRoutes()
	d.execRoutes()
	d.streamRoutes()
	d.fileRoutes()
	d.archiveRoutes()
	d.exportRoutes()
	d.importRoutes()
	d.threadRoutes()
	d.tenantRoutes()
	d.gitRoutes()
	d.packagesRoutes()
	d.keptArchiveRoutes()
	d.terminalRoutes()
	d.sessionRoutes()
	d.networkRoutes()
	d.codeRoutes()
	d.kernelRoutes()
	d.codeAskRoutes()
	d.hostRoutes()
	d.sandboxedRoutes()
	d.ecsRoutes()
	d.docsRoutes()
	d.mux.HandleFunc("/", d.unknown)
	d.completeDocument()
	return d
}

func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) { d.mux.ServeHTTP(w, r) }

// Access is the rule for every route: everything needs a token except the
// answers to "are you there" and the description of the API.
func (d *Door) Access(r *http.Request) front.Access {
	switch r.URL.Path {
	case "/healthz", "/readyz", "/health", "/openapi.json", "/docs", "/docs.js":
		return front.Anyone
	case "/metrics":
		return front.TokenOrLocal
	}
	return front.Token
}

// Error answers in the dialect of the path.
func (d *Door) Error(w http.ResponseWriter, r *http.Request, err error) {
	d.logInternal(r.Context(), err)
	switch {
	case ecsSpoken(r):
		writeECSError(w, err)
		return
	case sandboxedPath(r.URL.Path):
		writeSandboxedError(w, err)
		return
	}
	if agentPath(r.URL.Path) {
		writeAgentError(w, err)
		return
	}
	front.WriteProblem(w, r, err)
}

var methods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
}

// unknown tells a wrong method from a wrong path.
func (d *Door) unknown(w http.ResponseWriter, r *http.Request) {
	var allowed []string
	for _, m := range methods {
		probe := r.Clone(r.Context())
		probe.Method = m
		if _, pattern := d.mux.Handler(probe); pattern != "/" && pattern != "" {
			allowed = append(allowed, m)
		}
	}
	if len(allowed) == 0 {
		d.Error(w, r, errs.E(errs.NotFound, "no such endpoint").Hint("the endpoints are listed at /docs"))
		return
	}
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	err := errs.E(errs.Invalid, "%s is not a method of this endpoint", r.Method).Hint("allowed: %s", strings.Join(allowed, ", "))
	switch {
	case ecsSpoken(r):
		writeECSError(w, &ecsFault{http.StatusMethodNotAllowed, "method_not_allowed", err})
		return
	case sandboxedPath(r.URL.Path):
		front.WriteJSON(w, http.StatusMethodNotAllowed, sandboxedError{Error: err.Error()})
		return
	}
	_, p := front.ProblemOf(r.Context(), err)
	front.WriteJSON(w, http.StatusMethodNotAllowed, p)
}
