// Package httpapi is the HTTP API that REST and the dialects of other systems
// register their routes at: one mux, one OpenAPI document, and the choice of the
// dialect that answers a request. It also has what their handlers share: answers
// too long to hold, waits that end with the daemon, and downloads. It has no
// route and no word of its own; a dialect's are in the dialect's package.
package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// Config is what a Server needs.
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

// Server serves the API. It expects to stand behind [front.Handler].
type Server struct {
	Config

	Mux     *http.ServeMux
	OpenAPI *huma.OpenAPI

	dialects []*Dialect        // in the order of their registration
	routes   map[string]*path  // of dialects, by pattern
	prefixes map[string]string // of schemas' names, by the package of their types
}

// New returns the API of what the registrars register, in their order.
func New(c Config, registrars ...func(*Server)) *Server {
	if c.Life == nil {
		c.Life = context.Background()
	}
	if c.BodyLimit == 0 {
		c.BodyLimit = 1 << 20
	}
	s := &Server{
		Config: c, Mux: http.NewServeMux(),
		routes: map[string]*path{}, prefixes: map[string]string{},
	}
	s.OpenAPI = s.newDocument()
	for _, register := range registrars {
		register(s)
	}
	s.Mux.HandleFunc("/", s.unknown)
	s.completeDocument()
	return s
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.Mux.ServeHTTP(w, r) }

// Document is the OpenAPI document.
func (s *Server) Document() ([]byte, error) { return json.MarshalIndent(s.OpenAPI, "", "  ") }

// Error answers in the dialect of the request.
func (s *Server) Error(w http.ResponseWriter, r *http.Request, err error) {
	s.LogInternal(r.Context(), err)
	if d := s.spoken(r); d != nil {
		d.Refuse(w, err)
		return
	}
	front.WriteProblem(w, r, err)
}

// LogInternal is the one place where the API logs an error: what is not the
// client's doing, with the cause that the client is not shown.
func (s *Server) LogInternal(ctx context.Context, err error) {
	if kind := errs.KindOf(err); (kind == errs.Internal || kind == errs.Unavailable) && !errors.Is(err, context.Canceled) {
		s.Log.ErrorContext(ctx, "request failed", telemetry.KeyErr, err, telemetry.KeyRequest, front.RequestID(ctx))
	}
}

// Said is the text of the error of one entry of an answer.
func (s *Server) Said(ctx context.Context, err error) string {
	s.LogInternal(ctx, err)
	return front.Public(err).Message
}

var methods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
}

// unknown tells a wrong method from a wrong path.
func (s *Server) unknown(w http.ResponseWriter, r *http.Request) {
	var allowed []string
	for _, m := range methods {
		probe := r.Clone(r.Context())
		probe.Method = m
		if _, pattern := s.Mux.Handler(probe); pattern != "/" && pattern != "" {
			allowed = append(allowed, m)
		}
	}
	if len(allowed) == 0 {
		s.Error(w, r, errs.E(errs.NotFound, "no such endpoint").Hint("the endpoints are listed at /docs"))
		return
	}
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	err := errs.E(errs.Invalid, "%s is not a method of this endpoint", r.Method).Hint("allowed: %s", strings.Join(allowed, ", "))
	if d := s.spoken(r); d != nil && d.RefuseMethod != nil {
		d.RefuseMethod(w, err)
		return
	}
	_, p := front.ProblemOf(r.Context(), err)
	front.WriteJSON(w, http.StatusMethodNotAllowed, p)
}
