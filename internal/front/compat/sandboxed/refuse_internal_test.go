package sandboxed

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
)

func TestRefusalsHaveSandboxedsWords(t *testing.T) {
	tests := []struct {
		err    error
		status int
		retry  string
		body   string
	}{
		{errs.E(errs.LowMemory, "the host's memory is at its reserve").RetryAfter(30 * time.Second), http.StatusServiceUnavailable, "30", `{"error":"low_memory"}`},
		{errs.E(errs.WrongState, "the sandbox is stopped").Hint("start it"), http.StatusConflict, "", `{"error":"the sandbox is stopped: start it"}`},
	}
	for _, tt := range tests {
		w := httptest.NewRecorder()
		refuse(w, tt.err)
		if w.Code != tt.status || w.Header().Get("Retry-After") != tt.retry || w.Body.String() != tt.body+"\n" {
			t.Errorf("%v = %d, Retry-After %q, %s; want %d, %q, %s", tt.err, w.Code, w.Header().Get("Retry-After"), w.Body, tt.status, tt.retry, tt.body)
		}
	}
}
