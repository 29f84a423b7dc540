//go:build root

package e2e_test

import (
	"archive/tar"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/test/harness"
)

// programImage makes an archive of a root filesystem that has the program
// itself as its only command: it needs no other file.
func programImage(t *testing.T, program string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "small.tar")
	out, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	from, err := os.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	info, err := from.Stat()
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(out)
	write := func(h *tar.Header, r io.Reader) {
		t.Helper()
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(w, r); err != nil {
			t.Fatal(err)
		}
	}
	write(&tar.Header{Name: "usr/bin/cubby", Mode: 0o755, Size: info.Size(), Typeflag: tar.TypeReg}, from)
	text := strings.Repeat("x", 1<<20)
	write(&tar.Header{Name: "usr/share/deep/er/file", Mode: 0o644, Size: int64(len(text)), Typeflag: tar.TypeReg}, strings.NewReader(text))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestImageDirectoryDamaged damages a real image below sandboxes of both
// isolations: none is made from it, the error says what to do, what runs goes
// on, and importing it again heals it.
func TestImageDirectoryDamaged(t *testing.T) {
	t.Parallel()
	program := harness.Program(t)
	archive := programImage(t, program)
	dir := t.TempDir()
	importIt := func() {
		t.Helper()
		out, err := exec.Command(program, "image", "import", "--image-dir", dir, "--name", "base", archive).CombinedOutput()
		if err != nil {
			t.Fatalf("import: %v: %s", err, out)
		}
	}
	importIt()
	tests := []struct {
		name   string
		damage func(image string) error
		want   string
	}{
		{"a file is gone", func(image string) error {
			return os.Remove(filepath.Join(image, "rootfs/usr/share/deep/er/file"))
		}, "damaged"},
		{"a file is shorter", func(image string) error {
			return os.Truncate(filepath.Join(image, "rootfs/usr/share/deep/er/file"), 1<<19)
		}, "damaged"},
		{"a file is new", func(image string) error {
			return os.WriteFile(filepath.Join(image, "rootfs/usr/bin/sh"), []byte("#!"), 0o755)
		}, "damaged"},
		{"the tree is gone", func(image string) error { return os.RemoveAll(filepath.Join(image, "rootfs")) }, "damaged"},
		{"the record is no JSON", func(image string) error {
			return os.WriteFile(filepath.Join(image, "image.json"), []byte("{"), 0o600)
		}, "damaged"},
		{"the image is gone", os.RemoveAll, "damaged"},
		{"the names are no JSON", func(image string) error {
			return os.WriteFile(filepath.Join(filepath.Dir(image), "names.json"), []byte("{"), 0o600)
		}, "names"},
	}
	h := newReal(t, harness.Options{Images: dir})
	url := mustStart(t, h)
	t.Cleanup(func() { _ = h.kill() })
	create := func(id, isolation string) (int, string) {
		return call(t, "POST", url+"/v1/sandboxes", fmt.Sprintf(`{"id":%q,"isolation":%q}`, id, isolation))
	}
	version := func(when, id string) {
		t.Helper()
		if _, text := call(t, "POST", url+"/v1/sandboxes/"+id+"/exec", `{"cmd":["/usr/bin/cubby","version"]}`); !strings.Contains(text, `"exit_code":0`) {
			t.Errorf("%s: a command in %s = %s", when, id, text)
		}
	}
	isolations := []string{"gvisor", "container"}
	for _, isolation := range isolations {
		if status, text := create("old-"+isolation, isolation); status != http.StatusCreated {
			t.Fatalf("create = %d %s", status, text)
		}
		version("before", "old-"+isolation)
	}
	names, err := os.ReadFile(filepath.Join(dir, "names.json"))
	if err != nil {
		t.Fatal(err)
	}
	_, list := call(t, "GET", url+"/v1/images", "")
	digest := list[strings.Index(list, `"digest":"`)+len(`"digest":"`):][:64]
	for _, tt := range tests {
		if err := tt.damage(filepath.Join(dir, digest)); err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if err := h.stop(); err != nil { // the next daemon has looked at nothing yet
			t.Fatal(err)
		}
		url = mustStart(t, h)
		for _, isolation := range isolations {
			status, text := create("new", isolation)
			if status < 500 || !strings.Contains(text, tt.want) || !strings.Contains(text, `"hint":`) || strings.Contains(text, dir) {
				t.Errorf("%s: create = %d %s, want a 5xx that says %q, with a hint and no path", tt.name, status, text, tt.want)
			}
			if status, text := call(t, "GET", url+"/v1/sandboxes/new", ""); status != http.StatusNotFound && !strings.Contains(text, `"failed"`) {
				t.Errorf("%s: a refused create left %d %s", tt.name, status, text)
			}
		}
		for _, isolation := range isolations {
			if status, text := call(t, "GET", url+"/v1/sandboxes/old-"+isolation, ""); !strings.Contains(text, `"running"`) {
				t.Errorf("%s: what ran is %d %s", tt.name, status, text)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, "names.json"), names, 0o600); err != nil {
			t.Fatal(err)
		}
		importIt()
		for _, isolation := range isolations {
			if status, text := create("new", isolation); status != http.StatusCreated {
				t.Errorf("%s: create from the mended image = %d %s", tt.name, status, text)
				continue
			}
			version(tt.name, "new")
			if status, text := call(t, "DELETE", url+"/v1/sandboxes/new", ""); status != http.StatusNoContent {
				t.Errorf("%s: destroy = %d %s", tt.name, status, text)
			}
		}
	}
}
