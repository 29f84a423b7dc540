package filetreetest

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A guest swaps a directory for a link to the outside while the API reads,
// lists, archives and moves below it.
func attackSwapReads(t *testing.T, e Env) {
	const outside = "of the host"
	out := t.TempDir()
	for _, name := range []string{"f", "only-outside"} {
		if err := os.WriteFile(filepath.Join(out, name), []byte(outside), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	e.put(t, "/workspace/tree/dir/f", "x")
	e.symlink(t, out, "/workspace/link")
	defer e.swap("/workspace/tree/dir", "/workspace/link")()
	ctx := t.Context()
	archived := 0
	for range 200 {
		// All of these may fail; none may show or change what is outside.
		// Archives and recursive lists follow nothing, wherever they are made.
		names, err := e.archiveNames(t, "/workspace/tree")
		if err == nil {
			archived++
		}
		for f, err := range e.ListFiles(ctx, "/workspace/tree", true) {
			if err != nil {
				break
			}
			names = append(names, f.Path)
		}
		if all := strings.Join(names, "\n"); strings.Contains(all, "only-outside") || strings.Contains(all, outside) {
			t.Fatalf("an archive or a list has %q", all)
		}
		if !e.Confined {
			continue // in its own sandbox a guest may link as it likes
		}
		if got, err := e.read(t, "/workspace/tree/dir/f", 0, -1); err == nil && got != "x" {
			t.Fatalf("Read = %q", got)
		}
		if f, err := e.Stat(ctx, "/workspace/tree/dir/only-outside", true); err == nil {
			t.Fatalf("Stat = %+v", f)
		}
		if _, err := e.Rename(ctx, "/workspace/tree/dir/only-outside", "/workspace/taken", true); err == nil {
			t.Fatal("Rename took a file from outside")
		}
		e.put(t, "/workspace/mine", "guest")
		_, _ = e.Rename(ctx, "/workspace/mine", "/workspace/tree/dir/mine", true)
	}
	if left, _ := os.ReadDir(out); len(left) != 2 {
		t.Errorf("outside there is now %v", left)
	}
	if archived == 0 {
		t.Error("no archive was made at all")
	}
}

// archiveNames returns names and contents of an archive.
func (e Env) archiveNames(t *testing.T, name string) (all []string, err error) {
	t.Helper()
	r, err := e.Archive(t.Context(), name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		content, err := io.ReadAll(tr)
		if err != nil {
			return all, err
		}
		all = append(all, h.Name+"="+string(content))
	}
}
