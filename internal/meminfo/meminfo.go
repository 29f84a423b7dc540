// Package meminfo is what the host's kernel says of the machine's memory. It reads
// /proc/meminfo, for the daemon and for what measures the machine; the agent, which
// carries no library for it, reads that of its sandbox itself.
package meminfo

import (
	"errors"
	"fmt"

	"github.com/prometheus/procfs"
)

// Memory is in bytes.
type Memory struct {
	Total     int64
	Available int64 // for programs, without swapping
	Unwritten int64 // in files, and on its way to any disk
}

// Read asks the kernel.
func Read() (Memory, error) {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return Memory{}, err
	}
	info, err := proc.Meminfo()
	if err != nil {
		return Memory{}, fmt.Errorf("/proc/meminfo: %w", err)
	}
	if info.MemTotalBytes == nil || info.MemAvailableBytes == nil {
		return Memory{}, errors.New("/proc/meminfo does not say how much memory there is")
	}
	m := Memory{Total: int64(*info.MemTotalBytes), Available: int64(*info.MemAvailableBytes)}
	for _, n := range []*uint64{info.DirtyBytes, info.WritebackBytes} {
		if n != nil {
			m.Unwritten += int64(*n)
		}
	}
	return m, nil
}
