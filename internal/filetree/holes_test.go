package filetree_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/filetree"
	"github.com/cubbyhq/cubby/internal/filetree/filetreetest"
)

// sparse makes a file with data at 1 MiB and at its end, and holes between.
func sparse(t *testing.T, path string, size int64) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	for _, at := range []int64{1 << 20, size - 5} {
		if _, err := f.WriteAt([]byte("bytes"), at); err != nil {
			t.Fatal(err)
		}
	}
}

// TestArchivesOfSparseFilesAreBounded: holes are written as zeros as far as that
// is bearable; beyond it the archive says so, also in the middle of a directory.
func TestArchivesOfSparseFilesAreBounded(t *testing.T) {
	workspace, home := filetreetest.Dirs(t)
	tree := filetree.Whole(filetree.Options{MapPath: mapTo(workspace, home)})
	if err := os.Mkdir(filepath.Join(workspace, "small"), 0o755); err != nil {
		t.Fatal(err)
	}
	const size = 3 << 20
	sparse(t, filepath.Join(workspace, "small", "f"), size)
	r, err := tree.Archive(t.Context(), "/workspace/small")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	tr := tar.NewReader(r)
	if _, err := tr.Next(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(tr)
	want := make([]byte, size)
	copy(want[1<<20:], "bytes")
	copy(want[size-5:], "bytes")
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("a sparse file came as %d bytes, %v, want them as they are", len(got), err)
	}

	sparse(t, filepath.Join(workspace, "large"), 2<<40)
	if _, err := tree.Archive(t.Context(), "/workspace/large"); !errors.Is(err, errs.TooLarge) || errs.Public(err).Hint == "" {
		t.Errorf("an archive of a file of 2 TiB: %v, want too large and a hint", err)
	}
	r, err = tree.Archive(t.Context(), "/workspace")
	if err == nil {
		_, err = io.Copy(io.Discard, r)
		r.Close()
	}
	if !errors.Is(err, errs.TooLarge) {
		t.Errorf("an archive of the directory that has it: %v, want too large", err)
	}
}

// TestCopiesOfSparseFilesStaySparse: moves between file systems copy.
func TestCopiesOfSparseFilesStaySparse(t *testing.T) {
	workspace, home := filetreetest.Dirs(t)
	tree := filetree.Whole(filetree.Options{MapPath: mapTo(workspace, home)})
	sparse(t, filepath.Join(workspace, "large"), 1<<40)
	if err := tree.CopyAcross(t.Context(), "/workspace/large", "/home/sandbox/copy"); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(home, "copy"))
	if err != nil {
		t.Fatal(err)
	}
	if blocks := info.Sys().(*syscall.Stat_t).Blocks; info.Size() != 1<<40 || blocks*512 > 1<<20 {
		t.Errorf("the copy has %d bytes and takes %d of the disk", info.Size(), blocks*512)
	}
	f, err := os.Open(filepath.Join(home, "copy"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, at := range []int64{1 << 20, 1<<40 - 5} {
		b := make([]byte, 5)
		if _, err := f.ReadAt(b, at); err != nil || string(b) != "bytes" {
			t.Errorf("at %d the copy has %q, %v", at, b, err)
		}
	}
}
