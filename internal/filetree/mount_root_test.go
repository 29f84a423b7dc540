//go:build root

package filetree_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/filetree"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

func mount(t *testing.T, source, target, fs string, flags uintptr) {
	t.Helper()
	if err := unix.Mount(source, target, fs, flags, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(target, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// /etc/hosts and /etc/resolv.conf of a sandbox are mounts of single files:
// they cannot be replaced, only written.
func TestWriteToAMountedFile(t *testing.T) {
	dir := t.TempDir()
	source, target := filepath.Join(dir, "source"), filepath.Join(dir, "target")
	for _, name := range []string{source, target} {
		if err := os.WriteFile(name, []byte("a long old content"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	mount(t, source, target, "", unix.MS_BIND)
	tree := filetree.Whole(filetree.Options{})
	f, err := tree.Write(t.Context(), target, strings.NewReader("new"), sandbox.FileWrite{User: "sandbox"})
	if err != nil {
		t.Fatalf("Write = %v", err)
	}
	if f.Size != 3 || f.UID != 0 {
		t.Errorf("Write describes %d bytes of %d, want 3 of the owner that the file keeps", f.Size, f.UID)
	}
	if got, err := os.ReadFile(source); err != nil || string(got) != "new" {
		t.Errorf("behind the mount there is %q, %v, want new", got, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("left: %v, %v", entries, err)
	}
}

func TestRenameBetweenFileSystems(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(dir, "other")
	if err := os.Mkdir(other, 0o755); err != nil {
		t.Fatal(err)
	}
	mount(t, "tmpfs", other, "tmpfs", 0)
	tree := filetree.Whole(filetree.Options{})
	src := filepath.Join(dir, "src")
	for name, user := range map[string]string{"a": "1234", "sub/b": "root"} {
		if _, err := tree.Write(t.Context(), filepath.Join(src, name), strings.NewReader(name), sandbox.FileWrite{Parents: true, User: user, Mode: 0o640}); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/nowhere", filepath.Join(src, "link")); err != nil {
		t.Fatal(err)
	}
	before, err := tree.Stat(t.Context(), filepath.Join(src, "a"), false)
	if err != nil {
		t.Fatal(err)
	}
	dst := filepath.Join(other, "dst")
	if _, err := tree.Rename(t.Context(), src, dst, false); err != nil {
		t.Fatalf("Rename = %v", err)
	}
	after, err := tree.Stat(t.Context(), filepath.Join(dst, "a"), false)
	after.Path = before.Path
	if err != nil || after != before {
		t.Errorf("moved: %+v, %v, want %+v", after, err, before)
	}
	if got, err := os.ReadFile(filepath.Join(dst, "sub/b")); err != nil || string(got) != "sub/b" {
		t.Errorf("moved content is %q, %v", got, err)
	}
	if got, err := os.Readlink(filepath.Join(dst, "link")); err != nil || got != "/nowhere" {
		t.Errorf("moved link leads to %q, %v", got, err)
	}
	if _, err := os.Lstat(src); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the source is still there: %v", err)
	}
	// What cannot be copied stays where it is, and no half of it is left.
	if err := unix.Mkfifo(filepath.Join(dst, "sub", "fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := tree.Rename(t.Context(), dst, src, false); !errors.Is(err, errs.Invalid) {
		t.Errorf("Rename of a tree with a FIFO = %v, want invalid", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("left: %v, %v", entries, err)
	}
	if _, err := os.Lstat(filepath.Join(dst, "sub", "fifo")); err != nil {
		t.Errorf("the source lost something: %v", err)
	}
}

// A disk that fills up in the middle of an upload.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	mountDir := filepath.Join(dir, "small")
	if err := os.Mkdir(mountDir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", mountDir, "tmpfs", 0, "size=8m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(mountDir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	tree := filetree.Confined(filetree.Options{}, filetree.Mount{Path: "/workspace", Dir: mountDir})
	if _, err := tree.Write(t.Context(), "f", strings.NewReader("old"), sandbox.FileWrite{}); err != nil {
		t.Fatal(err)
	}
	_, err := tree.Write(t.Context(), "f", io.LimitReader(ones{}, 64<<20), sandbox.FileWrite{})
	if !errors.Is(err, errs.Exhausted) || errs.Public(err).Message != "disk full" {
		t.Errorf("Write = %v, want exhausted: disk full", err)
	}
	r, _, err := tree.Read(t.Context(), "f", 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got, err := io.ReadAll(r); err != nil || string(got) != "old" {
		t.Errorf("the file holds %d bytes, %v, want the old content", len(got), err)
	}
	if entries, err := os.ReadDir(mountDir); err != nil || len(entries) != 1 {
		t.Errorf("left: %v, %v", entries, err)
	}
}

type ones struct{}

func (ones) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = 1
	}
	return len(b), nil
}
