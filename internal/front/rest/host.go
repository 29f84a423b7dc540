package rest

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cubbyhq/cubby/internal/auth"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front"
	"github.com/cubbyhq/cubby/internal/front/httpapi"
)

// NotReady is the answer of /readyz when something is wrong.
type NotReady struct {
	Error    string        `json:"error"`
	Problems []HostProblem `json:"problems" nullable:"false"`
}

// HostProblem is a part of the daemon that does not work.
type HostProblem struct {
	Part    string `json:"part" example:"store"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// Health is the answer of /health.
type Health struct {
	Status string `json:"status" enum:"ok"`
}

func (d *door) hostRoutes() {
	text := httpapi.Media("text/plain", &huma.Schema{Type: huma.TypeString})
	d.plain("health", "/healthz", "Whether the daemon answers", text, func(w http.ResponseWriter, _ *http.Request) {
		writeText(w, "ok\n")
	})
	d.plain("ready", "/readyz", "Whether the daemon can do its work, and what is wrong", text, func(w http.ResponseWriter, r *http.Request) {
		problems := d.Core.Ready(r.Context())
		if len(problems) == 0 {
			writeText(w, "ready\n")
			return
		}
		out := NotReady{Error: problems[0].Part + ": " + problems[0].Message}
		for _, p := range problems {
			out.Problems = append(out.Problems, HostProblem(p))
		}
		front.WriteJSON(w, http.StatusServiceUnavailable, out)
	})
	d.plain("health-json", "/health", "Whether the daemon answers, as JSON", httpapi.Media("application/json", d.Schema(Health{}, "Health")), func(w http.ResponseWriter, _ *http.Request) {
		front.WriteJSON(w, http.StatusOK, Health{"ok"})
	})
	d.Documented(http.MethodGet, "/readyz").Responses["503"] = &huma.Response{
		Description: "Not ready", Content: httpapi.Media("application/json", d.Schema(NotReady{}, "NotReady")),
	}
	d.plain("metrics", "/metrics", "Metrics in the Prometheus text format; not for tokens of a tenant", text, func(w http.ResponseWriter, r *http.Request) {
		// They count what all tenants do.
		if auth.From(r.Context()).Tenant != "" {
			d.Error(w, r, errs.E(errs.Forbidden, "metrics are the operator's").Hint("use a token that belongs to no tenant"))
			return
		}
		d.Metrics.Handler().ServeHTTP(w, r)
	})
}

// plain adds an endpoint without input that writes its own response.
func (d *door) plain(id, path, summary string, answer httpapi.Content, h http.HandlerFunc) {
	d.Mux.HandleFunc("GET "+path, h)
	op := &huma.Operation{
		OperationID: id, Method: http.MethodGet, Path: path, Tags: []string{"host"}, Summary: summary,
		Responses: map[string]*huma.Response{"200": {Description: "OK", Content: answer}},
	}
	if r, err := http.NewRequest(http.MethodGet, path, nil); err == nil && Access(r) == front.Anyone {
		op.Security = []map[string][]string{}
	} else {
		op.Responses["default"] = d.ErrorResponse()
	}
	d.OpenAPI.AddOperation(op)
}

func writeText(w http.ResponseWriter, s string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte(s)) // the client went away
}
