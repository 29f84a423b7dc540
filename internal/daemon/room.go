package daemon

import (
	"cmp"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/config"
	"github.com/cubbyhq/cubby/internal/meminfo"
)

// room is what the host keeps of its memory, and gives of its disk to the memories
// of sleeping sandboxes, in bytes.
func room(cfg config.Config) (reserve, sleepDisk int64, err error) {
	memory, err := meminfo.Read()
	if err != nil {
		return 0, 0, err
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(cfg.DataDir, &disk); err != nil {
		return 0, 0, fmt.Errorf("measure the disk of the data directory: %w", err)
	}
	reserve = cmp.Or(int64(cfg.MinFreeMemory), cfg.MemoryReserve.Of(memory.Total))
	return reserve, cfg.SleepDisk.Of(int64(disk.Blocks) * disk.Bsize), nil
}
