package filetree

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/errs"
)

// TestSizesBeyondTheDiskAreTooLarge: where a file system reports no holes, as
// gVisor does, an archive has no more than its disk can hold and what is
// allowed of holes.
func TestSizesBeyondTheDiskAreTooLarge(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &fs); err != nil {
		t.Fatal(err)
	}
	capacity := int64(fs.Blocks) * fs.Bsize
	solid := func(dev uint64, size int64) *unix.Stat_t {
		return &unix.Stat_t{Dev: dev, Size: size, Blocks: (size + 511) / 512}
	}
	for _, tt := range []struct {
		name  string
		files []*unix.Stat_t
		large bool
	}{
		{"all of the disk", []*unix.Stat_t{solid(1, capacity), solid(1, maxHoles)}, false},
		{"a byte more", []*unix.Stat_t{solid(1, capacity), solid(1, maxHoles), solid(1, 1)}, true},
		{"on another disk", []*unix.Stat_t{solid(1, capacity), solid(1, maxHoles), solid(2, 1)}, false},
		{"one file", []*unix.Stat_t{solid(1, capacity+maxHoles+1)}, true},
		{"sizes that do not fit in their type", []*unix.Stat_t{solid(1, 1<<62), solid(1, 1<<62), solid(1, 1<<62)}, true},
	} {
		var s sizes
		var err error
		for _, st := range tt.files {
			if err == nil {
				err = s.add(f, "f", st)
			}
		}
		if errors.Is(err, errs.TooLarge) != tt.large || !tt.large && err != nil {
			t.Errorf("%s: %v, want too large: %v", tt.name, err, tt.large)
		}
	}
}
