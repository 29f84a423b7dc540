package daemon

import (
	"cmp"
	"log/slog"

	"github.com/cubbyhq/cubby/internal/config"
	"github.com/cubbyhq/cubby/internal/driver/oci"
	"github.com/cubbyhq/cubby/internal/hostdisk"
	"github.com/cubbyhq/cubby/internal/meminfo"
)

// room is what the host keeps of its memory, and gives of its disk to the memories
// of sleeping sandboxes, in bytes.
func room(cfg config.Config) (reserve, sleepDisk int64, err error) {
	memory, err := meminfo.Read()
	if err != nil {
		return 0, 0, err
	}
	disk, err := hostdisk.Measure(cfg.DataDir)
	if err != nil {
		return 0, 0, err
	}
	reserve = cmp.Or(int64(cfg.MinFreeMemory), cfg.MemoryReserve.Of(memory.Total))
	return reserve, cfg.SleepDisk.Of(disk.Total), nil
}

// driverConfig is what the driver is told.
func driverConfig(cfg config.Config, dirs dirs, cgroups string, log *slog.Logger) oci.Config {
	return oci.Config{
		StateDir: dirs.state, RuntimesDir: dirs.runtimes, DataDir: dirs.data, ImageDir: dirs.images, CgroupParent: cgroups, DiskReserve: int64(cfg.DiskReserve),
		FavorMoves: cfg.FavorMoves, Sentries: cfg.SentryPool, Log: log,
	}
}
