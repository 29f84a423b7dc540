package front_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
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
	m := front.NewBudget(1 << 20)
	h := front.Handler(front.Config{
		Log: slog.New(slog.DiscardHandler), Error: front.WriteProblem, Memory: m,
		Access: func(*http.Request) front.Access { return front.Token },
	}, mux)
	// One answer alone is not refused for its size: others hold some.
	for name, n := range map[string]int64{"a": 512 << 10, "b": 1 << 10} {
		if _, err := m.Hold(auth.WithPrincipal(t.Context(), auth.Principal{Name: name}), n); err != nil {
			t.Fatal(err)
		}
	}
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

// TestAnAnswerIsChargedUntilItsRequestHasEnded: what a read holds counts beside
// what is written, one answer alone is never too large, and a call that outlives
// its request is charged as long as it goes on.
func TestAnAnswerIsChargedUntilItsRequestHasEnded(t *testing.T) {
	m := front.NewBudget(1 << 20)
	outlives := make(chan context.Context, 1)
	inside, leave := make(chan error), make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /read", func(w http.ResponseWriter, r *http.Request) {
		err := m.Charge(r.Context(), 8<<20)
		inside <- err
		if err != nil {
			front.WriteProblem(w, r, err)
			return
		}
		<-leave
		_, _ = w.Write(make([]byte, 2<<20)) // covered by the charge
	})
	mux.HandleFunc("POST /read", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if err := m.Charge(r.Context(), 8<<20); err != nil {
			t.Errorf("alone, with a body that is charged too: %v", err)
		}
		_, _ = w.Write(make([]byte, 2<<20))
	})
	mux.HandleFunc("GET /session", func(_ http.ResponseWriter, r *http.Request) { outlives <- context.WithoutCancel(r.Context()) })
	h := front.Handler(front.Config{
		Log: slog.New(slog.DiscardHandler), Error: front.WriteProblem, Memory: m,
		Access: func(*http.Request) front.Access { return front.Token },
	}, mux)
	get := func(path string) <-chan int {
		status := make(chan int, 1)
		go func() {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost"+path, nil))
			status <- w.Code
		}()
		return status
	}
	for range 2 {
		first := get("/read")
		if err := <-inside; err != nil {
			t.Fatalf("the first read: %v", err)
		}
		second := get("/read")
		if err := <-inside; !errors.Is(err, errs.Unready) {
			t.Errorf("a second one beside it: %v, want no room", err)
		}
		leave <- struct{}{}
		if a, b := <-first, <-second; a != http.StatusOK || b != http.StatusServiceUnavailable {
			t.Errorf("they were answered %d and %d", a, b)
		}
	}
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "http://localhost/read", strings.NewReader(strings.Repeat("x", 64<<10)))); w.Code != http.StatusOK {
		t.Errorf("an answer alone, to a large request: %d %s", w.Code, w.Body)
	}
	<-get("/session")
	ctx, end := context.WithCancel(<-outlives)
	if err := m.Charge(ctx, 8<<20); err != nil {
		t.Fatal(err)
	}
	if err := m.Charge(ctx, 1); !errors.Is(err, errs.Unready) {
		t.Errorf("beside a call of a session: %v, want no room", err)
	}
	end()
	for m.Charge(ctx, 1) != nil { // released by a goroutine
		runtime.Gosched()
	}
	if err := m.Charge(t.Context(), 8<<20); err != nil {
		t.Errorf("outside of a request: %v", err)
	}
}
