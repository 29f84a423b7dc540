// Package packagestest serves indexes of packages to tests: a PEP 503 index for
// pip, a registry for npm, and a repository as CRAN is, all with small packages
// that it makes itself. Their one function returns the version, so that a
// program can tell which one it got.
package packagestest

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// Options change [Indexes].
type Options struct {
	Address string // to listen on; default 127.0.0.1:0
	// OnRequest, when not nil, is called before a request is answered, which
	// waits for it, or for the end of the client or the test.
	OnRequest func(ctx context.Context, path string)
}

// Indexes serves packages to every runtime, under the same names:
//
//   - cubbydemo, in the versions 1.0.0, 1.1.0 and 2.0.0 (for R 1.0 and 1.1 in
//     the archive, and 2.0), has a function version;
//   - cubbyneeds 1.0.0 (for R 1.0 in the archive, and 1.1) needs cubbydemo in
//     any version, and hands that function on;
//   - cubbybroken is another file than the index says (not for R);
//   - cubbylarge has 64 MiB (not for R);
//   - @cubby/scoped is for Node, and cubbyfails, which cannot be built, for R.
type Indexes struct {
	URL      string // of the server, without a slash at its end
	PyPI     string // for pip-index-url
	NPM      string // for npm-registry
	CRAN     string // for cran-mirror
	HostPort string // for egress-allow
	down     atomic.Bool
	server   *httptest.Server
}

// New starts a server that ends with the test.
func New(t testing.TB, o Options) *Indexes {
	t.Helper()
	address := o.Address
	if address == "" {
		address = "127.0.0.1:0"
	}
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	x := &Indexes{}
	mux := http.NewServeMux()
	x.servePyPI(mux)
	x.serveNPM(t, mux)
	x.serveCRAN(mux)
	over, end := context.WithCancel(context.Background())
	x.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if o.OnRequest != nil {
			ctx, cancel := context.WithCancel(r.Context())
			stop := context.AfterFunc(over, cancel)
			o.OnRequest(ctx, r.URL.Path)
			stop()
			cancel()
		}
		if x.down.Load() {
			http.Error(w, "down", http.StatusServiceUnavailable)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	x.server.Listener.Close()
	x.server.Listener = l
	x.server.Start()
	t.Cleanup(func() {
		end()
		x.server.CloseClientConnections()
		x.server.Close()
	})
	x.URL, x.HostPort = x.server.URL, l.Addr().String()
	x.PyPI, x.NPM, x.CRAN = x.URL+"/simple", x.URL+"/npm", x.URL+"/cran"
	return x
}

// Down makes the server answer everything with 503, or as before.
func (x *Indexes) Down(is bool) { x.down.Store(is) }

func versions() []string { return []string{"1.0.0", "1.1.0", "2.0.0"} }

type file struct{ name, text string }

func zipOf(files ...file) []byte {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, f := range files {
		w, err := z.Create(f.name)
		must(err)
		_, err = w.Write([]byte(f.text))
		must(err)
	}
	must(z.Close())
	return b.Bytes()
}

func tarOf(files ...file) []byte {
	var b bytes.Buffer
	gz := gzip.NewWriter(&b)
	w := tar.NewWriter(gz)
	for _, f := range files {
		must(w.WriteHeader(&tar.Header{Name: f.name, Mode: 0o644, Size: int64(len(f.text))}))
		_, err := w.Write([]byte(f.text))
		must(err)
	}
	must(w.Close())
	must(gz.Close())
	return b.Bytes()
}

// must is for writes to memory.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// large is what a file of 64 MiB has in it; it packs well.
func large() string { return strings.Repeat("0", 64<<20) }

// bytesAt serves the same bytes at a path.
func bytesAt(mux *http.ServeMux, path string, data func() []byte) {
	mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(data()) })
}
