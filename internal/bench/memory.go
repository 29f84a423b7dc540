package bench

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/meminfo"
)

// memory measures what an idle sandbox costs: the shared memory of its
// processes counted in proportion, and what the machine has less. And what the
// daemon itself takes.
func (b *bench) memory(ctx context.Context) error {
	s := b.report.section("memory", "Memory")
	if b.daemon != nil {
		s.value("daemon, resident, idle", "MB", float64(statusNumber(b.daemon.pid(), "VmRSS"))/1024, 1, 60, false)
	}
	goals := map[string]float64{"gvisor": 20}
	n := b.count(10, 10) // what sandboxes share is divided by it
	for _, isolation := range b.Isolations {
		before := pids()
		available := memAvailable()
		var removes []func()
		err := func() error {
			for range n {
				id, remove, err := b.box(ctx, isolation)
				if err != nil {
					return err
				}
				removes = append(removes, remove)
				if err := b.run1(ctx, id); err != nil {
					return err
				}
			}
			return nil
		}()
		if err == nil {
			// Let freed pages go back and start-up work end.
			select {
			case <-time.After(2 * time.Second):
			case <-ctx.Done():
				err = ctx.Err()
			}
		}
		var pss int64
		var count int
		if err == nil {
			pss, count, err = b.newProcesses(before)
		}
		if err == nil {
			s.value(isolation+": PSS of an idle sandbox", "MiB", float64(pss)/float64(n)/(1<<20), n, goals[isolation], false)
			s.value(isolation+": processes of the host", "", float64(count)/float64(n), n, 0, false)
			s.value(isolation+": less available memory", "MiB", float64(available-memAvailable())/float64(n)/(1<<20), n, 0, false)
			if b.daemon != nil {
				s.value(fmt.Sprintf("daemon, resident, with %d %s", n, isolation), "MB", float64(statusNumber(b.daemon.pid(), "VmRSS"))/1024, 1, 0, false)
			}
		}
		for _, remove := range removes {
			remove()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// newProcesses sums the memory of processes that were not there before and
// belong to our sandboxes: other programs of this machine come and go
// meanwhile. With a remote daemon the data directory is not known, and all new
// ones in namespaces of their own count. It fails when there is none: a figure of
// nothing is no figure.
func (b *bench) newProcesses(before map[int]bool) (pss int64, count int, err error) {
	host, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return 0, 0, err
	}
	parents := map[int]int{}
	ours := map[int]bool{}
	for pid := range pids() {
		if before[pid] {
			continue
		}
		parents[pid] = int(statusNumber(pid, "PPid"))
		ours[pid] = b.isOurs(pid, host)
	}
	for pid := range parents {
		for up := pid; up > 1 && !before[up]; up = parents[up] {
			if ours[up] {
				ours[pid] = true
				break
			}
		}
		if n := rollupPSS(pid); ours[pid] && n > 0 {
			pss += n
			count++
		}
	}
	if count == 0 {
		return 0, 0, errs.E(errs.NotFound, "no process of a sandbox is on this machine")
	}
	return pss, count, nil
}

// isOurs: a process that names our data directory in its arguments, as runsc
// does, or that is in a sandbox. Those of other daemons that begin meanwhile
// count too: nothing that is seen of a container's processes says whose it is.
func (b *bench) isOurs(pid int, hostNS string) bool {
	ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", pid))
	if err != nil {
		return false
	}
	if b.Remote != nil {
		return ns != hostNS
	}
	cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || bytes.Contains(cmdline, []byte(filepath.Base(b.Scratch))) {
		return err == nil
	}
	cgroups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	return err == nil && ns != hostNS && bytes.Contains(cgroups, []byte(sandboxCgroups))
}

// sandboxCgroups begins the name of the cgroup that a daemon's sandboxes are in.
const sandboxCgroups = "/cubby-"

func pids() map[int]bool {
	found := map[int]bool{}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return found
	}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			found[pid] = true
		}
	}
	return found
}

// rollupPSS is a process's memory in bytes; 0 when it is gone.
func rollupPSS(pid int) int64 {
	return kilobytes(filepath.Join("/proc", strconv.Itoa(pid), "smaps_rollup"), "Pss") << 10
}

// statusNumber reads a number, or kilobytes, from /proc/PID/status.
func statusNumber(pid int, name string) int64 {
	return kilobytes(filepath.Join("/proc", strconv.Itoa(pid), "status"), name)
}

// memAvailable is 0 when the kernel does not say.
func memAvailable() int64 {
	m, _ := meminfo.Read() // zero when it fails
	return m.Available
}

// kilobytes reads "Name:  123 kB" from a file of /proc; 0 when it is not there.
func kilobytes(path, name string) int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(field(path, name), "kB")), 10, 64)
	if err != nil {
		return 0
	}
	return n
}
