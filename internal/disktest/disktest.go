// Package disktest gives tests file systems that are soon full. It needs root.
package disktest

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Small mounts a file system of size, as tmpfs takes it, with a file of ballast
// bytes, which makeRoom removes.
func Small(t *testing.T, size string, ballast int) (dir string, makeRoom func()) {
	t.Helper()
	dir = t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	file := filepath.Join(dir, "ballast")
	if err := os.WriteFile(file, make([]byte, ballast), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir, func() {
		t.Helper()
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
}
