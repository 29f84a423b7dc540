//go:build root && long

package image

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Two builds of the same packages, in different directories, give the same
// image.
func TestBuildsAreReproducible(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	cache := filepath.Join(dir, cacheName, "tiny")
	first := buildTiny(t, dir, warmCache(t, cache))
	if err := os.MkdirAll(filepath.Join(other, cacheName), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(cache, filepath.Join(other, cacheName, "tiny")); err != nil {
		t.Fatal(err)
	}
	if second := buildTiny(t, other, true); second.Digest != first.Digest {
		diff, _ := exec.Command("diff", "-rq", "--no-dereference", first.Dir, second.Dir).CombinedOutput()
		t.Errorf("two builds of the same packages differ: %s and %s\n%s", first.Digest, second.Digest, diff)
	}
}
