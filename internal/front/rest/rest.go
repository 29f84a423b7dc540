// Package rest is the REST door: the canonical API below /v1, the answers to
// "are you there", and the pages that describe the API, all thin on core. A
// handler decodes, makes one call to core and encodes; rules about sandboxes live
// below it, and the paths of other systems beside it. The OpenAPI document is
// generated from the code and committed as api/openapi.json.
//
// Requests are read strictly: an unknown field, an unknown query parameter and
// a wrong type are errors that name the culprit. Bodies of files, archives and
// output are streamed and never held.
package rest

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/cubbyhq/cubby/internal/front"
	"github.com/cubbyhq/cubby/internal/front/httpapi"
	"github.com/cubbyhq/cubby/internal/front/rest/problem"
)

// door serves the canonical API.
type door struct {
	*httpapi.Server

	api huma.API
}

// Register adds the canonical API to s.
func Register(s *httpapi.Server) {
	d := &door{Server: s}
	s.OpenAPI.Tags = append(s.OpenAPI.Tags, tags...)
	d.api = humago.New(s.Mux, apiConfig(s.OpenAPI))
	d.api.UseMiddleware(problem.Strict)

	d.sandboxRoutes()
	d.execRoutes()
	d.streamRoutes()
	d.fileRoutes()
	d.archiveRoutes()
	d.exportRoutes()
	d.importRoutes()
	d.threadRoutes()
	d.tenantRoutes()
	d.secretRoutes()
	d.snapshotRoutes()
	d.gitRoutes()
	d.packagesRoutes()
	d.keptArchiveRoutes()
	d.terminalRoutes()
	d.sessionRoutes()
	d.networkRoutes()
	d.portRoutes()
	d.serviceRoutes()
	d.taskRoutes()
	d.codeRoutes()
	d.kernelRoutes()
	d.codeAskRoutes()
	d.imageRoutes()
	d.hostRoutes()
	d.docsRoutes()
}

// Access is the rule for every route of [httpapi.Server]: everything needs a
// token except the answers to "are you there" and the description of the API.
func Access(r *http.Request) front.Access {
	switch r.URL.Path {
	case "/healthz", "/readyz", "/health", "/openapi.json", "/docs", "/docs.js", "/llms.txt", "/llm.txt":
		return front.Anyone
	case "/metrics":
		return front.TokenOrLocal
	}
	return front.Token
}
