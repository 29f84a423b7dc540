package daemon

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
)

// cgroupParent is the cgroup below which this daemon's sandboxes live. It
// follows from the data directory: two daemons on one machine, such as the
// one that `cubby doctor` starts beside the service, must not take each
// other's sandboxes for orphans.
func cgroupParent(dataDir string) string {
	abs, err := filepath.Abs(dataDir)
	if err != nil {
		abs = dataDir
	}
	sum := sha256.Sum256([]byte(abs))
	return "cubby-" + hex.EncodeToString(sum[:4])
}
