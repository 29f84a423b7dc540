package filetreetest

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Eventually waits for what another process does in its own time.
func Eventually(t *testing.T, done func() bool, what string) {
	t.Helper()
	for until := time.Now().Add(10 * time.Second); !done(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// plantDeep nests directories deeper than any path can name.
func plantDeep(t *testing.T, dir, name string, depth int) {
	t.Helper()
	at, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range depth {
		if err := unix.Mkdirat(at, name, 0o755); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		_ = unix.Close(at)
		if err != nil {
			t.Fatal(err)
		}
		at = next
	}
	_ = unix.Close(at)
}

func (e Env) archive(t *testing.T, name string) []byte {
	t.Helper()
	r, err := e.Archive(t.Context(), name)
	if err != nil {
		t.Fatalf("Archive(%s) = %v", name, err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatalf("Archive(%s) = %v", name, err)
	}
	return b
}

func entries(t *testing.T, b []byte) (names []string) {
	t.Helper()
	for r := tar.NewReader(bytes.NewReader(b)); ; {
		h, err := r.Next()
		if err == io.EOF {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, string(h.Typeflag)+" "+h.Name)
	}
}

func testArchiveRoundTrip(t *testing.T, e Env) {
	e.put(t, "/workspace/src/a", "a")
	e.put(t, "/workspace/src/sub/empty", "")
	e.put(t, "/workspace/src/sub/big", strings.Repeat("0123456789", 200_000))
	if _, err := e.Write(t.Context(), "/workspace/src/run.sh", strings.NewReader("#!"), sandbox.FileWrite{Mode: 0o755}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.MakeDir(t.Context(), "/workspace/src/none", 0o700, false, ""); err != nil {
		t.Fatal(err)
	}
	e.symlink(t, "sub/big", "/workspace/src/in")
	e.symlink(t, "/usr/bin/python3", "/workspace/src/python") // as venv makes them
	if err := os.Link(e.here("/workspace/src/a"), e.here("/workspace/src/hard")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(e.here("/workspace/src/fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	b := e.archive(t, "/workspace/src")
	want := []string{"0 a", "0 hard", "2 in", "5 none/", "2 python", "0 run.sh", "5 sub/", "0 sub/big", "0 sub/empty"}
	if diff := cmp.Diff(want, entries(t, b)); diff != "" {
		t.Errorf("the archive holds (-want +got):\n%s", diff)
	}
	if err := e.Extract(t.Context(), "/workspace/new/dst", bytes.NewReader(b), ""); err != nil {
		t.Fatalf("Extract = %v", err)
	}
	if diff := cmp.Diff(want, entries(t, e.archive(t, "/workspace/new/dst"))); diff != "" {
		t.Errorf("the archive of what was extracted (-want +got):\n%s", diff)
	}
	if got, want := e.get(t, "/workspace/new/dst/in"), e.get(t, "/workspace/src/sub/big"); got != want {
		t.Errorf("2 MB came through an archive as %d other bytes", len(got))
	}
	for name, f := range map[string]sandbox.File{
		"run.sh": {Type: sandbox.RegularFile, Mode: 0o755, UID: owner(1000)},
		"none":   {Type: sandbox.Directory, Mode: 0o700, UID: owner(1000)},
		"sub":    {Type: sandbox.Directory, Mode: 0o755, UID: owner(1000)},
	} {
		got, err := e.Stat(t.Context(), "/workspace/new/dst/"+name, false)
		if err != nil || got.Type != f.Type || got.Mode != f.Mode || got.UID != f.UID {
			t.Errorf("%s was extracted as %v %v %d, %v, want %v %v %d", name, got.Type, got.Mode, got.UID, err, f.Type, f.Mode, f.UID)
		}
	}
	_, err := e.Archive(t.Context(), "/workspace/missing")
	wantKind(t, "Archive of nothing", err, errs.NotFound)
	_, err = e.Archive(t.Context(), "/workspace/src/fifo")
	wantKind(t, "Archive of a FIFO", err, errs.Invalid)
}

func testArchiveFile(t *testing.T, e Env) {
	e.put(t, "/workspace/one", "1")
	b := e.archive(t, "/workspace/one")
	if diff := cmp.Diff([]string{"0 one"}, entries(t, b)); diff != "" {
		t.Errorf("the archive of a file (-want +got):\n%s", diff)
	}
	// A reader who has seen enough.
	r, err := e.Archive(t.Context(), "/workspace")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Errorf("Close = %v", err)
	}
}

func testExtractOverwrites(t *testing.T, e Env) {
	e.put(t, "/workspace/file", "old")
	e.put(t, "/workspace/dir/kept", "kept")
	e.put(t, "/workspace/elsewhere", "safe")
	e.symlink(t, "elsewhere", "/workspace/link")
	err := e.Extract(t.Context(), "/workspace", tarOf(t,
		tar.Header{Name: "."},
	), "")
	wantKind(t, "Extract of a file without a name", err, errs.Invalid)
	err = e.Extract(t.Context(), "/workspace", tarOf(t,
		tar.Header{Name: "./", Typeflag: tar.TypeDir, Mode: 0o700},
		tar.Header{Name: "./file"},
		tar.Header{Name: "link"},
		tar.Header{Name: "dir/", Typeflag: tar.TypeDir, Mode: 0o755},
		tar.Header{Name: "dir/new"},
		tar.Header{Name: "dir/hard", Typeflag: tar.TypeLink, Linkname: "dir/new"},
		tar.Header{Name: "dir/new"},
	), "root")
	if err != nil {
		t.Fatalf("Extract = %v", err)
	}
	for name, want := range map[string]string{
		"file": "content of ./file", "link": "content of link", "elsewhere": "safe",
		"dir/kept": "kept", "dir/new": "content of dir/new", "dir/hard": "content of dir/new",
	} {
		if got := e.get(t, "/workspace/"+name); got != want {
			t.Errorf("%s holds %q, want %q", name, got, want)
		}
	}
	if f, err := e.Stat(t.Context(), "/workspace/dir/new", false); err != nil || f.UID != owner(0) {
		t.Errorf("extracted as root it belongs to %d, %v", f.UID, err)
	}
	err = e.Extract(t.Context(), "/workspace", tarOf(t, tar.Header{Name: "dir"}), "")
	wantKind(t, "Extract of a file over a directory", err, errs.Invalid)
	err = e.Extract(t.Context(), "/workspace", tarOf(t, tar.Header{Name: "file/", Typeflag: tar.TypeDir}), "")
	wantKind(t, "Extract of a directory over a file", err, errs.Conflict)
	err = e.Extract(t.Context(), "/workspace/file", tarOf(t, tar.Header{Name: "x"}), "")
	wantKind(t, "Extract into a file", err, errs.Invalid)
	err = e.Extract(t.Context(), "/workspace", strings.NewReader(strings.Repeat("not a tar ", 100)), "")
	wantKind(t, "Extract of what is no tar", err, errs.Invalid)
	whole, err := io.ReadAll(tarOf(t, tar.Header{Name: "cut"}))
	if err != nil {
		t.Fatal(err)
	}
	err = e.Extract(t.Context(), "/workspace", bytes.NewReader(whole[:520]), "")
	wantKind(t, "Extract of a tar that was cut", err, errs.Invalid)
	if err := e.Extract(t.Context(), "/workspace/void", strings.NewReader(""), ""); err != nil {
		t.Errorf("Extract of nothing = %v, want an empty directory", err)
	}
}

// Names are bytes to Linux; listings must survive them.
func testOddNames(t *testing.T, e Env) {
	for _, name := range []string{"new\nline", "-rf", "tab\t", "ünï", "\xff\xfe", "a b", "%2e%2e", "..."} {
		if err := os.WriteFile(filepath.Join(e.Workspace, name), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("\xffgone", filepath.Join(e.Workspace, "link")); err != nil {
		t.Fatal(err)
	}
	if got := e.list(t, "/workspace", true); len(got) != 9 {
		t.Errorf("listed %q, want 9 names", got)
	}
	for _, name := range []string{"new\nline", "-rf", "tab\t", "ünï", "a b", "%2e%2e", "..."} {
		if got := e.get(t, "/workspace/"+name); got != name {
			t.Errorf("Read(%q) = %q", name, got)
		}
		e.put(t, "/workspace/"+name, "written")
	}
	b := e.archive(t, "/workspace")
	if err := e.Extract(t.Context(), "/home/sandbox/copy", bytes.NewReader(b), ""); err != nil {
		t.Fatalf("Extract = %v", err)
	}
	if got, err := os.ReadFile(filepath.Join(e.Home, "copy", "\xff\xfe")); err != nil || string(got) != "\xff\xfe" {
		t.Errorf("a name that is not UTF-8 came through an archive as %q, %v", got, err)
	}
}

func testCanceled(t *testing.T, e Env) {
	ctx, cancel := context.WithCancel(t.Context())
	pr, pw := io.Pipe()
	go func() {
		_, _ = pw.Write(make([]byte, 1<<20))
		cancel()
		_, _ = pw.Write(make([]byte, 4<<20))
		pw.CloseWithError(errors.New("the caller is gone"))
	}()
	_, err := e.Write(ctx, "/workspace/f", pr, sandbox.FileWrite{})
	pr.CloseWithError(io.ErrClosedPipe)
	if err == nil {
		t.Error("Write with a context that ended = nil")
	}
	Eventually(t, func() bool { return len(e.list(t, "/workspace", false)) == 0 }, "the rest of the write to go")
}

func tarOf(t *testing.T, headers ...tar.Header) io.Reader {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		content := "content of " + h.Name
		if h.Typeflag == 0 || h.Typeflag == tar.TypeReg {
			h.Typeflag, h.Size = tar.TypeReg, int64(len(content))
		}
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := io.WriteString(w, content); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}
