package daemon

import (
	"testing"

	"github.com/cubbyhq/cubby/internal/config"
)

// TestDriverIsToldTheReserve: memories that are kept bound the disk as disks do.
func TestDriverIsToldTheReserve(t *testing.T) {
	for _, reserve := range []config.Bytes{0, 7 << 30} {
		if got := driverConfig(config.Config{DiskReserve: reserve}, dirs{data: t.TempDir()}, "cubby-test", nil).DiskReserve; got != int64(reserve) {
			t.Errorf("with disk-reserve %d the driver leaves %d bytes free", reserve, got)
		}
	}
}
