package filetree_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

// TestFileOfAWriteThatWasCutOffIsRemoved: the next write to its directory removes it,
// and nothing that may be something else.
func TestFileOfAWriteThatWasCutOffIsRemoved(t *testing.T) {
	env := confined(t)
	const temp = ".cubby-2aff29e81a9c36fb32c"
	day := time.Now().Add(-25 * time.Hour)
	kept := []string{temp + "1", ".cubby-notes", ".cubby-zzff29e81a9c36fb32cd", "file"} // the first one is younger
	for _, name := range append(kept, temp+"2") {
		file := filepath.Join(env.Workspace, name)
		if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Chtimes(file, day, day)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Chtimes(filepath.Join(env.Workspace, kept[0]), time.Time{}, time.Now()), os.Mkdir(filepath.Join(env.Workspace, temp+"3"), 0o700)); err != nil {
		t.Fatal(err)
	}
	if _, err := env.Write(t.Context(), "/workspace/new", strings.NewReader("x"), sandbox.FileWrite{}); err != nil {
		t.Fatal(err)
	}
	var left []string
	entries, err := os.ReadDir(env.Workspace)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		left = append(left, e.Name())
	}
	want := append(kept, temp+"3", "new")
	slices.Sort(want)
	slices.Sort(left)
	if !slices.Equal(left, want) {
		t.Errorf("the directory has %q, want %q", left, want)
	}
}
