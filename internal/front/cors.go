package front

import (
	"net/http"

	connectcors "connectrpc.com/cors"
	"github.com/rs/cors"
)

// CORS lets web pages of some origins use what next serves. It stands before
// [Handler]: browsers ask first, and without a token. Pages send tokens
// themselves, in headers; cookies and the like are not let through.
func CORS(origins []string, next http.Handler) http.Handler {
	if len(origins) == 0 {
		return next
	}
	return cors.New(cors.Options{
		AllowedOrigins: origins,
		AllowedMethods: []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete},
		AllowedHeaders: []string{"*"},
		ExposedHeaders: append(connectcors.ExposedHeaders(),
			"Content-Disposition", "Content-Length", "Content-Location", "Content-Range", "Location", "Mcp-Session-Id", "Retry-After",
			RestoreIncomplete,
			"X-Pagination-Next", "X-Pagination-Total", "X-Request-Id"),
		MaxAge: 600,
	}).Handler(next)
}
