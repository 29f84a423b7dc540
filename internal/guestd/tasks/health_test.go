package tasks

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestMatchConfigChanges(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		files []string
		want  bool
	}{
		{nil, false},
		{[]string{"src/main.tsx", "README.md", "src/indexXcss"}, false},
		{[]string{"src/main.tsx", "vite.config.ts"}, true},
		{[]string{"tailwind.config.js"}, true},
		{[]string{"postcss.config.cjs"}, true},
		{[]string{"tsconfig.json"}, true},
		{[]string{"tsconfig.app.json"}, true},
		{[]string{"src/index.css"}, true},
		{[]string{"src/App.css"}, true},
		{[]string{"src/app.css", "my-vite.config.ts", "tsconfig.json.bak"}, false},
	} {
		if got := configChanged(tt.files); got != tt.want {
			t.Errorf("%q: %t", tt.files, got)
		}
	}
}

func TestExtractDevError(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, page, want string }{
		{"plain text", "Internal Server Error\n", "Internal Server Error"},
		{"JSON", `{"message":"no such table"}`, "no such table"},
		{"an error in JSON", `{"error":"no such table"}`, "no such table"},
		{"HTML", "<html><head><style>b{}</style><script>let x = '<b>'</script></head><body><h1>Oops</h1>\n<pre>a &lt; b</pre></body></html>", "Oops a < b"},
		{"Vite", "<html><script type=\"module\">\nconst error = {\"message\":\"\\u001b[31mUnexpected token (3:4)\\u001b[0m\",\"stack\":\"x\"}\ntry { } catch {}\n</script></html>", "Unexpected token (3:4)"},
		{"nothing", "", ""},
		{"no UTF-8", "bad \xff byte", "bad \uFFFD byte"},
	} {
		if got := pageError([]byte(tt.page)); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestExtractDevErrorCaps(t *testing.T) {
	t.Parallel()
	if got := pageError([]byte(strings.Repeat("ä", 5*maxPageError))); got != strings.Repeat("ä", maxPageError) {
		t.Errorf("%d characters", len([]rune(got)))
	}
}

func TestPages(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a[b]*")
	if err := os.MkdirAll(filepath.Join(dir, "src"), 0o755); err != nil {
		t.Fatal(err)
	}
	writeAll(t, dir, map[string]string{"src/index.css": ""})
	if got := pages(dir); !slices.Equal(got, []string{"/"}) {
		t.Errorf("%q", got)
	}
	writeAll(t, dir, map[string]string{"vite.config.ts": ""})
	if got := pages(dir); !slices.Equal(got, []string{"/", "/src/index.css"}) {
		t.Errorf("of Vite: %q", got)
	}
}

func TestProbe(t *testing.T) {
	t.Parallel()
	answers := map[string]int{"/": 200, "/gone": 404, "/broken": 500, "/moved": 302}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "http://example.invalid/")
		w.WriteHeader(answers[r.URL.Path])
		_, _ = w.Write([]byte("<b>the reason</b>"))
	}))
	defer server.Close()
	port := server.Listener.Addr().(*net.TCPAddr).Port
	for _, tt := range []struct {
		pages []string
		want  health
	}{
		{[]string{"/"}, health{previewReady, ""}},
		{[]string{"/", "/gone", "/moved"}, health{previewReady, ""}},
		{[]string{"/", "/broken"}, health{previewError, "/broken answers 500: the reason"}},
		{[]string{"/broken"}, health{previewError, "/broken answers 500: the reason"}},
	} {
		if got := probe(t.Context(), port, tt.pages, 0); got != tt.want {
			t.Errorf("%q: %+v, want %+v", tt.pages, got, tt.want)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port = l.Addr().(*net.TCPAddr).Port
	l.Close()
	for _, patience := range []time.Duration{0, time.Millisecond} {
		if got := probe(t.Context(), port, []string{"/"}, patience); got.status != previewDown {
			t.Errorf("nobody listens: %+v", got)
		}
	}
}

// A server that listens on the other loopback address only is found, too.
func TestProbeOfTheOtherLoopback(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.NotFoundHandler(), ReadHeaderTimeout: time.Second}
	go func() { _ = server.Serve(l) }()
	defer server.Close()
	if got := probe(t.Context(), l.Addr().(*net.TCPAddr).Port, []string{"/"}, 0); got.status != previewReady {
		t.Errorf("%+v", got)
	}
}
