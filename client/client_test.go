package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/cubbyhq/cubby/client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve answers with h until the test ends.
func serve(t *testing.T, h http.HandlerFunc, opts ...client.Option) *client.Client {
	t.Helper()
	s := httptest.NewServer(h)
	c := client.New(s.URL, opts...)
	t.Cleanup(func() {
		c.Close()
		s.CloseClientConnections()
		s.Close()
	})
	return c
}

func answer(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

func TestErrorOfEveryCode(t *testing.T) {
	for _, code := range client.Codes() {
		c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "7")
			answer(w, 400, fmt.Sprintf(`{"error":{"code":%q,"message":"m","hint":"h","retryable":true,"request_id":"r"}}`, string(code)))
		})
		_, err := c.Get(t.Context(), "a")
		for _, other := range client.Codes() {
			if got, want := errors.Is(fmt.Errorf("wrapped: %w", err), other), other == code; got != want {
				t.Errorf("code %s: errors.Is(err, %s) = %v, want %v", code, other, got, want)
			}
		}
		var e *client.Error
		if !errors.As(err, &e) {
			t.Fatalf("code %s: error is a %T, want *client.Error", code, err)
		}
		if e.Message != "m" || e.Hint != "h" || !e.Retryable || e.RequestID != "r" || e.Status != 400 || e.RetryAfter != 7*time.Second {
			t.Errorf("code %s: got %+v", code, e)
		}
	}
}

func TestErrorWithoutEnvelope(t *testing.T) {
	tests := []struct {
		status    int
		body      string
		code      client.Code
		retryable bool
	}{
		{404, "404 page not found", client.NotFound, false},
		{502, "<html>bad gateway</html>", client.Unavailable, true},
		{401, "", client.Unauthorized, false},
		{418, `{"error":"text"}`, client.InvalidRequest, false},
		{500, `{"error":{}}`, client.Internal, false},
	}
	for _, tt := range tests {
		c := serve(t, func(w http.ResponseWriter, _ *http.Request) { answer(w, tt.status, tt.body) })
		_, err := c.Get(t.Context(), "a")
		var e *client.Error
		if !errors.As(err, &e) || e.Code != tt.code || e.Retryable != tt.retryable {
			t.Errorf("status %d %q: got %+v, want code %s, retryable %v", tt.status, tt.body, e, tt.code, tt.retryable)
		}
	}
}

func TestNoDaemon(t *testing.T) {
	s := httptest.NewServer(nil)
	url := s.URL
	s.Close()
	c := client.New(url)
	_, err := c.Get(t.Context(), "a")
	var e *client.Error
	if !errors.As(err, &e) || e.Code != client.Unreachable || !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("got %v, want unreachable by a refused connection", err)
	}
	if want := "no daemon answers at " + url; e.Message != want {
		t.Errorf("message %q, want %q", e.Message, want)
	}
	if !strings.Contains(e.Hint, "cubby serve") {
		t.Errorf("hint %q does not say how to start a daemon", e.Hint)
	}
}

func TestBadURL(t *testing.T) {
	for _, url := range []string{"127.0.0.1:9090", "ftp://host", "http://", "http://a b", "::"} {
		if _, err := client.New(url).Get(t.Context(), "a"); !errors.Is(err, client.InvalidRequest) {
			t.Errorf("New(%q).Get = %v, want %v", url, err, client.InvalidRequest)
		}
	}
}

func TestContextEnds(t *testing.T) {
	c := serve(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Get(ctx, "a"); !errors.Is(err, client.Canceled) || !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: got %v", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := c.Get(ctx, "a"); !errors.Is(err, client.Timeout) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("timeout: got %v", err)
	}
}

func TestNotCubby(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, "<html>") })
	if _, err := c.Get(t.Context(), "a"); !errors.Is(err, client.Internal) {
		t.Errorf("got %v, want %v", err, client.Internal)
	}
}

// request is what a handler saw.
type request struct {
	Method, Path, Query string
	Body                any
}

// record answers every request with status and body, and remembers the last.
func record(t *testing.T, last *request, status int, body string) *client.Client {
	t.Helper()
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		*last = request{Method: r.Method, Path: r.URL.EscapedPath(), Query: r.URL.RawQuery}
		if len(data) > 0 && json.Unmarshal(data, &last.Body) != nil {
			last.Body = string(data)
		}
		if status == 204 {
			w.WriteHeader(status)
			return
		}
		answer(w, status, body)
	})
}

const boxJSON = `{"id":"a","status":"running","image":"base","isolation":"gvisor","limits":{"memory_bytes":1073741824,"cpus":2,
"pids":512,"disk_bytes":4294967296,"open_files":65536},"user":"sandbox","labels":{"team":"red"},"metadata":{},"ports":[3000],
"network":{"mode":"allowlist"},"visibility":"private","idle_policy":"sleep","idle_timeout_seconds":1800,"auto_wake":"idle","exec_timeout_seconds":300,
"created_at":"2026-01-02T03:04:05Z","updated_at":"2026-01-02T03:04:05Z","started_at":"2026-01-02T03:04:06Z","last_active_at":"2026-01-02T03:04:05Z"}`

// requestTest is a call of the SDK and the request that it makes.
type requestTest struct {
	name   string
	call   func(context.Context, *client.Client) error
	status int // of the answer
	answer string
	want   request
}

func testRequests(t *testing.T, tests []requestTest) {
	t.Helper()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got request
			c := record(t, &got, tt.status, tt.answer)
			if err := tt.call(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRequests(t *testing.T) {
	type m = map[string]any
	five := 5.0
	testRequests(t, []requestTest{
		{"create", func(ctx context.Context, c *client.Client) error {
			_, err := c.Create(ctx, client.CreateOptions{})
			return err
		}, 201, boxJSON, request{"POST", "/v1/sandboxes", "", m{}}},
		{"create all", func(ctx context.Context, c *client.Client) error {
			_, err := c.Create(ctx, client.CreateOptions{
				ID: "a", Isolation: "container", Limits: &client.Limits{PIDs: 9}, Network: &client.Network{Mode: "none"},
				ExecTimeoutSeconds: &five,
			})
			return err
		}, 201, boxJSON, request{"POST", "/v1/sandboxes", "", m{
			"id": "a", "isolation": "container", "limits": m{"pids": 9.0}, "network": m{"mode": "none"}, "exec_timeout_seconds": 5.0,
		}}},
		{"get escapes", func(ctx context.Context, c *client.Client) error {
			_, err := c.Get(ctx, "../images?x")
			return err
		}, 200, boxJSON, request{"GET", "/v1/sandboxes/..%2Fimages%3Fx", "", nil}},
		{"update", func(ctx context.Context, c *client.Client) error {
			_, err := c.Update(ctx, "a", client.Patch{Labels: map[string]string{"k": "v"}})
			return err
		}, 200, boxJSON, request{"PATCH", "/v1/sandboxes/a", "", m{"labels": m{"k": "v"}}}},
		{"start", func(ctx context.Context, c *client.Client) error {
			_, err := c.Start(ctx, "a")
			return err
		}, 200, boxJSON, request{"POST", "/v1/sandboxes/a/start", "", nil}},
		{"stop", func(ctx context.Context, c *client.Client) error {
			_, err := c.Stop(ctx, "a", 1500*time.Millisecond)
			return err
		}, 200, boxJSON, request{"POST", "/v1/sandboxes/a/stop", "", m{"grace_seconds": 1.5}}},
		{"stop default", func(ctx context.Context, c *client.Client) error {
			_, err := c.Stop(ctx, "a", -1)
			return err
		}, 200, boxJSON, request{"POST", "/v1/sandboxes/a/stop", "", nil}},
		{"stop by force", func(ctx context.Context, c *client.Client) error {
			_, err := c.StopAnyway(ctx, "a", 0)
			return err
		}, 200, boxJSON, request{"POST", "/v1/sandboxes/a/stop", "", m{"grace_seconds": 0.0, "force": true}}},
		{"sleep", func(ctx context.Context, c *client.Client) error {
			_, err := c.Sleep(ctx, "a", false)
			return err
		}, 200, boxJSON, request{"POST", "/v1/sandboxes/a/sleep", "", m{"force": false}}},
		{"sleep by force", func(ctx context.Context, c *client.Client) error {
			_, err := c.Sleep(ctx, "a", true)
			return err
		}, 200, boxJSON, request{"POST", "/v1/sandboxes/a/sleep", "", m{"force": true}}},
		{"wake", func(ctx context.Context, c *client.Client) error {
			_, err := c.Wake(ctx, "a")
			return err
		}, 200, boxJSON, request{"POST", "/v1/sandboxes/a/wake", "", nil}},
		{"keepalive", func(ctx context.Context, c *client.Client) error {
			_, err := c.Keepalive(ctx, "a")
			return err
		}, 200, boxJSON, request{"POST", "/v1/sandboxes/a/keepalive", "", nil}},
		{"keep until", func(ctx context.Context, c *client.Client) error {
			_, err := c.KeepUntil(ctx, "a", time.Date(2026, 12, 24, 18, 0, 0, 0, time.UTC))
			return err
		}, 200, boxJSON, request{"POST", "/v1/sandboxes/a/keepalive", "", m{"until": "2026-12-24T18:00:00Z"}}},
		{"keep for", func(ctx context.Context, c *client.Client) error {
			_, err := c.KeepFor(ctx, "a", 0)
			return err
		}, 200, boxJSON, request{"POST", "/v1/sandboxes/a/keepalive", "", m{"seconds": 0.0}}},
		{"destroy", func(ctx context.Context, c *client.Client) error { return c.Destroy(ctx, "a") },
			204, "", request{"DELETE", "/v1/sandboxes/a", "", nil}},
		{"signal", func(ctx context.Context, c *client.Client) error {
			return c.Process("a", 3).Signal(ctx, "INT", true)
		}, 204, "", request{"POST", "/v1/sandboxes/a/execs/3/signal", "", m{"signal": "SIGINT", "tree": true}}},
		{"cancel", func(ctx context.Context, c *client.Client) error { return c.Process("a", 3).Cancel(ctx) },
			204, "", request{"POST", "/v1/sandboxes/a/execs/3/cancel", "", nil}},
		{"resize", func(ctx context.Context, c *client.Client) error {
			return c.Process("a", 3).Resize(ctx, client.WindowSize{Cols: 100, Rows: 40})
		}, 204, "", request{"POST", "/v1/sandboxes/a/execs/3/resize", "", m{"cols": 100.0, "rows": 40.0}}},
		{"execs", func(ctx context.Context, c *client.Client) error {
			_, err := c.Execs(ctx, "a", 7, 10)
			return err
		}, 200, `{"execs":[]}`, request{"GET", "/v1/sandboxes/a/execs", "after_seq=7&limit=10", nil}},
		{"events", func(ctx context.Context, c *client.Client) error {
			_, _, err := c.Events(ctx, "a", 7, 10)
			return err
		}, 200, `{"events":[],"next":7}`, request{"GET", "/v1/sandboxes/a/events", "after=7&limit=10", nil}},
		{"write", func(ctx context.Context, c *client.Client) error {
			_, err := c.Files("a").Write(ctx, "/x y", strings.NewReader("data"), client.WriteOptions{Mode: 0o755, Append: true})
			return err
		}, 200, `{}`, request{"PUT", "/v1/sandboxes/a/files", "append=true&mode=0755&parents=true&path=%2Fx+y", "data"}},
		{"move", func(ctx context.Context, c *client.Client) error {
			_, err := c.Files("a").Move(ctx, "x", "y", true)
			return err
		}, 200, `{}`, request{"POST", "/v1/sandboxes/a/files/move", "", m{"from": "x", "to": "y", "replace": true}}},
		{"mkdir", func(ctx context.Context, c *client.Client) error {
			_, err := c.Files("a").MakeDir(ctx, "x", true)
			return err
		}, 200, `{}`, request{"POST", "/v1/sandboxes/a/files/mkdir", "", m{"path": "x", "parents": true}}},
		{"remove", func(ctx context.Context, c *client.Client) error { return c.Files("a").Remove(ctx, "x", true) },
			204, "", request{"DELETE", "/v1/sandboxes/a/files", "path=x&recursive=true", nil}},
		{"list files", func(ctx context.Context, c *client.Client) error {
			_, err := c.Files("a").List(ctx, "x", true)
			return err
		}, 200, `{"path":"x","entries":[]}`, request{"GET", "/v1/sandboxes/a/files", "path=x&recursive=true", nil}},
	})
}

func TestTokenAndKeys(t *testing.T) {
	var got http.Header
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.Header
		answer(w, 201, boxJSON)
	}, client.WithToken("s3cret"))
	if _, err := c.Create(t.Context(), client.CreateOptions{IdempotencyKey: "k"}); err != nil {
		t.Fatal(err)
	}
	if got.Get("Authorization") != "Bearer s3cret" || got.Get("Idempotency-Key") != "k" || got.Get("Content-Type") != "application/json" {
		t.Errorf("headers %v", got)
	}
}

func TestSandboxDecodes(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, boxJSON) })
	box, err := c.Get(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if box.Status != client.Running || box.Limits.MemoryBytes != 1<<30 || box.Labels["team"] != "red" ||
		box.StartedAt == nil || box.StoppedAt != nil || box.IdleTimeoutSeconds != 1800 || box.AutoWake != "idle" || box.RestoreIncomplete {
		t.Errorf("got %+v", box)
	}
}

func TestListPages(t *testing.T) {
	var queries []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		queries = append(queries, r.URL.RawQuery)
		switch r.URL.Query().Get("cursor") {
		case "":
			answer(w, 200, `{"sandboxes":[{"id":"a"},{"id":"b"}],"next_cursor":"n1"}`)
		case "n1":
			answer(w, 200, `{"sandboxes":[{"id":"c"}]}`)
		}
	})
	var ids []string
	for box, err := range c.List(t.Context(), client.ListOptions{Labels: map[string]string{"k": "v"}, PageSize: 2}) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, box.ID)
	}
	if got, want := strings.Join(ids, " "), "a b c"; got != want {
		t.Errorf("ids %q, want %q", got, want)
	}
	if want := []string{"label=k%3Dv&limit=2", "cursor=n1&label=k%3Dv&limit=2"}; !cmp.Equal(queries, want) {
		t.Errorf("queries %q, want %q", queries, want)
	}
	for range c.List(t.Context(), client.ListOptions{}) {
		break // leaving early must not ask for more
	}
	if len(queries) != 3 {
		t.Errorf("%d requests, want 3", len(queries))
	}
}
