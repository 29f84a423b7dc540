package sandboxed

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestWhatAProbeSaysOfADevServer(t *testing.T) {
	page := `<script type="module" src="/@vite/client"></script><link rel='stylesheet' href="/src/index.css">`
	for _, tt := range []struct {
		name            string
		page            int
		body            string
		asset           int
		status, message string
	}{
		{"all is there", 200, page, 200, "ready", ""},
		{"a page without scripts", 200, "hello", 500, "ready", ""},
		{"a script is not there", 200, page, 404, "ready", ""},
		{"a style does not build", 200, page, 500, "error", "no such file"},
		{"no page yet", 404, page, 200, "starting", ""},
		{"a page that does not build", 500, " it broke\n", 200, "error", "it broke"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Host != "localhost:3000" {
				t.Errorf("%s: Host is %q", tt.name, r.Host)
			}
			if r.URL.Path == "/" {
				w.WriteHeader(tt.page)
				_, _ = w.Write([]byte(tt.body))
				return
			}
			w.WriteHeader(tt.asset)
			_, _ = w.Write([]byte("no such file"))
		}))
		dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", server.Listener.Addr().String())
		}
		status, code, message := probe(t.Context(), dial, devPort)
		if status != tt.status || code != tt.page || message != tt.message {
			t.Errorf("%s: %s, %d, %q; want %s, %d, %q", tt.name, status, code, message, tt.status, tt.page, tt.message)
		}
		server.Close()
	}
}

func TestProbeOfAHostileServerIsBounded(t *testing.T) {
	refused := func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("refused") }
	if status, _, _ := probe(t.Context(), refused, devPort); status != "starting" {
		t.Errorf("nothing listens: %s", status)
	}
	endless := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := w.Write([]byte(strings.Repeat("x", 1<<16))); err != nil {
				return
			}
		}
	}))
	defer endless.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", endless.Listener.Addr().String())
	}
	if status, _, _ := probe(ctx, dial, devPort); status != "ready" || ctx.Err() != nil {
		t.Errorf("a page without end: %s, %v", status, ctx.Err())
	}
}

func TestAssetsAreThePagesOwn(t *testing.T) {
	page := `<link href=/unquoted><link rel="stylesheet" href="src/a.css?v=1"><script src="https://cdn.example/x.js"></script>
		<script src="//cdn.example/y.js"></script><script type="module" src='/b.js'></script><script src="javascript:x"></script><link href="#x">`
	if got, want := assets(page), []string{"/src/a.css?v=1", "/b.js"}; !slices.Equal(got, want) {
		t.Errorf("assets = %q, want %q", got, want)
	}
	if got := assets(strings.Repeat(`<script src="/a.js"></script>`, 100)); len(got) != probeAssets {
		t.Errorf("%d assets are asked for", len(got))
	}
}
