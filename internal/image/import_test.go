package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/zstd"

	"github.com/cubbyhq/cubby/internal/errs"
)

// testImage is an image of two layers, one gzipped by the library and one
// compressed with zstd.
func testImage(t testing.TB) v1.Image {
	t.Helper()
	lower := tarOf(t, file{name: "bin/sh", body: "sh", mode: 0o755}, file{name: "etc/gone", body: "x"}, file{name: "etc/kept", body: "lower"})
	upper := tarOf(t, file{name: "etc/.wh.gone"}, file{name: "etc/kept", body: "upper"}, file{name: "app", body: "app"})
	first, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(lower)), nil })
	if err != nil {
		t.Fatal(err)
	}
	second, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(upper)), nil },
		tarball.WithCompression("zstd"), tarball.WithMediaType(types.OCILayerZStd))
	if err != nil {
		t.Fatal(err)
	}
	img, err := mutate.AppendLayers(mutate.MediaType(mutate.ConfigMediaType(empty.Image, types.OCIConfigJSON), types.OCIManifestSchema1), first, second)
	if err != nil {
		t.Fatal(err)
	}
	c, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c = c.DeepCopy()
	c.OS, c.Architecture = "linux", runtime.GOARCH
	c.Config = v1.Config{
		Env: []string{"PATH=/bin", "A=1", "bad", "A=2"}, Entrypoint: []string{"/evil"}, User: "99", WorkingDir: "/app",
	}
	img, err = mutate.ConfigFile(img, c)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func dockerSave(t testing.TB, img v1.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := tarball.Write(name.MustParseReference("test:1"), img, &b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func ociArchive(t testing.TB, add ...mutate.Appendable) []byte {
	t.Helper()
	dir := t.TempDir()
	p, err := layout.Write(dir, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range add {
		switch a := a.(type) {
		case v1.Image:
			err = p.AppendImage(a)
		case v1.ImageIndex:
			err = p.AppendIndex(a)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return tarDir(t, dir)
}

func tarDir(t testing.TB, dir string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.AddFS(os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func gzipped(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(b); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func zstded(t testing.TB, b []byte) []byte {
	t.Helper()
	e, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	return e.EncodeAll(b, nil)
}

func index(t testing.TB, img v1.Image) v1.ImageIndex {
	t.Helper()
	return mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: empty.Image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "windows", Architecture: runtime.GOARCH}}},
		mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: runtime.GOARCH}}},
		mutate.IndexAddendum{Add: empty.Image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "unknown", Architecture: "unknown"}}},
	)
}

func TestImportFormats(t *testing.T) {
	img := testImage(t)
	docker := dockerSave(t, img)
	plain := tarOf(t, file{name: "./"}, file{name: "./bin/sh", body: "sh", mode: 0o755}, file{name: "./etc/kept", body: "upper"}, file{name: "./app", body: "app"})
	env := []string{"PATH=/bin", "A=2"}
	tests := []struct {
		name string
		data []byte
		env  []string
	}{
		{"docker save", docker, env},
		{"docker save, gzip", gzipped(t, docker), env},
		{"OCI archive", ociArchive(t, img), env},
		{"OCI archive of an index", ociArchive(t, index(t, img)), env},
		{"OCI archive, zstd", zstded(t, ociArchive(t, img)), env},
		{"rootfs tar", plain, nil},
		{"rootfs tar, gzip", gzipped(t, plain), nil},
		{"rootfs tar, zstd", zstded(t, plain), nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := openStore(t, t.TempDir())
			var steps []Step
			got, err := s.Import(t.Context(), bytes.NewReader(tt.data), int64(len(tt.data)), "t", "one", func(s Step) { steps = append(steps, s) })
			if err != nil {
				t.Fatalf("Import = %v", err)
			}
			if !slices.Equal(got.Env, tt.env) {
				t.Errorf("Env = %q, want %q", got.Env, tt.env)
			}
			tree := listing(t, got.Dir)
			for p, want := range map[string]string{"bin/sh": "sh", "etc/kept": "upper", "app": "app", "etc/gone": ""} {
				if tree[p] != want {
					t.Errorf("%s = %q, want %q", p, tree[p], want)
				}
			}
			if len(steps) == 0 {
				t.Error("no progress")
			}
		})
	}
}

// edit rewrites the files of an archive.
func edit(t *testing.T, data []byte, change func(name string, body []byte) (string, []byte)) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	r := tar.NewReader(bytes.NewReader(data))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if h.Name, body = change(h.Name, body); h.Name == "" {
			continue
		}
		h.Size = int64(len(body))
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(body); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestImportRefuses(t *testing.T) {
	img := testImage(t)
	docker, oci := dockerSave(t, img), ociArchive(t, img)
	evil := tarOf(t, file{name: "bin/sh"}, file{name: "../outside", body: "x"})
	evilLayer := static.NewLayer(evil, types.DockerUncompressedLayer)
	evilImage, err := mutate.AppendLayers(empty.Image, evilLayer)
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := mutate.ConfigFile(img, &v1.ConfigFile{OS: "linux", Architecture: "s390x", RootFS: configOf(t, img).RootFS})
	if err != nil {
		t.Fatal(err)
	}
	bomb := gzipped(t, tarOf(t, file{name: "bin/sh", body: strings.Repeat("\x00", 20<<20)}))
	tests := []struct {
		name string
		data []byte
		kind errs.Kind
	}{
		{"nothing", nil, errs.Invalid},
		{"text", []byte(strings.Repeat("hello world\n", 100)), errs.Invalid},
		{"an empty tar", tarOf(t), errs.Invalid},
		{"a project's tar", tarOf(t, file{name: "main.go"}), errs.Invalid},
		{"cut off", docker[:len(docker)/2], errs.Invalid},
		{"cut off gzip", gzipped(t, docker)[:500], errs.Invalid},
		{"a bomb", bomb, errs.TooLarge},
		{"another machine's", dockerSave(t, foreign), errs.Unsupported},
		{"malicious layer", dockerSave(t, evilImage), errs.Invalid},
		{"no manifest", edit(t, docker, func(n string, b []byte) (string, []byte) {
			if n == "manifest.json" {
				n = ""
			}
			return n, b
		}), errs.Invalid},
		{"manifest that is no JSON", edit(t, docker, func(n string, b []byte) (string, []byte) {
			if n == "manifest.json" {
				b = []byte("{")
			}
			return n, b
		}), errs.Invalid},
		{"manifest that names host files", edit(t, docker, func(n string, b []byte) (string, []byte) {
			if n == "manifest.json" {
				b = []byte(`[{"Config":"../../../../etc/passwd","Layers":["/etc/shadow"]}]`)
			}
			return n, b
		}), errs.Invalid},
		{"layers exchanged", edit(t, docker, func(n string, b []byte) (string, []byte) {
			if n == "manifest.json" {
				var m []map[string]any
				_ = json.Unmarshal(b, &m)
				layers := m[0]["Layers"].([]any)
				slices.Reverse(layers)
				b, _ = json.Marshal(m)
			}
			return n, b
		}), errs.Invalid},
		{"layer missing", edit(t, docker, func(n string, b []byte) (string, []byte) {
			if strings.HasSuffix(n, ".tar.gz") {
				n = ""
			}
			return n, b
		}), errs.Invalid},
		{"blob changed", edit(t, oci, func(n string, b []byte) (string, []byte) {
			if strings.HasPrefix(n, "blobs/sha256/") && len(b) > 0 {
				b[len(b)-1] ^= 1
			}
			return n, b
		}), errs.Invalid},
		{"name that leaves", edit(t, docker, func(n string, b []byte) (string, []byte) {
			if n == "manifest.json" {
				n = "../manifest.json"
			}
			return n, b
		}), errs.Invalid},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := openStore(t, t.TempDir())
			s.limits.bytes = 10 << 20
			_, err := s.Import(t.Context(), bytes.NewReader(tt.data), 0, "t", "one", nil)
			if !errors.Is(err, tt.kind) {
				t.Errorf("Import = %v, want %v", err, tt.kind)
			}
			entries, err := os.ReadDir(s.dir)
			if err != nil || len(entries) != 1 || entries[0].Name() != ".lock" {
				t.Errorf("left behind: %v, %v", entries, err)
			}
		})
	}
}

// A symbolic link in a docker-save archive is a reference inside it, and never
// a path of the host.
func TestImportLinkedLayers(t *testing.T) {
	layer := tarOf(t, file{name: "bin/sh", body: "x"})
	sum := sha256.Sum256(layer)
	config, err := json.Marshal(v1.ConfigFile{OS: "linux", Architecture: runtime.GOARCH, RootFS: v1.RootFS{
		Type: "layers", DiffIDs: []v1.Hash{{Algorithm: "sha256", Hex: hex.EncodeToString(sum[:])}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	id := strings.Repeat("a", 64)
	archive := func(link string) []byte {
		return tarOf(t, file{name: id + "/"}, file{name: id + "/real.tar", body: string(layer)},
			file{name: id + "/layer.tar", kind: tar.TypeSymlink, link: link},
			file{name: "c.json", body: string(config)},
			file{name: "manifest.json", body: `[{"Config":"c.json","Layers":["` + id + `/layer.tar"]}]`})
	}
	host := filepath.Join(t.TempDir(), "layer.tar")
	if err := os.WriteFile(host, layer, 0o600); err != nil {
		t.Fatal(err)
	}
	for link, ok := range map[string]bool{"real.tar": true, "../" + id + "/real.tar": true, host: false, "layer.tar": false} {
		s := openStore(t, t.TempDir())
		_, err := s.Import(t.Context(), bytes.NewReader(archive(link)), 0, "t", "one", nil)
		if ok && err != nil || !ok && !errors.Is(err, errs.Invalid) {
			t.Errorf("link to %s: Import = %v, want ok: %v", link, err, ok)
		}
	}
}

func TestImportIsCanceled(t *testing.T) {
	s := openStore(t, t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	data := tarOf(t, file{name: "bin/sh", body: strings.Repeat("x", 3<<20)}, file{name: "b"})
	_, err := s.Import(ctx, bytes.NewReader(data), 0, "t", "one", func(Step) { cancel() })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Import = %v, want canceled", err)
	}
	if list, _ := s.List(t.Context()); len(list) != 0 {
		t.Errorf("images: %+v, want none", list)
	}
}

func configOf(t testing.TB, img v1.Image) *v1.ConfigFile {
	t.Helper()
	c, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	return c
}
