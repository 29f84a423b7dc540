package core_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/core/lifecycle"
	"github.com/cubbyhq/cubby/internal/core/transfer"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/hostfiles"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// importOne imports one entry and returns what became of it.
func (w *world) importOne(id string, e transfer.ImportEntry) transfer.ImportedFile {
	w.t.Helper()
	files, err := w.Imports().Import(w.ctx, id, []transfer.ImportEntry{e})
	if err != nil {
		w.t.Fatal(err)
	}
	return files[0]
}

func TestImportOfContent(t *testing.T) {
	w := newWorld(t)
	w.member("a", "")
	files, err := w.Imports().Import(w.ctx, "a", []transfer.ImportEntry{
		{Content: strings.NewReader("text"), Destination: "in/a.txt"},
		{Source: "some/name.bin", Content: strings.NewReader("\x00\xff")},
		{Source: "b.txt", Content: strings.NewReader("x"), Destination: "sub/"},
		{Content: strings.NewReader(""), Destination: "empty"},
		{Content: strings.NewReader("")},
		{},
		{Sandbox: "a"},
		{Content: strings.NewReader(""), Destination: "in"},
		{Content: strings.NewReader(""), Destination: "in/a.txt/b"},
		{Content: strings.NewReader(""), Destination: "a\x00b"},
		{Content: strings.NewReader(""), Destination: "/"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		destination string
		size        int64
		kind        errs.Kind
	}{
		{"/workspace/in/a.txt", 4, ""},
		{"/workspace/name.bin", 2, ""},
		{"/workspace/sub/b.txt", 1, ""},
		{"/workspace/empty", 0, ""},
		{"", 0, errs.Invalid},
		{"", 0, errs.Invalid},
		{"", 0, errs.Invalid},
		{"/workspace/in", 0, errs.Invalid},
		{"/workspace/in/a.txt/b", 0, errs.Invalid},
		{"a\x00b", 0, errs.Invalid},
		{"/", 0, errs.Invalid},
	} {
		got := files[i]
		if got.Destination != want.destination || got.Size != want.size || want.kind == "" && got.Err != nil || want.kind != "" && !errors.Is(got.Err, want.kind) {
			t.Errorf("import %d = %+v, want %+v", i, got, want)
		}
	}
	wantError(t, "an import of nothing", files[5].Err, errs.Invalid, "a source is required: content, what a sandbox exported or a path of the host")
	if got := w.read("a", "name.bin", 0, -1); got != "\x00\xff" {
		t.Errorf("name.bin is %q", got)
	}
	events, _, err := w.Events().List(w.ctx, "a", 0, 0, event.FileImported)
	if err != nil || len(events) != 4 {
		t.Errorf("%d events of imports, %v, want 4", len(events), err)
	}
	if _, err := w.Imports().Import(w.ctx, "a", nil); !errors.Is(err, errs.Invalid) {
		t.Errorf("ImportFiles of none = %v, want invalid", err)
	}
	if _, err := w.Imports().Import(as(w.ctx, "other", "other"), "a", make([]transfer.ImportEntry, 1)); !errors.Is(err, errs.NotFound) {
		t.Errorf("ImportFiles of another tenant = %v, want not found", err)
	}
}

// Files go between sandboxes, whichever of them runs.
func TestImportOfASession(t *testing.T) {
	for _, state := range []string{"running", "source stopped", "both stopped"} {
		t.Run(state, func(t *testing.T) {
			w := newWorld(t)
			w.member("a", "")
			w.member("b", "")
			w.sh("a", `echo 1,2 > data.csv; chmod 755 data.csv; mkdir -p proj/sub; echo x > proj/x; echo yy > proj/sub/y; ln -s x proj/l; echo secret > secret`)
			w.export("a", "data.csv", "proj")
			for _, id := range []string{"a", "b"} {
				if state == "both stopped" || state == "source stopped" && id == "a" {
					if _, err := w.Sandboxes().Stop(w.ctx, id, 0); err != nil {
						t.Fatal(err)
					}
				}
			}
			got := w.importOne("b", transfer.ImportEntry{Sandbox: "a", Path: "/workspace/data.csv", Destination: "in.csv"})
			if got.Err != nil || got.Source != "a:/workspace/data.csv" || got.Destination != "/workspace/in.csv" || got.Size != 4 {
				t.Errorf("import of a file = %+v", got)
			}
			got = w.importOne("b", transfer.ImportEntry{Sandbox: "a", Path: "proj"})
			if got.Err != nil || got.Destination != "/workspace/proj" || got.Size != 5 {
				t.Errorf("import of a directory = %+v", got)
			}
			got = w.importOne("b", transfer.ImportEntry{Sandbox: "a", Path: "proj/sub/y"})
			if got.Err != nil || got.Destination != "/workspace/y" {
				t.Errorf("import of a file below a directory = %+v", got)
			}
			for _, tt := range []struct {
				id, path string
				kind     errs.Kind
				message  string
			}{
				{"a", "secret", errs.Forbidden, "the file was not exported by the sandbox"},
				{"a", "proj/../secret", errs.Forbidden, "the file was not exported by the sandbox"},
				{"a", "/etc/passwd", errs.Invalid, "Path outside /workspace: /etc/passwd"},
				{"a", "proj/gone", errs.NotFound, "File or directory not found in container"},
				{"nobody", "x", errs.NotFound, "sandbox 'nobody' not found"},
				{"../etc", "x", errs.NotFound, "sandbox '../etc' not found"},
			} {
				got := w.importOne("b", transfer.ImportEntry{Sandbox: tt.id, Path: tt.path})
				wantError(t, "import of "+tt.id+":"+tt.path, got.Err, tt.kind, tt.message)
			}
			if state == "both stopped" {
				if _, err := w.Sandboxes().Start(w.ctx, "b"); err != nil {
					t.Fatal(err)
				}
			}
			r := w.sh("b", `cat in.csv proj/x proj/sub/y y; readlink proj/l; stat -c %a in.csv; ls`)
			if want := "1,2\nx\nyy\nyy\nx\n755\nin.csv\nproj\ny\n"; string(r.Stdout) != want {
				t.Errorf("there is %q, want %q", r.Stdout, want)
			}
		})
	}
}

// A thread's files are its own, and those of no thread are no thread's.
func TestImportBetweenThreads(t *testing.T) {
	w := newWorld(t)
	for id, thread := range map[string]string{"a": "t", "b": "t", "c": "u", "d": ""} {
		w.member(id, thread)
		w.sh(id, "echo "+id+" > f")
		w.export(id, "f")
	}
	if got := w.importOne("b", transfer.ImportEntry{Sandbox: "a", Path: "f", Destination: "g"}); got.Err != nil {
		t.Errorf("import inside a thread: %v", got.Err)
	}
	for _, from := range [][2]string{{"a", "c"}, {"a", "d"}, {"d", "a"}} {
		got := w.importOne(from[1], transfer.ImportEntry{Sandbox: from[0], Path: "f"})
		wantError(t, "import by another thread", got.Err, errs.Forbidden, "the sandbox is in another thread")
	}
	stranger := as(w.ctx, "s", "s")
	if _, err := w.Sandboxes().Create(stranger, lifecycle.CreateRequest{ID: "e", Spec: sandbox.Spec{Thread: "t"}}); err != nil {
		t.Fatal(err)
	}
	files, err := w.Imports().Import(stranger, "e", []transfer.ImportEntry{{Sandbox: "a", Path: "f"}})
	if err != nil {
		t.Fatal(err)
	}
	wantError(t, "import by another tenant", files[0].Err, errs.NotFound, "sandbox 'a' not found")
	for _, tt := range [][2]string{{"u", "a"}, {"", "a"}, {"t", "nobody"}, {"t", "d"}} {
		_, err := w.Exports().OpenInThread(w.ctx, tt[0], tt[1], "/workspace/f", "")
		wantError(t, "OpenThreadExport", err, errs.Forbidden, "File not exported or access denied")
	}
	d, err := w.Exports().OpenInThread(w.ctx, "t", "a", "/workspace/f", "")
	if err != nil {
		t.Fatal(err)
	}
	d.Close()
}

func TestImportOfTheHost(t *testing.T) {
	dir := t.TempDir()
	allowed, outside := filepath.Join(dir, "allowed"), filepath.Join(dir, "outside")
	plant(t, outside, "secret", "secret")
	plant(t, dir, "allowedx/secret", "secret")
	data := plant(t, allowed, "data.csv", "1,2\n")
	plant(t, allowed, "project/sub/code.py", "print()\n")
	plant(t, allowed, "project/readme", "read\n")
	for link, target := range map[string]string{
		"project/link": "readme", "inside": "data.csv", "absolute": filepath.Join(outside, "secret"), "up": "../outside/secret",
		"dir": "../outside", "root": "/",
	} {
		if err := os.Symlink(target, filepath.Join(allowed, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, special := range []string{"pipe", "special/pipe"} {
		plant(t, allowed, special+".txt", "")
		if err := unix.Mkfifo(filepath.Join(allowed, special), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "unix", filepath.Join(allowed, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dirs, err := hostfiles.Allow([]string{filepath.Join(dir, "missing"), allowed})
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, func(c *core.Config) { c.ImportDirs = dirs })
	w.member("a", "")

	got := w.importOne("a", transfer.ImportEntry{Source: data, Destination: "data.csv"})
	if got.Err != nil || got.Source != data || got.Destination != "/workspace/data.csv" || got.Size != 4 {
		t.Errorf("import of a file = %+v", got)
	}
	got = w.importOne("a", transfer.ImportEntry{Source: filepath.Join(allowed, "project") + "/", Destination: "project/"})
	if got.Err != nil || got.Destination != "/workspace/project" || got.Size != 13 {
		t.Errorf("import of a directory = %+v", got)
	}
	if got := w.importOne("a", transfer.ImportEntry{Source: filepath.Join(allowed, "inside"), Destination: "linked"}); got.Err != nil || got.Size != 4 {
		t.Errorf("import of a link that stays inside = %+v", got)
	}
	r := w.sh("a", "cat data.csv linked project/readme project/sub/code.py; readlink project/link")
	if want := "1,2\n1,2\nread\nprint()\nreadme\n"; string(r.Stdout) != want {
		t.Errorf("there is %q, want %q", r.Stdout, want)
	}
	for _, name := range []string{
		filepath.Join(outside, "secret"), filepath.Join(outside, "nothing"), dir, "/", "/etc/passwd", "/dev/zero", "data.csv", "../data.csv",
		allowed + "/../outside/secret", filepath.Join(dir, "allowedx", "secret"), data + "\x00", filepath.Join(allowed, "absolute"),
		filepath.Join(allowed, "up"), filepath.Join(allowed, "dir", "secret"), filepath.Join(allowed, "dir"), filepath.Join(allowed, "root"),
		filepath.Join(allowed, "root", "etc", "passwd"),
	} {
		got := w.importOne("a", transfer.ImportEntry{Source: name, Destination: "x"})
		if !errors.Is(got.Err, errs.Forbidden) || !strings.HasPrefix(errs.Public(got.Err).Message, "Import from '") ||
			!strings.Contains(errs.Public(got.Err).Message, "denied — path is outside allowed directories. Configure CUBBY_IMPORT_ALLOWED_DIRS") {
			t.Errorf("import of %q = %+v, want denied", name, got)
		}
	}
	for _, name := range []string{"pipe", "socket", "special"} {
		if got := w.importOne("a", transfer.ImportEntry{Source: filepath.Join(allowed, name)}); !errors.Is(got.Err, errs.Invalid) {
			t.Errorf("import of %s = %+v, want invalid", name, got)
		}
	}
	if got := w.importOne("a", transfer.ImportEntry{Source: filepath.Join(allowed, "nothing")}); !errors.Is(got.Err, errs.NotFound) {
		t.Errorf("import of what is missing = %+v, want not found", got)
	}
	if r := w.sh("a", "ls"); string(r.Stdout) != "data.csv\nlinked\nproject\n" {
		t.Errorf("refused imports left %q", r.Stdout)
	}
}

func TestImportOfTheHostIsOffByDefault(t *testing.T) {
	w := newWorld(t)
	w.member("a", "")
	name := plant(t, t.TempDir(), "f", "x")
	got := w.importOne("a", transfer.ImportEntry{Source: name})
	wantError(t, "import", got.Err, errs.Forbidden,
		fmt.Sprintf("Import from '%s' denied — path is outside allowed directories. Configure CUBBY_IMPORT_ALLOWED_DIRS to allow it.", name))
}

// What an import makes has the rights of the sandbox's user and no others.
func TestAttackImportWhereTheUserCannotWrite(t *testing.T) {
	w := newWorld(t)
	w.member("a", "")
	w.member("b", "")
	w.sh("b", "mkdir d; echo x > d/f")
	w.export("b", "d")
	// The fake's other paths are the host's own.
	locked := t.TempDir()
	plant(t, locked, "file", "before")
	if err := os.Chown(locked, 0, 0); err != nil && os.Getuid() == 0 {
		t.Fatal(err)
	}
	if err := os.Chmod(locked, 0o500); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(locked, 0o700) }) //nolint:gosec // for its removal
	w.sh("a", "ln -s "+locked+" link; ln -s "+locked+"/dangling dangling; mkdir -m 500 mine")
	for _, name := range []string{locked + "/new", locked + "/sub/new", "link/new", "link", "dangling", "mine/new"} {
		for _, e := range []transfer.ImportEntry{{Content: strings.NewReader(""), Destination: name}, {Sandbox: "b", Path: "d", Destination: name}} {
			if got := w.importOne("a", e); got.Err == nil {
				t.Errorf("%+v was imported to %s", e, got.Destination)
			}
		}
	}
	if left, err := os.ReadDir(locked); err != nil || len(left) != 1 {
		t.Errorf("made where the user cannot write: %v, %v", left, err)
	}
	root, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: "root", Spec: sandbox.Spec{User: "root"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := w.importOne(string(root.ID), transfer.ImportEntry{Content: strings.NewReader(""), Destination: locked + "/new"}); os.Getuid() == 0 && got.Err != nil {
		t.Errorf("import by root = %+v", got)
	}
}
