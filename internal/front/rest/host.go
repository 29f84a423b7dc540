package rest

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cubbyhq/cubby/internal/auth"
	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front"
)

// Image is a root filesystem that sandboxes can start from.
type Image struct {
	Name      string    `json:"name"`
	Digest    string    `json:"digest"`
	Size      int64     `json:"size" doc:"Bytes on the host's disk."`
	CreatedAt time.Time `json:"created_at"`
	Source    string    `json:"source,omitempty"`
	Damaged   bool      `json:"damaged,omitempty" doc:"No sandbox starts from it."`
	Problem   string    `json:"problem,omitempty" doc:"What is damaged."`
}

// ImageList is all images.
type ImageList struct {
	Images []Image `json:"images" nullable:"false"`
}

// notReady is the answer of /readyz when something is wrong.
type notReady struct {
	Error    string         `json:"error"`
	Problems []core.Problem `json:"problems"`
}

func (d *Door) hostRoutes() {
	register(d, operation{
		id: "list-images", method: http.MethodGet, path: "/v1/images", tag: "host", summary: "List images",
	}, func(ctx context.Context, _ *struct{}) (*struct{ Body ImageList }, error) {
		images, err := d.core.Images(ctx)
		if err != nil {
			return nil, err
		}
		out := ImageList{Images: make([]Image, len(images))}
		for i, m := range images {
			out.Images[i] = Image{Name: m.Name, Digest: m.Digest, Size: m.Size, CreatedAt: m.CreatedAt.UTC(), Source: m.Source, Damaged: m.Damaged, Problem: m.Problem}
		}
		return &struct{ Body ImageList }{out}, nil
	})
	d.plain("health", "/healthz", "Whether the daemon answers", func(w http.ResponseWriter, _ *http.Request) {
		writeText(w, "ok\n")
	})
	d.plain("ready", "/readyz", "Whether the daemon can do its work, and what is wrong", func(w http.ResponseWriter, r *http.Request) {
		problems := d.core.Ready(r.Context())
		if len(problems) == 0 {
			writeText(w, "ready\n")
			return
		}
		front.WriteJSON(w, http.StatusServiceUnavailable, notReady{Error: problems[0].Part + ": " + problems[0].Message, Problems: problems})
	})
	d.plain("health-json", "/health", "Whether the daemon answers, as JSON", func(w http.ResponseWriter, _ *http.Request) {
		front.WriteJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	d.plain("metrics", "/metrics", "Metrics in the Prometheus text format; not for tokens of a tenant", func(w http.ResponseWriter, r *http.Request) {
		// They count what all tenants do.
		if auth.From(r.Context()).Tenant != "" {
			d.Error(w, r, errs.E(errs.Forbidden, "metrics are the operator's").Hint("use a token that belongs to no tenant"))
			return
		}
		d.metrics.Handler().ServeHTTP(w, r)
	})
}

// plain adds an endpoint without input that writes its own response.
func (d *Door) plain(id, path, summary string, h http.HandlerFunc) {
	d.mux.HandleFunc("GET "+path, h)
	op := &huma.Operation{
		OperationID: id, Method: http.MethodGet, Path: path, Tags: []string{"host"}, Summary: summary,
		Responses: map[string]*huma.Response{"200": {Description: "OK"}},
	}
	if r, err := http.NewRequest(http.MethodGet, path, nil); err == nil && d.Access(r) == front.Anyone {
		op.Security = []map[string][]string{}
	}
	d.api.OpenAPI().AddOperation(op)
}

func writeText(w http.ResponseWriter, s string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte(s)) // the client went away
}
