package core_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/core/lifecycle"
	"github.com/cubbyhq/cubby/internal/core/transfer"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// member makes a sandbox of a thread, whose user can write as the test can.
func (w *world) member(id, thread string) sandbox.Sandbox {
	w.t.Helper()
	b, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: id, Spec: sandbox.Spec{Thread: thread, User: testUser()}})
	if err != nil {
		w.t.Fatalf("Create %s: %v", id, err)
	}
	return b
}

// testUser owns what the fake's sandboxes make.
func testUser() string {
	if uid := os.Getuid(); uid != 0 {
		return fmt.Sprint(uid)
	}
	return ""
}

// export registers paths, all of which must be good.
func (w *world) export(id string, paths ...string) []transfer.ExportedFile {
	w.t.Helper()
	files, err := w.Exports().Add(w.ctx, id, paths)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, f := range files {
		if f.Err != nil {
			w.t.Fatalf("export %s: %v", f.Path, f.Err)
		}
	}
	return files
}

func (w *world) download(id, name, format string) []byte {
	w.t.Helper()
	d, err := w.Exports().Open(w.ctx, id, name, format)
	if err != nil {
		w.t.Fatalf("OpenExport %s: %v", name, err)
	}
	defer d.Close()
	b, err := io.ReadAll(d)
	if err != nil {
		w.t.Fatalf("read %s: %v", name, err)
	}
	return b
}

func wantError(t *testing.T, act string, err error, kind errs.Kind, message string) {
	t.Helper()
	if !errors.Is(err, kind) || errs.Public(err).Message != message {
		t.Errorf("%s = %v, want %s: %s", act, err, kind, message)
	}
}

func TestExportFiles(t *testing.T) {
	for _, state := range []string{"running", "stopped"} {
		t.Run(state, func(t *testing.T) {
			w := newWorld(t, func(c *core.Config) {
				c.URLs.Download = func(b sandbox.Sandbox, name string) string { return "https://box.example/" + string(b.ID) + name }
			})
			w.member("a", "")
			w.sh("a", `mkdir -p results/sub logs; echo one > output.csv; echo 12345 > results/r; echo 123 > results/sub/s; mkfifo pipe; ln -s /etc/passwd out; ln -s output.csv in; ln -s /etc etc`)
			if state == "stopped" {
				if _, err := w.Sandboxes().Stop(w.ctx, "a", 0); err != nil {
					t.Fatal(err)
				}
			}
			files, err := w.Exports().Add(w.ctx, "a", []string{
				"output.csv", "results/", "/workspace/logs/", "report.pdf", "", "/etc/passwd", "../../etc/passwd", "/workspace/../etc",
				"out", "in", "etc/passwd", "etc", "pipe", "a\x00b", "/workspacex",
			})
			if err != nil {
				t.Fatal(err)
			}
			for i, want := range []struct {
				path string
				size int64
				dir  bool
				err  string
			}{
				{"/workspace/output.csv", 4, false, ""},
				{"/workspace/results", 10, true, ""},
				{"/workspace/logs", 0, true, ""},
				{"/workspace/report.pdf", 0, false, "File or directory not found in container"},
				{"", 0, false, "source is required"},
				{"/etc/passwd", 0, false, "Path outside /workspace: /etc/passwd"},
				{"/etc/passwd", 0, false, "Path outside /workspace: /etc/passwd"},
				{"/etc", 0, false, "Path outside /workspace: /etc"},
				{"/workspace/out", 0, false, "Path outside /workspace: /workspace/out"},
				{"/workspace/in", 4, false, ""},
				{"/workspace/etc/passwd", 0, false, "Path outside /workspace: /workspace/etc/passwd"},
				{"/workspace/etc", 0, false, "Path outside /workspace: /workspace/etc"},
				{"/workspace/pipe", 0, false, "Not a regular file or directory"},
				{"a\x00b", 0, false, "a path has a NUL byte"},
				{"/workspacex", 0, false, "Path outside /workspace: /workspacex"},
			} {
				got := files[i]
				message := ""
				if got.Err != nil {
					message = errs.Public(got.Err).Message
				}
				if state == "stopped" && strings.Contains(want.path, "/etc") || want.path == "/workspace/out" {
					// On its disk there is nothing else at all.
					if got.Err == nil {
						t.Errorf("%s was exported", got.Path)
					}
					continue
				}
				if got.Sandbox != "a" || got.Path != want.path || got.Size != want.size || got.Dir != want.dir || message != want.err {
					t.Errorf("export %d = %+v, want %+v", i, got, want)
				}
			}
			if want := "https://box.example/a/workspace/output.csv"; files[0].DownloadURL != want {
				t.Errorf("DownloadURL = %s, want %s", files[0].DownloadURL, want)
			}
			// The good ones are registered, and in the history.
			list, err := w.Exports().List(w.ctx, "a")
			if err != nil || len(list) != 4 || list[0].Path != "/workspace/in" || list[0].Size != 4 || !list[1].Dir {
				t.Errorf("Exports = %+v, %v", list, err)
			}
			events, _, err := w.Events().List(w.ctx, "a", 0, 0, event.FileExported)
			if err != nil || len(events) != 4 {
				t.Errorf("%d events of exports, %v, want 4", len(events), err)
			}
			for name, want := range map[string]string{"output.csv": "one\n", "/workspace/in": "one\n", "results/sub/../r": "12345\n"} {
				if got := w.download("a", name, ""); string(got) != want {
					t.Errorf("the download of %s is %q, want %q", name, got, want)
				}
			}
			for _, name := range []string{"report.pdf", "/workspace", "pipe", "resultsx", "results/../pipe"} {
				_, err := w.Exports().Open(w.ctx, "a", name, "")
				wantError(t, "OpenExport "+name, err, errs.Forbidden, "File not exported or access denied")
			}
			_, err = w.Exports().Open(w.ctx, "a", "/etc/passwd", "")
			wantError(t, "OpenExport", err, errs.Invalid, "Path outside /workspace: /etc/passwd")
			if _, err := w.Exports().Open(w.ctx, "a", "results", "rar"); !errors.Is(err, errs.Invalid) {
				t.Errorf("OpenExport as rar = %v, want invalid", err)
			}
		})
	}
}

func TestExportsOfNobody(t *testing.T) {
	w := newWorld(t)
	w.member("a", "")
	for _, sources := range [][]string{nil, make([]string, 1001)} {
		if _, err := w.Exports().Add(w.ctx, "a", sources); !errors.Is(err, errs.Invalid) {
			t.Errorf("ExportFiles of %d = %v, want invalid", len(sources), err)
		}
	}
	other := as(w.ctx, "other", "other")
	_, errs1 := w.Exports().Add(other, "a", []string{"x"})
	_, errs2 := w.Exports().List(other, "a")
	_, errs3 := w.Exports().Open(other, "a", "x", "")
	_, errs4 := w.Exports().Add(w.ctx, "nobody", []string{"x"})
	for i, err := range []error{errs1, errs2, errs3, errs4} {
		if !errors.Is(err, errs.NotFound) {
			t.Errorf("call %d = %v, want not found", i+1, err)
		}
	}
}

// What is registered goes with the sandbox: the next one of that id has nothing.
func TestExportsEndWithTheSandbox(t *testing.T) {
	w := newWorld(t)
	w.member("a", "")
	w.sh("a", "echo x > f")
	w.export("a", "f")
	w.restart()
	if got := w.download("a", "f", ""); string(got) != "x\n" {
		t.Errorf("after a restart of the daemon the download is %q", got)
	}
	if err := w.Sandboxes().Destroy(w.ctx, "a", true); err != nil {
		t.Fatal(err)
	}
	w.member("a", "")
	if got := w.sh("a", "cat f"); string(got.Stdout) != "x\n" {
		t.Fatalf("the kept disk has %q", got.Stdout)
	}
	_, err := w.Exports().Open(w.ctx, "a", "f", "")
	wantError(t, "OpenExport", err, errs.Forbidden, "File not exported or access denied")
}

// Between the registration and the download the sandbox puts a link in the
// place of what it exported.
func TestAttackExportSwappedForALink(t *testing.T) {
	for _, state := range []string{"running", "stopped"} {
		t.Run(state, func(t *testing.T) {
			w := newWorld(t)
			w.member("a", "")
			w.sh("a", "echo x > f; mkdir -p d/sub; echo x > d/sub/g; ln -s f link")
			w.export("a", "f", "d", "link")
			w.sh("a", "rm -r f d/sub; ln -s /etc/passwd f; ln -s /etc d/sub; ln -s / d/root; echo mine > d/h")
			if state == "stopped" {
				if _, err := w.Sandboxes().Stop(w.ctx, "a", 0); err != nil {
					t.Fatal(err)
				}
			}
			for _, name := range []string{"f", "link", "d/sub/passwd", "d/root/etc/passwd", "d/root"} {
				d, err := w.Exports().Open(w.ctx, "a", name, "")
				if err == nil {
					b, _ := io.ReadAll(d)
					t.Errorf("OpenExport %s gave %d bytes", name, len(b))
					d.Close()
				}
			}
			if names := zipNames(t, w.download("a", "d", "")); !slices.Equal(names, []string{"d/", "d/h"}) {
				t.Errorf("the directory has %q", names)
			}
		})
	}
}

func zipNames(t *testing.T, body []byte) (names []string) {
	t.Helper()
	z, err := zip.NewReader(bytes.NewReader(body), int64(len(body)))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range z.File {
		names = append(names, f.Name)
	}
	return names
}

func tgzContent(t *testing.T, body []byte) map[string]string {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	content := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return content
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		content[h.Name] = string(b) + h.Linkname
	}
}

func TestExportedDirectory(t *testing.T) {
	w := newWorld(t)
	w.member("a", "")
	w.sh("a", `mkdir -p mydir/sub/deep mydir/empty; echo 1 > mydir/f1.txt; echo 2 > mydir/f2.txt; echo 3 > mydir/sub/deep/f3
		ln -s f1.txt mydir/inside; ln -s ../f1.txt mydir/sub/up; ln -s ../../x mydir/sub/out; ln -s deep/../../../x mydir/sub/late; ln -s /workspace/mydir/f1.txt mydir/absolute
		mkfifo mydir/pipe; touch 'mydir/..\..\evil' 'mydir/C:evil' "$(printf 'mydir/new\nline')"`)
	w.export("a", "mydir")
	want := []string{
		"mydir/", "mydir/.._.._evil", "mydir/C_evil", "mydir/empty/", "mydir/f1.txt", "mydir/f2.txt", "mydir/inside",
		"mydir/new_line", "mydir/sub/", "mydir/sub/deep/", "mydir/sub/deep/f3", "mydir/sub/up",
	}
	body := w.download("a", "/workspace/mydir/", "zip")
	if !bytes.HasPrefix(body, []byte("PK")) {
		t.Errorf("the zip begins with %q", body[:2])
	}
	if names := zipNames(t, body); !slices.Equal(slices.Sorted(slices.Values(names)), want) {
		t.Errorf("the zip has %q, want %q", names, want)
	}
	content := tgzContent(t, w.download("a", "mydir", "tar.gz"))
	if content["mydir/f2.txt"] != "2\n" || content["mydir/sub/up"] != "../f1.txt" || len(content) != len(want) {
		t.Errorf("the tar.gz has %q", content)
	}
	d, err := w.Exports().Open(w.ctx, "a", "mydir/sub", "tar.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if d.Name != "sub.tar.gz" || !d.Dir || d.Size != -1 {
		t.Errorf("OpenExport = %+v", d)
	}
}

// plant puts a file where only the host can.
func plant(t *testing.T, dir, name, content string) string {
	t.Helper()
	file := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(path.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}
