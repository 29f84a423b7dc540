//go:build root

package idrange

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/cubbyhq/cubby/internal/errs"
)

// A range that a program of the host runs in, or was given, is not taken.
func TestRangesOfOthers(t *testing.T) {
	r := testRanges(t, filepath.Join(t.TempDir(), "locks"), 4)
	// A process in the first, what is left of one in another, and some of the
	// host's own users.
	const fields = " 1 2 2 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 0\n"
	for pid, p := range map[string]struct {
		uid  int
		stat string
	}{
		"1":    {0, "1 (init) S" + fields},
		"20":   {1000, "20 (sh) S" + fields},
		"21":   {0x7000_0000 + 1000, "21 (a) b) S" + fields},
		"22":   {0x7003_0000, "22 (sh) Z" + fields},
		"self": {0x7003_0000, "1 (sh) S" + fields},
	} {
		dir := filepath.Join(r.proc, pid)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "stat"), []byte(p.stat), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(dir, p.uid, p.uid); err != nil {
			t.Fatal(err)
		}
	}
	// The second overlaps with a user's subordinate ids.
	file := filepath.Join(t.TempDir(), "subuid")
	content := "# comment\nme:100000:65536\nyou:1879115000:10\nhe:x:y\n"
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	r.reserved = []string{file, "/no/such/file"}
	for range 2 {
		if base := claim(t, r); base != 0x7002_0000 && base != 0x7003_0000 {
			t.Errorf("claimed %#x, which is somebody else's", base)
		}
	}
	// What is only set aside is better than none, what is used is not.
	if base := claim(t, r); base != 0x7001_0000 {
		t.Errorf("claimed %#x, want the reserved one", base)
	}
	if _, err := r.Claim(); !errors.Is(err, errs.Exhausted) {
		t.Errorf("claimed a range that a process runs in: %v", err)
	}
}
