package image

import (
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/cubbyhq/cubby/internal/errs"
)

// serve runs a registry on loopback. meddle may answer a request in its place.
func serve(t *testing.T, meddle func(w http.ResponseWriter, r *http.Request, next http.Handler)) string {
	t.Helper()
	// Credentials of the person who runs the test do not belong here.
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	h := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if meddle != nil && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
			meddle(w, r, h)
			return
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		srv.Close()
		closeIdleConnections()
	})
	return strings.TrimPrefix(srv.URL, "http://")
}

func closeIdleConnections() {
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	remote.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

func push(t *testing.T, ref string, img v1.Image) {
	t.Helper()
	r, err := name.ParseReference(ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(r, img); err != nil {
		t.Fatalf("push %s = %v", ref, err)
	}
}

func TestPull(t *testing.T) {
	host := serve(t, nil)
	img := testImage(t)
	push(t, host+"/acme/tool:1.2", img)
	push(t, host+"/acme/tool:latest", img)
	multi, err := name.ParseReference(host + "/acme/multi:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(multi, index(t, img)); err != nil {
		t.Fatal(err)
	}
	digest, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ ref, as, want string }{
		{host + "/acme/tool:1.2", "", "tool:1.2"},
		{host + "/acme/tool", "", "tool"},
		{host + "/acme/tool:1.2", "mine", "mine"},
		{host + "/acme/tool@" + digest.String(), "", "tool"},
		{host + "/acme/multi:1", "", "multi:1"},
	} {
		s := openStore(t, t.TempDir())
		var last Step
		got, err := s.Pull(t.Context(), tt.ref, tt.as, func(s Step) {
			if s.Stage == "pulling" {
				last = s
			}
		})
		if err != nil || got.Name != tt.want || !slices.Equal(got.Env, []string{"PATH=/bin", "A=2"}) {
			t.Errorf("Pull(%s, %q) = %+v, %v, want name %s and the image's env", tt.ref, tt.as, got, err, tt.want)
			continue
		}
		if last.Total == 0 || last.Done != last.Total {
			t.Errorf("Pull(%s): the last progress is %+v, want all of it", tt.ref, last)
		}
		if tree := listing(t, got.Dir); tree["etc/kept"] != "upper" || tree["bin/sh"] != "sh" || tree["etc/gone"] != "" {
			t.Errorf("Pull(%s): tree = %v", tt.ref, tree)
		}
		if again, err := s.Resolve(t.Context(), tt.want); err != nil || again.Digest != got.Digest {
			t.Errorf("Resolve(%s) = %+v, %v", tt.want, again, err)
		}
	}
}

// The same image gives the same digest, whichever way it came.
func TestPullEqualsImport(t *testing.T) {
	host := serve(t, nil)
	img := testImage(t)
	push(t, host+"/a:1", img)
	s := openStore(t, t.TempDir())
	pulled, err := s.Pull(t.Context(), host+"/a:1", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	imported, err := s.Import(t.Context(), strings.NewReader(string(dockerSave(t, img))), 0, "t", "b", nil)
	if err != nil || imported.Digest != pulled.Digest {
		t.Errorf("digests %s and %s, %v, want equal ones", imported.Digest, pulled.Digest, err)
	}
}

func TestPullRefuses(t *testing.T) {
	evil, err := mutate.AppendLayers(empty.Image, static.NewLayer(tarOf(t, file{name: "../outside", body: "x"}), types.DockerUncompressedLayer))
	if err != nil {
		t.Fatal(err)
	}
	lying, err := mutate.ConfigFile(testImage(t), func() *v1.ConfigFile {
		c := configOf(t, testImage(t)).DeepCopy()
		slices.Reverse(c.RootFS.DiffIDs)
		return c
	}())
	if err != nil {
		t.Fatal(err)
	}
	blobs := func(r *http.Request) bool { return strings.Contains(r.URL.Path, "/blobs/") }
	tests := []struct {
		name   string
		ref    string
		img    v1.Image
		meddle func(w http.ResponseWriter, r *http.Request, next http.Handler)
		kind   errs.Kind
	}{
		{name: "no such tag", ref: "/a:2", kind: errs.NotFound},
		{name: "malformed reference", ref: "/A B", kind: errs.Invalid},
		{name: "malicious layer", img: evil, kind: errs.Invalid},
		{name: "configuration that lies", img: lying, kind: errs.Invalid},
		{name: "forbidden", kind: errs.Forbidden, meddle: func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if strings.Contains(r.URL.Path, "/manifests/") {
				w.WriteHeader(http.StatusForbidden)
				return
			}
			next.ServeHTTP(w, r)
		}},
		{name: "blob changed on the way", kind: errs.Unavailable, meddle: func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if !blobs(r) || r.Method == http.MethodHead {
				next.ServeHTTP(w, r)
				return
			}
			rec := httptest.NewRecorder()
			next.ServeHTTP(rec, r)
			b := rec.Body.Bytes()
			b[len(b)/2] ^= 1
			_, _ = w.Write(b)
		}},
		{name: "blob cut off", kind: errs.Unavailable, meddle: func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if !blobs(r) || r.Method == http.MethodHead {
				next.ServeHTTP(w, r)
				return
			}
			rec := httptest.NewRecorder()
			next.ServeHTTP(rec, r)
			w.Header().Set("Content-Length", rec.Header().Get("Content-Length"))
			_, _ = w.Write(rec.Body.Bytes()[:rec.Body.Len()/2])
		}},
		// It was followed 47,000 times, and on after its caller had left.
		{name: "blob that is redirected to itself", kind: errs.Unavailable, meddle: func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if !blobs(r) {
				next.ServeHTTP(w, r)
				return
			}
			http.Redirect(w, r, r.URL.String(), http.StatusTemporaryRedirect)
		}},
		{name: "manifest that is redirected to itself", kind: errs.Unavailable, meddle: func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
			http.Redirect(w, r, r.URL.String(), http.StatusFound)
		}},
		{name: "endless manifest", kind: errs.TooLarge, meddle: func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if !strings.Contains(r.URL.Path, "/manifests/") {
				next.ServeHTTP(w, r)
				return
			}
			for range 64 {
				if _, err := w.Write(make([]byte, 1<<20)); err != nil {
					return
				}
			}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var armed atomic.Bool // pushing is left alone
			host := serve(t, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				if tt.meddle == nil || !armed.Load() {
					next.ServeHTTP(w, r)
					return
				}
				tt.meddle(w, r, next)
			})
			img := tt.img
			if img == nil {
				img = testImage(t)
			}
			push(t, host+"/a:1", img)
			armed.Store(true)
			if tt.ref == "" {
				tt.ref = "/a:1"
			}
			s := openStore(t, t.TempDir())
			if _, err := s.Pull(t.Context(), host+tt.ref, "", nil); !errors.Is(err, tt.kind) {
				t.Errorf("Pull = %v, want %v", err, tt.kind)
			}
			entries, err := os.ReadDir(s.dir)
			if err != nil || len(entries) > 1 {
				t.Errorf("left behind: %v, %v", entries, err)
			}
		})
	}
}

func TestPullFromNowhere(t *testing.T) {
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	s := openStore(t, t.TempDir())
	if _, err := s.Pull(t.Context(), "127.0.0.1:1/a:1", "", nil); !errors.Is(err, errs.Unavailable) {
		t.Errorf("Pull = %v, want unavailable", err)
	}
}
