package filetreetest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

func testMakeDir(t *testing.T, e Env) {
	if _, err := e.MakeDir(t.Context(), "/workspace/a", 0, false, ""); err != nil {
		t.Fatal(err)
	}
	_, err := e.MakeDir(t.Context(), "/workspace/a", 0, false, "")
	wantKind(t, "MakeDir of what exists", err, errs.Conflict)
	if f, err := e.MakeDir(t.Context(), "/workspace/a", 0, true, ""); err != nil || f.Type != sandbox.Directory {
		t.Errorf("MakeDir with parents of what exists = %v, %v, want the directory", f.Type, err)
	}
	_, err = e.MakeDir(t.Context(), "/workspace/x/y", 0, false, "")
	wantKind(t, "MakeDir without its parent", err, errs.NotFound)
	if f, err := e.MakeDir(t.Context(), "/workspace/x/y/z", 0, true, ""); err != nil || f.Mode != 0o755 {
		t.Errorf("MakeDir with parents = %v, %v, want mode 0755", f.Mode, err)
	}
	e.put(t, "/workspace/file", "x")
	_, err = e.MakeDir(t.Context(), "/workspace/file", 0, true, "")
	wantKind(t, "MakeDir over a file", err, errs.Conflict)
	_, err = e.MakeDir(t.Context(), "/workspace/file/x", 0, true, "")
	wantKind(t, "MakeDir below a file", err, errs.Invalid)
}

func testRename(t *testing.T, e Env) {
	e.put(t, "/workspace/a", "a")
	e.put(t, "/workspace/b", "b")
	e.put(t, "/workspace/dir/x", "x")
	e.symlink(t, "a2", "/workspace/l")
	if _, err := e.MakeDir(t.Context(), "/workspace/empty", 0, false, ""); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		from, to string
		replace  bool
		kind     errs.Kind // "": it works
	}{
		{"/workspace/a", "/workspace/a2", false, ""},
		{"/workspace/a2", "/workspace/b", false, errs.Conflict},
		{"/workspace/none", "/workspace/c", false, errs.NotFound},
		{"/workspace/a2", "/workspace/none/c", false, errs.NotFound},
		{"/workspace/a2", "/workspace/dir", true, errs.Invalid},
		{"/workspace/dir", "/workspace/a2", true, errs.Invalid},
		{"/workspace/empty", "/workspace/dir", true, errs.Conflict},
		{"/workspace/dir", "/workspace/dir/sub", false, errs.Invalid},
		{"/workspace/a2", "/workspace/b", true, ""},
		{"/workspace/dir", "/workspace/empty", true, ""},
		{"/workspace/l", "/workspace/m", false, ""},
		{"/workspace/b", "/home/sandbox/b", false, ""},
		{"/workspace/empty", "/home/sandbox/empty", false, ""},
		{"/home/sandbox/empty", "/workspace/back", false, ""},
	} {
		f, err := e.Rename(t.Context(), tt.from, tt.to, tt.replace)
		switch {
		case tt.kind != "":
			wantKind(t, "Rename("+tt.from+", "+tt.to+")", err, tt.kind)
		case err != nil || f.Path != tt.to:
			t.Errorf("Rename(%s, %s) = %q, %v", tt.from, tt.to, f.Path, err)
		}
	}
	want := []string{"dir /workspace/back", "file /workspace/back/x", "symlink /workspace/m"}
	if diff := cmp.Diff(want, e.list(t, "/workspace", true)); diff != "" {
		t.Errorf("after all (-want +got):\n%s", diff)
	}
	if got := e.get(t, "/home/sandbox/b"); got != "a" {
		t.Errorf("the file that was moved over another holds %q, want a", got)
	}
}

func testRemove(t *testing.T, e Env) {
	e.put(t, "/workspace/a", "x")
	e.put(t, "/workspace/dir/sub/x", "x")
	e.put(t, "/workspace/kept/x", "x")
	e.symlink(t, "../../kept", "/workspace/dir/sub/l")
	e.symlink(t, "kept", "/workspace/l")
	for _, tt := range []struct {
		name      string
		recursive bool
		kind      errs.Kind
	}{
		{"/workspace/a", false, ""},
		{"/workspace/a", false, errs.NotFound},
		{"/workspace/a", true, errs.NotFound},
		{"/workspace/dir", false, errs.Conflict},
		{"/workspace/dir", true, ""},
		{"/workspace/l", true, ""},
		{"/workspace", true, errs.Forbidden},
		{"/home/sandbox", true, errs.Forbidden},
	} {
		err := e.Remove(t.Context(), tt.name, tt.recursive)
		if tt.kind != "" {
			wantKind(t, "Remove("+tt.name+")", err, tt.kind)
		} else if err != nil {
			t.Errorf("Remove(%s) = %v", tt.name, err)
		}
	}
	want := []string{"dir /workspace/kept", "file /workspace/kept/x"}
	if diff := cmp.Diff(want, e.list(t, "/workspace", true)); diff != "" {
		t.Errorf("what was only linked to (-want +got):\n%s", diff)
	}
}

func testRemoveDeep(t *testing.T, e Env) {
	plantDeep(t, e.here("/workspace"), "deep", 1500)
	if err := e.Remove(t.Context(), "/workspace/deep", true); err != nil {
		t.Errorf("Remove of a tree that is 1500 deep = %v", err)
	}
	if got := e.list(t, "/workspace", true); len(got) != 0 {
		t.Errorf("left: %v", got)
	}
}

func testPaths(t *testing.T, e Env) {
	for _, tt := range []struct {
		name, path string
	}{
		{"empty", ""},
		{"NUL", "/workspace/a\x00b"},
		{"NUL at the end", "/workspace/a\x00"},
		{"long name", "/workspace/" + strings.Repeat("n", 256)},
		{"long path", "/workspace/" + strings.Repeat("n/", 2100)},
		{"not UTF-8", "/workspace/\xff"},
	} {
		for _, act := range []struct {
			name string
			do   func() error
		}{
			{"Stat", func() error { _, err := e.Stat(t.Context(), tt.path, true); return err }},
			{"Read", func() error { _, err := e.read(t, tt.path, 0, -1); return err }},
			{"Write", func() error {
				_, err := e.Write(t.Context(), tt.path, strings.NewReader("x"), sandbox.FileWrite{Parents: true})
				return err
			}},
			{"MakeDir", func() error { _, err := e.MakeDir(t.Context(), tt.path, 0, true, ""); return err }},
			{"Rename to", func() error { _, err := e.Rename(t.Context(), "/workspace", tt.path, true); return err }},
			{"Remove", func() error { return e.Remove(t.Context(), tt.path, true) }},
			{"Archive", func() error { _, err := e.Archive(t.Context(), tt.path); return err }},
			{"Extract", func() error { return e.Extract(t.Context(), tt.path, tarOf(t), "") }},
			{"ListFiles", func() error {
				for _, err := range e.ListFiles(t.Context(), tt.path, true) {
					return err
				}
				return nil
			}},
		} {
			wantKind(t, act.name+" of a path that is or has "+tt.name, act.do(), errs.Invalid)
		}
	}
	// ".." is text: it is cleaned away before anything is looked up.
	e.put(t, "/workspace/f", "x")
	if got := e.get(t, "/workspace/none/../f"); got != "x" {
		t.Errorf("Read of a path with .. = %q, want x", got)
	}
	if got := e.get(t, "/../../workspace/f"); got != "x" {
		t.Errorf("Read of a path with .. at the root = %q, want x", got)
	}
}

func testHome(t *testing.T, e Env) {
	e.put(t, "/home/sandbox/.profile", "x")
	e.put(t, "/home/sandbox/workspace/f", "by home")
	if got := e.get(t, "/workspace/f"); got != "by home" {
		t.Errorf("a file written through ~/workspace holds %q in /workspace", got)
	}
	e.symlink(t, "../home/sandbox/.profile", "/workspace/up")
	e.symlink(t, "/home/sandbox/workspace/f", "/workspace/round")
	if got := e.get(t, "/workspace/round"); got != "by home" {
		t.Errorf("a link over ~/workspace reads %q", got)
	}
	want := []string{"file /home/sandbox/.profile", "symlink /home/sandbox/workspace"}
	if diff := cmp.Diff(want, e.list(t, "/home/sandbox", true)); diff != "" {
		t.Errorf("the home (-want +got):\n%s", diff)
	}
	if got := e.get(t, "/workspace/up"); got != "x" {
		t.Errorf("a relative link between the two reads %q, want x", got)
	}
}
