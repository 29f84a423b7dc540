package cli

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
)

func TestCopy(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	do := func(stdin string, args ...string) result {
		t.Helper()
		return cubby(t, d.URL, strings.NewReader(stdin), args...)
	}
	if res := do("", "create", "--id", "box"); res.code != 0 {
		t.Fatalf("create: %+v", res)
	}
	dir := t.TempDir()
	local := func(elems ...string) string { return filepath.Join(append([]string{dir}, elems...)...) }
	write := func(path, text string, mode os.FileMode) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	write(local("run.sh"), "#!/bin/sh\necho ran\n", 0o755)
	write(local("project", "a.txt"), "a", 0o644)
	write(local("project", "sub", "b.txt"), "b", 0o600)
	ok := func(args ...string) {
		t.Helper()
		if res := do("", args...); res != (result{"", "", 0}) {
			t.Errorf("%q: %+v", args, res)
		}
	}
	inside := func(script, want string) {
		t.Helper()
		if res := do("", "exec", "box", "--", "sh", "-c", script); res.stdout != want {
			t.Errorf("%s: %+v, want %q", script, res, want)
		}
	}

	ok("cp", local("run.sh"), "box:")
	inside("cat run.sh && test -x run.sh && echo yes", "#!/bin/sh\necho ran\nyes\n")
	ok("cp", local("run.sh"), "box:other.sh")
	inside("test -f other.sh && echo yes", "yes\n")
	ok("cp", local("project"), "box:")
	inside("cat project/a.txt project/sub/b.txt", "ab")
	ok("cp", local("project"), "box:new")
	inside("cat new/a.txt new/sub/b.txt", "ab")
	ok("cp", local("project")+"/.", "box:new")
	inside("ls new | tr '\\n' ' '", "a.txt sub ")
	ok("cp", local("project"), "box:new/")
	inside("cat new/project/a.txt", "a")

	if res := do("from stdin", "cp", "-", "box:in.txt"); res != (result{"", "", 0}) {
		t.Errorf("cp -: %+v", res)
	}
	if res := do("", "cp", "box:in.txt", "-"); res != (result{"from stdin", "", 0}) {
		t.Errorf("cp to -: %+v", res)
	}
	if res := do("", "cp", "box:new/sub", "-"); tarNames(t, res.stdout) != "b.txt" {
		t.Errorf("cp of a directory to -: %q", tarNames(t, res.stdout))
	}

	ok("cp", "box:run.sh", local("back.sh"))
	if info, err := os.Stat(local("back.sh")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("mode of what came back: %v, %v", info, err)
	}
	if err := os.Mkdir(local("target"), 0o755); err != nil {
		t.Fatal(err)
	}
	ok("cp", "box:in.txt", local("target"))
	ok("cp", "box:project", local("target"))
	ok("cp", "box:project/.", local("fresh", "deep"))
	for path, want := range map[string]string{
		local("target", "in.txt"):                  "from stdin",
		local("target", "project", "sub", "b.txt"): "b",
		local("fresh", "deep", "a.txt"):            "a",
	} {
		if got, err := os.ReadFile(path); string(got) != want || err != nil {
			t.Errorf("%s = %q, %v, want %q", path, got, err, want)
		}
	}
	if left, _ := filepath.Glob(local("*", ".cubby-cp-*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}

	for _, tt := range []struct {
		name string
		args []string
	}{
		{"missing here", []string{"cp", local("nope"), "box:"}},
		{"missing there", []string{"cp", "box:nope", dir}},
		{"no such directory there", []string{"cp", local("run.sh"), "box:nope/"}},
		{"no such directory here", []string{"cp", "box:run.sh", local("nope") + "/"}},
		{"directory over a file", []string{"cp", local("project"), "box:run.sh"}},
		{"input without a name", []string{"cp", "-", "box:"}},
		{"no sandbox", []string{"cp", local("run.sh"), "nobox:"}},
	} {
		if res := do("", tt.args...); res.code != 1 || res.stderr == "" {
			t.Errorf("%s: %+v, want exit 1 with a reason", tt.name, res)
		}
	}
}

func tarNames(t *testing.T, archive string) string {
	t.Helper()
	var names []string
	tr := tar.NewReader(bytes.NewReader([]byte(archive)))
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return strings.Join(names, " ")
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
	}
}
