package mcp

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// A protocol session that nobody uses ends, and its place is free again.
func TestIdleSessionsEnd(t *testing.T) {
	d := New(Config{Log: slog.New(slog.DiscardHandler), Version: "1", Life: t.Context()})
	d.idle = 50 * time.Millisecond
	defer d.Close(t.Context())
	post := func(session, body string) *http.Response {
		t.Helper()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, Path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		if session != "" {
			r.Header.Set("Mcp-Session-Id", session)
			r.Header.Set("Mcp-Protocol-Version", "2025-11-25")
		}
		w := httptest.NewRecorder()
		d.ServeHTTP(w, r)
		return w.Result()
	}
	res := post("", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
	id := res.Header.Get("Mcp-Session-Id")
	if body, err := io.ReadAll(res.Body); err != nil || res.StatusCode != http.StatusOK || id == "" {
		t.Fatalf("initialize = %s %q, %v", res.Status, body, err)
	}
	open := func() (n int) {
		for _, e := range d.endpoints {
			for range e.server.Sessions() {
				n++
			}
		}
		return n
	}
	for end := time.Now().Add(time.Minute); open() > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the session is still there")
		}
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		res := post(id, `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
		if res.StatusCode == http.StatusNotFound {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("its id is answered with %s", res.Status)
		}
	}
}
