package front_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/front"
)

// TestCORSOfChatApplications: pages may send what LangGraph's SDK sends, and read where
// a run is and how long a list is.
func TestCORSOfChatApplications(t *testing.T) {
	const origin = "https://chat.example"
	h := front.CORS([]string{origin}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	ask := func(method string, headers ...string) http.Header {
		r := httptest.NewRequestWithContext(t.Context(), method, "/agent/threads/search", nil)
		r.Header.Set("Origin", origin)
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Header()
	}
	allowed := strings.ToLower(ask(http.MethodOptions, "Access-Control-Request-Method", "POST",
		"Access-Control-Request-Headers", "content-type,last-event-id,x-api-key,x-auth-scheme").Get("Access-Control-Allow-Headers"))
	for _, name := range []string{"content-type", "last-event-id", "x-api-key", "x-auth-scheme"} {
		if !strings.Contains(allowed, name) {
			t.Errorf("%s may not be sent: %q", name, allowed)
		}
	}
	exposed := strings.ToLower(ask(http.MethodPost).Get("Access-Control-Expose-Headers"))
	for _, name := range []string{"content-location", "location", "x-pagination-total", "x-pagination-next"} {
		if !strings.Contains(exposed, name) {
			t.Errorf("%s may not be read: %q", name, exposed)
		}
	}
}
