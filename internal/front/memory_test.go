package front_test

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/auth"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front"
)

func TestMemoryIsSharedFairly(t *testing.T) {
	m := front.NewBudget(1000)
	as := func(name, tenant string, n int64) (func(), error) {
		return m.Hold(auth.WithPrincipal(t.Context(), auth.Principal{Name: name, Tenant: tenant}), n)
	}
	first, err := as("a", "acme", 400)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, tenant string
		bytes        int64
		refused      bool
	}{
		{"b", "acme", 101, true}, // more than half, with what the other token has
		{"b", "acme", 100, false},
		{"c", "other", 251, true}, // the tenants' three quarters
		{"c", "other", 250, false},
		{"operator", "", 251, true}, // the whole
		{"operator", "", 250, false},
	} {
		if _, err := as(tt.name, tt.tenant, tt.bytes); errors.Is(err, errs.Unready) != tt.refused {
			t.Errorf("%d bytes for %s of %q = %v, want refused: %v", tt.bytes, tt.name, tt.tenant, err, tt.refused)
		}
	}
	first()
	first()
	if _, err := as("b", "acme", 400); err != nil {
		t.Errorf("after a release: %v", err)
	}
}

// TestBodiesAndAnswersBeyondTheMemory: what does not fit is a 503 whatever the
// door makes of its failing reads and writes, and what was held is given back.
func TestBodiesAndAnswersBeyondTheMemory(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /held", func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err != nil {
			http.Error(w, "the body ended early", http.StatusBadRequest)
		}
	})
	mux.HandleFunc("POST /streamed", func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, front.StreamedBody(r))
	})
	mux.HandleFunc("POST /answer", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1048576")
		w.WriteHeader(http.StatusOK)
		_, _ = w.Write(make([]byte, 1<<20))
	})
	h := front.Handler(front.Config{
		Log: slog.New(slog.DiscardHandler), Error: front.WriteProblem, Memory: front.NewBudget(1 << 20),
		Access: func(*http.Request) front.Access { return front.Token },
	}, mux)
	for range 3 { // what one holds must not stay
		for _, tt := range []struct {
			path string
			size int
			want int
		}{
			{"/held", 1 << 10, http.StatusOK},
			{"/held", 64 << 10, http.StatusOK},
			{"/held", 1 << 20, http.StatusServiceUnavailable},
			{"/streamed", 8 << 20, http.StatusOK},
			{"/answer", 0, http.StatusServiceUnavailable},
		} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "http://localhost"+tt.path, strings.NewReader(strings.Repeat("x", tt.size))))
			if w.Code != tt.want {
				t.Errorf("%s with %d bytes: %d %s, want %d", tt.path, tt.size, w.Code, w.Body, tt.want)
			}
			var p front.Problem
			if w.Code == http.StatusServiceUnavailable && (json.Unmarshal(w.Body.Bytes(), &p) != nil || !p.Error.Retryable ||
				w.Header().Get("Content-Length") == "1048576" || w.Header().Get("X-Request-Id") == "" || w.Header().Get("Retry-After") == "") {
				t.Errorf("%s is refused as %v %s", tt.path, w.Header(), w.Body)
			}
		}
	}
}
