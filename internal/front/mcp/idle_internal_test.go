package mcp

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

const begin = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`

func (d *Door) post(t *testing.T, session, body string) *http.Response {
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

// TestPlacesOfClientsThatLeft: clients never end their sessions, and after a
// thousand of them nobody could begin one. The one that is idle longest gives
// way.
func TestPlacesOfClientsThatLeft(t *testing.T) {
	d := New(Config{Log: slog.New(slog.DiscardHandler), Version: "1", Life: t.Context()})
	defer d.Close(t.Context())
	var ids []string
	for range maxSessions {
		res := d.post(t, "", begin)
		if res.StatusCode != http.StatusOK {
			t.Fatalf("session %d: %s", len(ids), res.Status)
		}
		ids = append(ids, res.Header.Get("Mcp-Session-Id"))
	}
	const list = `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`
	if res := d.post(t, ids[0], list); res.StatusCode != http.StatusOK {
		t.Fatalf("the first session: %s", res.Status)
	}
	if res := d.post(t, "", begin); res.StatusCode != http.StatusOK {
		t.Fatalf("one more: %s", res.Status)
	}
	for i, want := range map[int]int{0: http.StatusOK, 1: http.StatusNotFound, 2: http.StatusOK} {
		if res := d.post(t, ids[i], list); res.StatusCode != want {
			t.Errorf("session %d: %s, want %d", i, res.Status, want)
		}
	}
}

// TestQuietStreamSaysThatItLives, also when no progress is asked for.
func TestQuietStreamSaysThatItLives(t *testing.T) {
	w := httptest.NewRecorder()
	s := &stream{ResponseWriter: w, quiet: time.Millisecond}
	s.Header().Set("Content-Type", "text/event-stream")
	s.begin()
	said := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return strings.Count(w.Body.String(), ": keep-alive\n\n")
	}
	for end := time.Now().Add(time.Minute); said() < 3; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it said %q", w.Body)
		}
	}
	_, _ = s.Write([]byte("data: x\n\n"))
	s.end()
	before := w.Body.String()
	s.tick()
	if w.Body.String() != before || !strings.HasPrefix(before, ": ok\n\n") || !strings.Contains(before, "\n\ndata: x\n\n") {
		t.Errorf("it said %q, and after its end %q", before, w.Body)
	}
}

// TestReplayIsBounded: what is kept for clients whose connection broke.
func TestReplayIsBounded(t *testing.T) {
	r := newReplay()
	ctx := t.Context()
	for i := range 2 * maxReplayStreams {
		name := fmt.Sprint(i)
		_ = r.Open(ctx, "s", name)
		_ = r.Append(ctx, "s", name, nil)
		_ = r.Append(ctx, "s", name, make([]byte, 10_000))
	}
	if len(r.streams) > maxReplayStreams || len(r.order) != len(r.streams) || r.bytes > maxReplay {
		t.Errorf("%d streams of %d bytes are kept", len(r.streams), r.bytes)
	}
	after := func(name string) (n int, err error) {
		for data, e := range r.After(ctx, "s", name, 0) {
			if e != nil {
				return n, e
			}
			n += len(data)
		}
		return n, nil
	}
	if n, err := after(fmt.Sprint(2*maxReplayStreams - 1)); n != 10_000 || err != nil {
		t.Errorf("the newest has %d bytes, %v", n, err)
	}
	_ = r.Append(ctx, "s", "0", []byte("late"))
	if _, err := after("0"); err == nil {
		t.Error("the oldest is there")
	}
	_ = r.SessionClosed(ctx, "s")
	if len(r.streams) != 0 || len(r.order) != 0 || r.bytes != 0 {
		t.Errorf("after the session's end %d bytes are kept", r.bytes)
	}
}

// A protocol session that nobody uses ends, and its place is free again.
func TestIdleSessionsEnd(t *testing.T) {
	d := New(Config{Log: slog.New(slog.DiscardHandler), Version: "1", Life: t.Context()})
	d.idle = 50 * time.Millisecond
	defer d.Close(t.Context())
	res := d.post(t, "", begin)
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
		res := d.post(t, id, `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
		if res.StatusCode == http.StatusNotFound {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("its id is answered with %s", res.Status)
		}
	}
}
