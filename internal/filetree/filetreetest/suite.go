// Package filetreetest is the conformance suite of cubby's file API. What a
// caller sees must be the same whether the files are those of a running
// sandbox, reached through its agent, or those of a stopped one, reached on
// its disk: both run [Run], and [Attacks] with the tricks of a hostile guest.
package filetreetest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Env is one implementation over fresh, empty directories.
type Env struct {
	sandbox.Files
	// Workspace and Home are the directories of this machine behind
	// /workspace and /home/sandbox. The suite plants things there behind the
	// implementation's back, as a guest would.
	Workspace, Home string
	// Confined: nothing but the two directories may be reached.
	Confined bool
}

// Dirs makes the two directories as a disk has them.
func Dirs(t *testing.T) (workspace, home string) {
	t.Helper()
	dir := t.TempDir()
	workspace, home = filepath.Join(dir, "workspace"), filepath.Join(dir, "home")
	for _, d := range []string{workspace, home} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/workspace", filepath.Join(home, "workspace")); err != nil {
		t.Fatal(err)
	}
	return workspace, home
}

// here is the path on this machine of a name below /workspace.
func (e Env) here(name string) string {
	return filepath.Join(e.Workspace, strings.TrimPrefix(name, "/workspace"))
}

func (e Env) put(t *testing.T, name, content string) {
	t.Helper()
	if _, err := e.Write(t.Context(), name, strings.NewReader(content), sandbox.FileWrite{Parents: true}); err != nil {
		t.Fatalf("Write(%s) = %v", name, err)
	}
}

func (e Env) get(t *testing.T, name string) string {
	t.Helper()
	b, err := e.read(t, name, 0, -1)
	if err != nil {
		t.Errorf("Read(%s) = %v", name, err)
	}
	return b
}

func (e Env) read(t *testing.T, name string, offset, length int64) (string, error) {
	t.Helper()
	r, _, err := e.Read(t.Context(), name, offset, length)
	if err != nil {
		return "", err
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	return string(b), err
}

func (e Env) list(t *testing.T, name string, recursive bool) []string {
	t.Helper()
	names := []string{}
	for f, err := range e.ListFiles(t.Context(), name, recursive) {
		if err != nil {
			t.Errorf("ListFiles(%s) = %v", name, err)
			break
		}
		names = append(names, string(f.Type)+" "+f.Path)
	}
	return names
}

func (e Env) symlink(t *testing.T, target, name string) {
	t.Helper()
	if err := os.Symlink(target, e.here(name)); err != nil {
		t.Fatal(err)
	}
}

func wantKind(t *testing.T, act string, err error, kind errs.Kind) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Errorf("%s = %v, want %v", act, err, kind)
	}
}

// owner is whom files belong to that this process makes for a user.
func owner(uid uint32) uint32 {
	if os.Geteuid() != 0 {
		return uint32(os.Geteuid())
	}
	return uid
}

// Run checks what the file API does.
func Run(t *testing.T, open func(t *testing.T) Env) {
	for _, tt := range []struct {
		name string
		run  func(t *testing.T, e Env)
	}{
		{"Write", testWrite},
		{"WriteModeAndOwner", testWriteModeAndOwner},
		{"WriteAppend", testAppend},
		{"WriteThroughSymlinks", testWriteThroughSymlinks},
		{"WriteThatBreaksOffKeepsTheOldContent", testWriteBreaksOff},
		{"WriteRefusals", testWriteRefusals},
		{"WriteOfWhatHasChanged", testReplaces},
		{"Read", testRead},
		{"Stat", testStat},
		{"List", testList},
		{"MakeDir", testMakeDir},
		{"Rename", testRename},
		{"Remove", testRemove},
		{"RemoveDeepTree", testRemoveDeep},
		{"Paths", testPaths},
		{"HomeAndWorkspace", testHome},
		{"ArchiveRoundTrip", testArchiveRoundTrip},
		{"ArchiveOfAFile", testArchiveFile},
		{"ExtractOverwrites", testExtractOverwrites},
		{"OddNames", testOddNames},
		{"Canceled", testCanceled},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.run(t, open(t)) })
	}
}

func testWrite(t *testing.T, e Env) {
	f, err := e.Write(t.Context(), "/workspace/a.txt", strings.NewReader("one"), sandbox.FileWrite{})
	if err != nil {
		t.Fatal(err)
	}
	want := sandbox.File{Path: "/workspace/a.txt", Type: sandbox.RegularFile, Size: 3, Mode: 0o644, UID: owner(1000), GID: f.GID, ModTime: f.ModTime}
	if diff := cmp.Diff(want, f); diff != "" {
		t.Errorf("Write gives (-want +got):\n%s", diff)
	}
	if f.ModTime.IsZero() {
		t.Error("Write gives no time")
	}
	e.put(t, "/workspace/a.txt", "second")
	e.put(t, "/workspace/deep/er/b", "")
	if got := e.get(t, "/workspace/a.txt"); got != "second" {
		t.Errorf("after two writes the file holds %q, want the second", got)
	}
	if got := e.get(t, "/workspace/deep/er/b"); got != "" {
		t.Errorf("an empty file holds %q", got)
	}
	big := bytes.Repeat([]byte("0123456789abcde\n"), 3<<20/16)
	if _, err := e.Write(t.Context(), "/workspace/big", bytes.NewReader(big), sandbox.FileWrite{}); err != nil {
		t.Fatal(err)
	}
	if got := e.get(t, "/workspace/big"); got != string(big) {
		t.Errorf("3 MiB came back as %d other bytes", len(got))
	}
	// Nothing but the files: no temporary ones.
	want2 := []string{"file /workspace/a.txt", "file /workspace/big", "dir /workspace/deep", "dir /workspace/deep/er", "file /workspace/deep/er/b"}
	if diff := cmp.Diff(want2, e.list(t, "/workspace", true)); diff != "" {
		t.Errorf("the tree (-want +got):\n%s", diff)
	}
}

func testWriteModeAndOwner(t *testing.T, e Env) {
	write := func(w sandbox.FileWrite) sandbox.File {
		t.Helper()
		f, err := e.Write(t.Context(), "/workspace/f", strings.NewReader("x"), w)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	check := func(step string, f sandbox.File, mode fs.FileMode, uid uint32) {
		t.Helper()
		if f.Mode != mode || f.UID != owner(uid) {
			t.Errorf("%s: mode %v owner %d, want %v %d", step, f.Mode, f.UID, mode, owner(uid))
		}
	}
	check("made", write(sandbox.FileWrite{Mode: 0o600}), 0o600, 1000)
	check("rewritten", write(sandbox.FileWrite{}), 0o600, 1000)
	check("with a mode", write(sandbox.FileWrite{Mode: 0o755}), 0o755, 1000)
	check("by root", write(sandbox.FileWrite{User: "root"}), 0o755, 0)
	check("keeps its owner", write(sandbox.FileWrite{}), 0o755, 0)
	check("keeps its owner whoever writes", write(sandbox.FileWrite{Maker: "1234"}), 0o755, 0)
	check("keeps it when appended to", write(sandbox.FileWrite{Maker: "1234", Append: true}), 0o755, 0)
	check("by a number", write(sandbox.FileWrite{User: "1234"}), 0o755, 1234)
	made, err := e.Write(t.Context(), "/workspace/made/g", strings.NewReader("x"), sandbox.FileWrite{Maker: "root", Parents: true})
	if err != nil {
		t.Fatal(err)
	}
	check("by its maker", made, 0o644, 0)
	_, err = e.Write(t.Context(), "/workspace/f", strings.NewReader("x"), sandbox.FileWrite{User: "no-such-user"})
	wantKind(t, "Write by an unknown user", err, errs.Invalid)
	d, err := e.MakeDir(t.Context(), "/workspace/p/q", 0o700, true, "")
	if err != nil {
		t.Fatal(err)
	}
	check("directory", d, 0o700, 1000)
	p, err := e.Stat(t.Context(), "/workspace/p", false)
	if err != nil {
		t.Fatal(err)
	}
	check("parent", p, 0o755, 1000)
}

func testAppend(t *testing.T, e Env) {
	for _, part := range []string{"one ", "two ", "three"} {
		if _, err := e.Write(t.Context(), "/workspace/log", strings.NewReader(part), sandbox.FileWrite{Append: true}); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := e.get(t, "/workspace/log"), "one two three"; got != want {
		t.Errorf("after three appends the file holds %q, want %q", got, want)
	}
	f, err := e.Stat(t.Context(), "/workspace/log", false)
	if err != nil || f.Mode != 0o644 || f.UID != owner(1000) {
		t.Errorf("an appended file has mode %v owner %d, %v, want 0644 %d", f.Mode, f.UID, err, owner(1000))
	}
}

func testWriteThroughSymlinks(t *testing.T, e Env) {
	e.put(t, "/workspace/dir/target", "old")
	e.symlink(t, "dir/target", "/workspace/relative")
	e.symlink(t, "/workspace/dir/target", "/workspace/absolute")
	e.symlink(t, "../dir/absolute2", "/workspace/dir/up")
	e.symlink(t, "/workspace/dir", "/workspace/d")
	e.symlink(t, "new", "/workspace/dangling")
	for _, name := range []string{"relative", "absolute", "d/target"} {
		e.put(t, "/workspace/"+name, "by "+name)
		if got, want := e.get(t, "/workspace/dir/target"), "by "+name; got != want {
			t.Errorf("after a write to %s the target holds %q, want %q", name, got, want)
		}
	}
	e.put(t, "/workspace/d/up", "up")
	if got := e.get(t, "/workspace/dir/absolute2"); got != "up" {
		t.Errorf("a link with .. is relative to where it is: got %q, want up", got)
	}
	e.put(t, "/workspace/dangling", "made")
	if got := e.get(t, "/workspace/new"); got != "made" {
		t.Errorf("a write through a dangling link made %q, want made", got)
	}
	for _, name := range []string{"relative", "absolute", "dangling", "d"} {
		if f, err := e.Stat(t.Context(), "/workspace/"+name, false); err != nil || f.Type != sandbox.Symlink {
			t.Errorf("%s is %v, %v, want still a symbolic link", name, f.Type, err)
		}
	}
	e.symlink(t, "loop2", "/workspace/loop1")
	e.symlink(t, "loop1", "/workspace/loop2")
	_, err := e.Write(t.Context(), "/workspace/loop1", strings.NewReader("x"), sandbox.FileWrite{})
	wantKind(t, "Write through a loop", err, errs.Invalid)
	_, err = e.Stat(t.Context(), "/workspace/loop1/x", true)
	wantKind(t, "Stat below a loop", err, errs.Invalid)
}

func testWriteBreaksOff(t *testing.T, e Env) {
	e.put(t, "/workspace/f", "old")
	// It wraps io.EOF and is not the end all the same.
	broken := fmt.Errorf("the upload broke off: %w", io.EOF)
	body := io.MultiReader(strings.NewReader(strings.Repeat("x", 2<<20)), iotest.ErrReader(broken))
	_, err := e.Write(t.Context(), "/workspace/f", body, sandbox.FileWrite{})
	if !errors.Is(err, broken) {
		t.Errorf("Write = %v, want the reader's own error", err)
	}
	if got := e.get(t, "/workspace/f"); got != "old" {
		t.Errorf("the file holds %d bytes, want the old content", len(got))
	}
	// The agent learns of the break a moment after the client.
	Eventually(t, func() bool { return len(e.list(t, "/workspace", false)) == 1 }, "the rest of the write to go")
}

func testWriteRefusals(t *testing.T, e Env) {
	e.put(t, "/workspace/file", "x")
	e.put(t, "/workspace/dir/x", "x")
	for _, tt := range []struct {
		name string
		w    sandbox.FileWrite
		kind errs.Kind
	}{
		{"/workspace/dir", sandbox.FileWrite{}, errs.Invalid},
		{"/workspace/dir", sandbox.FileWrite{Append: true}, errs.Invalid},
		{"/workspace", sandbox.FileWrite{}, errs.Invalid},
		{"/workspace/none/x", sandbox.FileWrite{}, errs.NotFound},
		{"/workspace/file/x", sandbox.FileWrite{}, errs.Invalid},
		{"/workspace/file/x/y", sandbox.FileWrite{Parents: true}, errs.Invalid},
	} {
		_, err := e.Write(t.Context(), tt.name, strings.NewReader("x"), tt.w)
		wantKind(t, "Write("+tt.name+")", err, tt.kind)
		// One that asks for the missing directory says how to have it made.
		if hint := errs.Public(err).Hint; strings.Contains(hint, "parents=true") != (tt.kind == errs.NotFound) {
			t.Errorf("Write(%s): hint %q", tt.name, hint)
		}
	}
}

func testRead(t *testing.T, e Env) {
	e.put(t, "/workspace/f", "0123456789")
	for _, tt := range []struct {
		offset, length int64
		want           string
	}{
		{0, -1, "0123456789"},
		{3, -1, "3456789"},
		{3, 4, "3456"},
		{8, 100, "89"},
		{0, 0, ""},
		{10, -1, ""},
		{100, 5, ""},
	} {
		got, err := e.read(t, "/workspace/f", tt.offset, tt.length)
		if err != nil || got != tt.want {
			t.Errorf("Read(%d, %d) = %q, %v, want %q", tt.offset, tt.length, got, err, tt.want)
		}
	}
	r, f, err := e.Read(t.Context(), "/workspace/f", 4, 2)
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	if f.Size != 10 || f.Type != sandbox.RegularFile || f.Path != "/workspace/f" {
		t.Errorf("Read describes %+v, want the whole file of 10 bytes", f)
	}
	_, err = e.read(t, "/workspace/f", -1, 1)
	wantKind(t, "Read at -1", err, errs.Invalid)
	_, err = e.read(t, "/workspace/none", 0, -1)
	wantKind(t, "Read of nothing", err, errs.NotFound)
	_, err = e.read(t, "/workspace", 0, -1)
	wantKind(t, "Read of a directory", err, errs.Invalid)
	e.symlink(t, "/workspace/f", "/workspace/l")
	if got := e.get(t, "/workspace/l"); got != "0123456789" {
		t.Errorf("Read through a link = %q", got)
	}
}

func testStat(t *testing.T, e Env) {
	e.put(t, "/workspace/f", "abc")
	e.symlink(t, "f", "/workspace/l")
	e.symlink(t, "none", "/workspace/gone")
	for _, tt := range []struct {
		name   string
		follow bool
		typ    sandbox.FileType
		size   int64
		target string
	}{
		{"/workspace/f", false, sandbox.RegularFile, 3, ""},
		{"/workspace/l", false, sandbox.Symlink, 1, "f"},
		{"/workspace/l", true, sandbox.RegularFile, 3, ""},
		{"/workspace/gone", false, sandbox.Symlink, 4, "none"},
		{"/workspace", false, sandbox.Directory, 0, ""},
		{"/workspace/./x/../f", false, sandbox.RegularFile, 3, ""},
		{"f", false, sandbox.RegularFile, 3, ""},
	} {
		f, err := e.Stat(t.Context(), tt.name, tt.follow)
		if err != nil || f.Type != tt.typ || f.Size != tt.size || f.Target != tt.target {
			t.Errorf("Stat(%s, %v) = %s %d %q, %v, want %s %d %q", tt.name, tt.follow, f.Type, f.Size, f.Target, err, tt.typ, tt.size, tt.target)
		}
	}
	_, err := e.Stat(t.Context(), "/workspace/gone", true)
	wantKind(t, "Stat of a dangling link", err, errs.NotFound)
	_, err = e.Stat(t.Context(), "/workspace/f/x", true)
	wantKind(t, "Stat below a file", err, errs.Invalid)
}

func testList(t *testing.T, e Env) {
	if got := e.list(t, "/workspace", true); len(got) != 0 {
		t.Errorf("an empty directory lists %v", got)
	}
	e.put(t, "/workspace/b/c/d", "x")
	e.put(t, "/workspace/b/a", "x")
	e.put(t, "/workspace/a", "x")
	e.symlink(t, "b", "/workspace/l")
	want := []string{"file /workspace/a", "dir /workspace/b", "symlink /workspace/l"}
	if diff := cmp.Diff(want, e.list(t, "/workspace", false)); diff != "" {
		t.Errorf("ListFiles (-want +got):\n%s", diff)
	}
	want = []string{"file /workspace/a", "dir /workspace/b", "file /workspace/b/a", "dir /workspace/b/c", "file /workspace/b/c/d", "symlink /workspace/l"}
	if diff := cmp.Diff(want, e.list(t, "/workspace/", true)); diff != "" {
		t.Errorf("ListFiles, recursive (-want +got):\n%s", diff)
	}
	want = []string{"file /workspace/l/a", "dir /workspace/l/c"}
	if diff := cmp.Diff(want, e.list(t, "/workspace/l", false)); diff != "" {
		t.Errorf("ListFiles of a link (-want +got):\n%s", diff)
	}
	for name, kind := range map[string]errs.Kind{"/workspace/none": errs.NotFound, "/workspace/a": errs.Invalid} {
		var last error
		for _, err := range e.ListFiles(t.Context(), name, false) {
			last = err
		}
		wantKind(t, "ListFiles("+name+")", last, kind)
	}
	// More than any batch, and a caller who has seen enough.
	for i := range 600 {
		if err := os.WriteFile(e.here("/workspace/b/c")+"/"+strings.Repeat("n", i%50+1)+string(rune('A'+i%26))+string(rune('a'+i/26)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got := e.list(t, "/workspace/b/c", false)
	if len(got) != 601 || !slices.IsSorted(got) {
		t.Errorf("%d entries, sorted: %v; want 601, sorted", len(got), slices.IsSorted(got))
	}
	n := 0
	for _, err := range e.ListFiles(t.Context(), "/workspace/b/c", false) {
		if n++; err != nil || n == 3 {
			break
		}
	}
}
