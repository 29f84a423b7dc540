package admission

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/meminfo"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/storage"
)

// Host is what the machine has. Zero fields of a Config are measured.
type Host struct {
	CPUs        int
	MemoryBytes int64
	OpenFiles   int64 // this process's hard limit, the most that a sandbox gets
	PIDs        int64 // processes and threads that the machine can have
	Files       int64 // open files that the machine can have
}

// Measure fills the zero fields in.
func (h Host) Measure() (Host, error) {
	if h.CPUs == 0 {
		h.CPUs = runtime.NumCPU()
	}
	if h.MemoryBytes == 0 {
		memory, err := meminfo.Read()
		if err != nil {
			return h, fmt.Errorf("measure the host: %w", err)
		}
		h.MemoryBytes = memory.Total
	}
	if h.OpenFiles == 0 {
		var limit unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			return h, fmt.Errorf("measure the host: %w", err)
		}
		h.OpenFiles = int64(min(limit.Max, math.MaxInt64))
	}
	if h.PIDs == 0 {
		ids, err := readSysctl("kernel/pid_max")
		if err != nil {
			return h, fmt.Errorf("measure the host: %w", err)
		}
		threads, err := readSysctl("kernel/threads-max")
		if err != nil {
			return h, fmt.Errorf("measure the host: %w", err)
		}
		h.PIDs = min(ids, threads)
	}
	if h.Files == 0 {
		files, err := readSysctl("fs/file-max")
		if err != nil {
			return h, fmt.Errorf("measure the host: %w", err)
		}
		h.Files = files
	}
	return h, nil
}

func readSysctl(name string) (int64, error) {
	data, err := os.ReadFile("/proc/sys/" + name)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64)
	return int64(min(n, math.MaxInt64)), err
}

// What one sandbox gets of what the kernel has once for the whole machine and
// no cgroup counts by sandbox.
const (
	pidsShare  = 4 // one of so many parts
	filesShare = 8
	// leastFiles is what every process gets, also on a host with few: programs
	// do not expect less.
	leastFiles = 4096
)

// Clamp lowers limits as far as the host demands, so that a spec says what is
// in force. One sandbox gets a share of the host's process ids. In a container
// each process can have its own open files, so the limit of one process times
// the processes stays below what the host has; gVisor holds all of them in one
// process of the host.
func (h Host) Clamp(l sandbox.Limits, isolation sandbox.Isolation) sandbox.Limits {
	if h.PIDs > 0 {
		l.PIDs = min(l.PIDs, max(h.PIDs/pidsShare, sandbox.MinPIDs))
	}
	if h.OpenFiles > 0 {
		l.OpenFiles = min(l.OpenFiles, h.OpenFiles)
	}
	if h.Files > 0 {
		most := h.Files / filesShare
		if isolation == sandbox.Container {
			most = h.Files / 2 / l.PIDs
		}
		l.OpenFiles = min(l.OpenFiles, max(most, leastFiles))
	}
	return l
}

// Fits refuses what this host can never give, however empty it is.
func (h Host) Fits(l sandbox.Limits) error {
	if l.CPUs > float64(h.CPUs) {
		return errs.E(errs.Invalid, "limits.cpus: %v are more than the host's %d", l.CPUs, h.CPUs)
	}
	if h.MemoryBytes > 0 && l.MemoryBytes > h.MemoryBytes {
		return errs.E(errs.Invalid, "limits.memory_bytes: %d is more than the host's %d", l.MemoryBytes, h.MemoryBytes)
	}
	return nil
}

// DiskBytes is the size of a sandbox's disk: the journal of its execs counts
// towards its disk limit, but takes at most an eighth of a small one.
func DiskBytes(l sandbox.Limits, journalBytes int64) int64 {
	return max(l.DiskBytes-min(journalBytes, l.DiskBytes/8), storage.MinBytes)
}

// LimitOfDisk is the disk limit that [DiskBytes] makes a size from.
func LimitOfDisk(size, journalBytes int64) int64 {
	if limit := size + journalBytes; limit/8 >= journalBytes {
		return limit
	}
	return size + size/7
}
