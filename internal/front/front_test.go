package front_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/auth"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

func TestTableIsTotal(t *testing.T) {
	codes := map[string]errs.Kind{}
	for _, k := range errs.Kinds() {
		row, ok := front.Table[k]
		if !ok {
			t.Errorf("errs.%v has no entry in front.Table", k)
			continue
		}
		if row.HTTP < 400 || row.HTTP > 599 || row.Code == "" {
			t.Errorf("front.Table[%v] = %+v, want an error status and a code", k, row)
		}
		if other, ok := codes[row.Code]; ok {
			t.Errorf("%v and %v share the code %s: clients could not tell them apart", k, other, row.Code)
		}
		codes[row.Code] = k
	}
	if len(front.Table) != len(errs.Kinds()) {
		t.Errorf("front.Table has %d rows for %d kinds", len(front.Table), len(errs.Kinds()))
	}
}

func TestProblemHidesForeignErrors(t *testing.T) {
	tests := []struct {
		name       string
		err        error
		status     int
		code, text string
		retryAfter string
	}{
		{"foreign", errors.New("open /var/lib/cubby/secret"), 500, "internal", "internal error", ""},
		{"classified with a cause", errs.E(errs.NotFound, "no such file").Because(errors.New("/var/lib/x")), 404, "not_found", "no such file", ""},
		{"full", errs.E(errs.Exhausted, "no room"), 503, "sandbox_capacity", "no room", "30"},
		{"full, and it knows when", errs.E(errs.Exhausted, "no room").RetryAfter(1500 * time.Millisecond), 503, "sandbox_capacity", "no room", "2"},
		{"busy", errs.E(errs.Conflict, "in progress").RetryAfter(time.Second), 409, "conflict", "in progress", "1"},
		{"canceled", context.Canceled, 499, "canceled", "the request was canceled", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rec := httptest.NewRecorder()
			front.WriteProblem(rec, httptest.NewRequest("GET", "/", nil), tt.err)
			var p front.Problem
			if err := json.Unmarshal(rec.Body.Bytes(), &p); err != nil {
				t.Fatal(err)
			}
			if rec.Code != tt.status || p.Error.Code != tt.code || p.Error.Message != tt.text || rec.Header().Get("Retry-After") != tt.retryAfter {
				t.Errorf("got %d %+v Retry-After %q, want %d %s %q %q", rec.Code, p.Error, rec.Header().Get("Retry-After"), tt.status, tt.code, tt.text, tt.retryAfter)
			}
		})
	}
}

// door is a handler behind front.Handler.
func door(t *testing.T, tokens string, h http.HandlerFunc) (http.Handler, *strings.Builder) {
	t.Helper()
	var log strings.Builder
	c := front.Config{
		SecretHeaders: []string{"X-Dialects-Secret"},
		Log:           slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})), Error: front.WriteProblem,
		Metrics: telemetry.NewMetrics("test"),
		Access: func(r *http.Request) front.Access {
			switch r.URL.Path {
			case "/healthz":
				return front.Anyone
			case "/metrics":
				return front.TokenOrLocal
			}
			return front.Token
		},
	}
	if tokens != "" {
		list, err := auth.Parse(tokens)
		if err != nil {
			t.Fatal(err)
		}
		if c.Auth, err = auth.New(list); err != nil {
			t.Fatal(err)
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /box/{id}", h)
	mux.HandleFunc("GET /healthz", h)
	mux.HandleFunc("GET /metrics", h)
	return front.Handler(c, mux), &log
}

func TestAuthentication(t *testing.T) {
	h, log := door(t, "alice:s3cret,bob=hunter2", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, auth.From(r.Context()).Name)
	})
	tests := []struct {
		name, path, remote string
		host               string
		header             http.Header
		status             int
		who                string
	}{
		{name: "none", path: "/box/a", status: 401},
		{name: "bearer", path: "/box/a", header: http.Header{"Authorization": {"Bearer s3cret"}}, status: 200, who: "alice"},
		{name: "bearer in lower case", path: "/box/a", header: http.Header{"Authorization": {"bearer hunter2"}}, status: 200, who: "bob"},
		{name: "api key", path: "/box/a", header: http.Header{"X-Api-Key": {"s3cret"}}, status: 200, who: "alice"},
		{name: "a dialect's header", path: "/box/a", header: http.Header{"X-Dialects-Secret": {"hunter2"}}, status: 200, who: "bob"},
		{name: "wrong", path: "/box/a", header: http.Header{"Authorization": {"Bearer s3cre"}}, status: 401},
		{name: "basic", path: "/box/a", header: http.Header{"Authorization": {"Basic s3cret"}}, status: 401},
		{name: "the name is no secret", path: "/box/a", header: http.Header{"Authorization": {"Bearer alice"}}, status: 401},
		{name: "empty", path: "/box/a", header: http.Header{"Authorization": {"Bearer "}}, status: 401},
		{name: "a wrong one before a right one", path: "/box/a", header: http.Header{"Authorization": {"Bearer x"}, "X-Api-Key": {"s3cret"}}, status: 401},
		{name: "local peers need it too", path: "/box/a", remote: "127.0.0.1:1", status: 401},
		{name: "foreign host is fine with a token", path: "http://cubby.example/box/a", header: http.Header{"Authorization": {"Bearer s3cret"}, "Origin": {"https://other.example"}}, status: 200, who: "alice"},
		{name: "health", path: "/healthz", status: 200},
		{name: "metrics from afar", path: "/metrics", status: 401},
		{name: "metrics with a token", path: "/metrics", header: http.Header{"Authorization": {"Bearer s3cret"}}, status: 200, who: "alice"},
		{name: "metrics from this machine", path: "/metrics", remote: "127.0.0.1:1", host: "localhost:9090", status: 200},
		{name: "metrics under a foreign name on this machine", path: "/metrics", remote: "127.0.0.1:1", host: "evil.example:9090", status: 401},
		{name: "metrics for a foreign page on this machine", path: "/metrics", remote: "127.0.0.1:1", host: "localhost:9090", header: http.Header{"Origin": {"http://evil.example"}}, status: 401},
		{name: "metrics through a proxy on this machine", path: "/metrics", remote: "[::1]:1", header: http.Header{"X-Forwarded-For": {"192.0.2.1"}}, status: 401},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := httptest.NewRequest("GET", tt.path, nil)
			for k, v := range tt.header {
				r.Header[k] = v
			}
			if tt.remote != "" {
				r.RemoteAddr = tt.remote
			}
			if tt.host != "" {
				r.Host = tt.host
			}
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, r)
			if rec.Code != tt.status || tt.status == 200 && rec.Body.String() != tt.who {
				t.Errorf("got %d %q, want %d %q", rec.Code, rec.Body, tt.status, tt.who)
			}
			if tt.status == 401 && rec.Header().Get("WWW-Authenticate") == "" {
				t.Error("401 without a challenge")
			}
		})
	}
	for _, secret := range []string{"s3cret", "hunter2", "s3cre"} {
		if strings.Contains(log.String(), secret) {
			t.Errorf("the log holds the secret %q", secret)
		}
	}
}

func TestWithoutTokensOnlyThisMachine(t *testing.T) {
	h, _ := door(t, "", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) })
	tests := []struct {
		host, origin string
		status       int
	}{
		{"127.0.0.1:9090", "", 204}, {"localhost:9090", "", 204}, {"[::1]:9090", "", 204}, {"localhost", "", 204}, {"127.9.9.9", "", 204},
		{"127.0.0.1:9090", "http://127.0.0.1:9090", 204}, {"LOCALHOST:9090", "http://localhost:9090", 204},
		{"evil.example", "", 403}, {"evil.example:9090", "", 403}, {"127.0.0.1.evil.example:9090", "", 403},
		{"localhost.evil.example", "", 403}, {"192.0.2.1:9090", "", 403}, {"0.0.0.0:9090", "", 403}, {"", "", 403},
		{"127.0.0.1:9090", "http://evil.example", 403}, {"127.0.0.1:9090", "null", 403},
		{"127.0.0.1:9090", "http://127.0.0.1:3000", 403}, {"127.0.0.1:9090", "http://localhost:9090", 403},
		{"127.0.0.1:9090", "://", 403},
	}
	for _, tt := range tests {
		r := httptest.NewRequest("GET", "/box/a", nil)
		r.Host = tt.host
		if tt.origin != "" {
			r.Header.Set("Origin", tt.origin)
		}
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		if rec.Code != tt.status {
			t.Errorf("Host %q, Origin %q: got %d %s, want %d", tt.host, tt.origin, rec.Code, rec.Body, tt.status)
		}
	}
}

func TestMalformedPathsAreErrorsAndNotRedirects(t *testing.T) {
	h, _ := door(t, "", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) })
	for _, p := range []string{"/box/../etc", "//box/a", "/box//a", "/box/./a", "/box/%2e%2e/etc", "/box/a%00"} {
		r := httptest.NewRequest("GET", "http://localhost"+p, nil)
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		if rec.Code != 400 {
			t.Errorf("%s: got %d, want 400", p, rec.Code)
		}
	}
}

func TestRequestID(t *testing.T) {
	var seen string
	h, log := door(t, "", func(_ http.ResponseWriter, r *http.Request) { seen = front.RequestID(r.Context()) })
	send := func(id string) string {
		r := httptest.NewRequest("GET", "http://localhost/box/a", nil)
		r.Header.Set("X-Request-Id", id)
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		return rec.Header().Get("X-Request-Id")
	}
	if got := send("trace-1"); got != "trace-1" || seen != got {
		t.Errorf("a good id came back as %q and was seen as %q", got, seen)
	}
	for _, bad := range []string{"", "a b", "a\nlevel=ERROR", strings.Repeat("x", 129), "é"} {
		got := send(bad)
		if len(got) != 26 || seen != got {
			t.Errorf("id %q came back as %q, seen as %q; want a fresh one", bad, got, seen)
		}
		if !strings.Contains(log.String(), "request_id="+got) {
			t.Errorf("the log lacks %s", got)
		}
	}
}

func TestPanic(t *testing.T) {
	h, log := door(t, "", func(http.ResponseWriter, *http.Request) { panic("boom with detail") })
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequest("GET", "http://localhost/box/a", nil))
	if rec.Code != 500 || strings.Contains(rec.Body.String(), "boom") {
		t.Errorf("got %d %s, want 500 without detail", rec.Code, rec.Body)
	}
	if !strings.Contains(log.String(), "boom with detail") || !strings.Contains(log.String(), "front_test.go") {
		t.Errorf("the log has neither the value nor the stack: %s", log)
	}
}

func TestPanicAfterTheFirstByteBreaksTheConnection(t *testing.T) {
	h, _ := door(t, "", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(200)
		_, _ = io.WriteString(w, "half")
		w.(http.Flusher).Flush()
		panic("boom")
	})
	srv := httptest.NewUnstartedServer(h)
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	srv.Start()
	defer srv.Close()
	res, err := http.Get(srv.URL + "/box/a")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if body, err := io.ReadAll(res.Body); err == nil {
		t.Errorf("the body ended well as %q, want a broken connection", body)
	}
}

func TestLogHoldsTheRouteAndNotThePath(t *testing.T) {
	h, log := door(t, "", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) })
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "http://localhost/box/private-name?path=/secret", nil))
	if got := log.String(); !strings.Contains(got, "route=/box/{id}") || !strings.Contains(got, "status=204") ||
		strings.Contains(got, "private-name") || strings.Contains(got, "secret") {
		t.Errorf("log line: %s", got)
	}
}

// TestBodyDeadlineIsCleared: the server reads in the background while a handler
// waits, and would take an old deadline for a client that left.
func TestBodyDeadlineIsCleared(t *testing.T) {
	mux := http.NewServeMux()
	var deadlines []time.Time
	mux.HandleFunc("POST /", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
	})
	f := front.Handler(front.Config{Log: slog.New(slog.DiscardHandler), Error: front.WriteProblem, Access: func(*http.Request) front.Access { return front.Token }}, mux)
	w := &deadlineRecorder{ResponseWriter: httptest.NewRecorder(), read: func(d time.Time) { deadlines = append(deadlines, d) }}
	f.ServeHTTP(w, httptest.NewRequest("POST", "http://localhost/", strings.NewReader("hello")))
	if len(deadlines) < 2 || deadlines[0].IsZero() || !deadlines[len(deadlines)-1].IsZero() {
		t.Errorf("read deadlines = %v, want one while reading and none at the end", deadlines)
	}
}

type deadlineRecorder struct {
	http.ResponseWriter
	read func(time.Time)
}

func (d *deadlineRecorder) SetReadDeadline(t time.Time) error  { d.read(t); return nil }
func (d *deadlineRecorder) SetWriteDeadline(t time.Time) error { return nil }

// Guessing is slowed down, and holds up nobody who knows a token.
func TestWrongTokensAreSlowedDown(t *testing.T) {
	a, err := auth.New([]auth.Token{{Name: "me", Secret: "right"}})
	if err != nil {
		t.Fatal(err)
	}
	h := front.Handler(front.Config{
		Auth: a, Access: func(*http.Request) front.Access { return front.Token },
		Log: slog.New(slog.DiscardHandler), Error: front.WriteProblem,
	}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	ask := func(token string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("GET", "/v1/sandboxes", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		return rec
	}
	statuses := map[int]int{}
	for range 100 {
		rec := ask("wrong")
		statuses[rec.Code]++
		if rec.Code == http.StatusTooManyRequests && rec.Header().Get("Retry-After") == "" {
			t.Error("429 without Retry-After")
		}
	}
	if statuses[http.StatusUnauthorized] < 20 || statuses[http.StatusTooManyRequests] == 0 || len(statuses) != 2 {
		t.Errorf("answers to a hundred guesses = %v, want 401 and then 429", statuses)
	}
	if rec := ask("right"); rec.Code != http.StatusNoContent {
		t.Errorf("the right token = %d", rec.Code)
	}
}
