// Package proctree looks at the processes of a container, as trees below its first one,
// and kills all of them but some.
//
// A fork storm leaves the agent next to no CPU time, and forks faster than the
// agent looks. The host has time of its own, and can stop the forking: while
// the cgroup's limit of processes is 0 no fork succeeds, so that one look sees
// all there is.
package proctree

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/cubbyhq/cubby/internal/driver/oci/cgroup"
	"github.com/cubbyhq/cubby/internal/driver/oci/procstat"
)

// KillOthers kills all that is neither init nor descends from spare, in one
// pass during which nothing forks. It returns how many of them were there.
func KillOthers(c cgroup.Group, init int, spare []int64, limit int64) (left int, err error) {
	if err := c.LimitTasks(0); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, c.LimitTasks(limit)) }()
	// A process whose parent ended during the look has another one in the next.
	for range 3 {
		pids, err := c.Procs()
		if err != nil {
			return 0, err
		}
		others, unsure := strangers(processTree(pids), init, func(pid int) bool {
			inside, ok := pidInside(pid)
			return !ok || slices.Contains(spare, inside)
		})
		for _, pid := range others {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		left = len(others) + unsure
		if unsure == 0 {
			break
		}
	}
	return left, nil
}

// processTree reads the parents of living processes.
func processTree(pids []int) map[int]int {
	parents := make(map[int]int, len(pids))
	for _, pid := range pids {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil {
			continue
		}
		fields := procstat.Fields(stat)
		if !procstat.Lives(fields) {
			continue
		}
		if parent, err := strconv.Atoi(string(fields[1])); err == nil {
			parents[pid] = parent
		}
	}
	return parents
}

// strangers are the processes below init that are not below a spared child of
// it. unsure counts those of which that cannot be said.
func strangers(parents map[int]int, init int, spared func(pid int) bool) (others []int, unsure int) {
	const kept, stranger, unknown = 1, 2, 3
	known := map[int]int{init: kept}
	var judge func(pid, depth int) int
	judge = func(pid, depth int) int {
		if v := known[pid]; v != 0 {
			return v
		}
		parent, lives := parents[pid]
		v := unknown
		switch {
		case !lives || depth > len(parents):
		case parent == init && spared(pid):
			v = kept
		case parent == init:
			v = stranger
		default:
			v = judge(parent, depth+1)
		}
		known[pid] = v
		return v
	}
	for pid := range parents {
		switch judge(pid, 0) {
		case stranger:
			others = append(others, pid)
		case unknown:
			unsure++
		}
	}
	return others, unsure
}

// pidInside is the id that a process has in its sandbox.
func pidInside(pid int) (int64, bool) {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(status)) {
		if ids, ok := strings.CutPrefix(line, "NSpid:"); ok {
			fields := strings.Fields(ids)
			if len(fields) == 0 {
				return 0, false
			}
			inside, err := strconv.ParseInt(fields[len(fields)-1], 10, 64)
			return inside, err == nil
		}
	}
	return 0, false
}
