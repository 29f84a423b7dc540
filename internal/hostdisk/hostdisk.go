// Package hostdisk measures the host's file systems and says how much of one stays
// free of what sandboxes leave there.
package hostdisk

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Space is of a file system, in bytes.
type Space struct{ Total, Free int64 }

// Measure asks for the file system that a directory is on.
func Measure(dir string) (Space, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return Space{}, fmt.Errorf("measure the disk of %s: %w", dir, err)
	}
	return Space{Total: int64(st.Blocks) * st.Bsize, Free: int64(st.Bavail) * st.Bsize}, nil
}

// Reserve is what stays free of the file system: what the operator has set, or where
// that is 0 a twentieth, at least 1 GiB.
func (s Space) Reserve(set int64) int64 {
	if set > 0 {
		return set
	}
	return max(1<<30, s.Total/20)
}
