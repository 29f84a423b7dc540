package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/driver/oci/procstat"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/poll"
)

// The pauses between two looks at a cgroup that something leaves. The end of a sandbox
// takes 10 to 30 ms: with pauses as long as that it would be seen late.
const (
	firstLook = 200 * time.Microsecond
	lastLook  = 2 * time.Millisecond
)

// Kill ends every process of the cgroup and returns when none is left. It
// cannot be outrun by forks: what forks is killed in the next pass, and how
// many there can be is limited.
func (c Group) Kill(ctx context.Context) error {
	_ = c.LimitTasks(0) // makes it faster; a start sets the limit again
	if c.h.V2 != "" {
		err := os.WriteFile(filepath.Join(c.h.V2, c.Path, "cgroup.kill"), []byte("1"), 0)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("kill cgroup: %w", err)
		}
	}
	left := 0
	err := poll.Until(ctx, firstLook, lastLook, func() (bool, error) {
		pids, err := c.Procs()
		left = len(pids)
		for _, pid := range pids {
			// A pid that came free meanwhile cannot belong to a stranger:
			// it was read from the cgroup a moment ago and pids are given
			// out in a circle.
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		return left == 0, err
	})
	if err != nil && errors.Is(err, context.Cause(ctx)) {
		return errs.E(errs.Unavailable, "%d processes of the sandbox do not end", left).Because(err)
	}
	return err
}

// Remove deletes the cgroup, which holds no process any more. Children that a
// runtime made go too.
func (c Group) Remove(ctx context.Context) error {
	for _, root := range c.h.everywhere() {
		if err := removeTree(ctx, filepath.Join(root, c.Path)); err != nil {
			return err
		}
	}
	return nil
}

// removeTree removes a directory of cgroups from its leaves up. A cgroup stays
// busy for a moment after its last process ended.
func removeTree(ctx context.Context, dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(ctx, filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	err = poll.Until(ctx, firstLook, lastLook, func() (bool, error) {
		switch err := syscall.Rmdir(dir); {
		case err == nil, errors.Is(err, syscall.ENOENT):
			return true, nil
		case errors.Is(err, syscall.EBUSY):
			return false, nil
		default:
			return false, fmt.Errorf("remove cgroup: %w", err)
		}
	})
	if err != nil && errors.Is(err, context.Cause(ctx)) {
		return errs.E(errs.Unavailable, "the sandbox's cgroup stays busy").Because(err)
	}
	return err
}

// Tidy removes the parent of the sandboxes' cgroups where it has none: an empty
// cgroup still costs the kernel memory.
func (h Hierarchy) Tidy() {
	for _, root := range h.everywhere() {
		_ = syscall.Rmdir(filepath.Join(root, h.Parent))
	}
}

// Exists reports whether any part of the cgroup does.
func (c Group) Exists() bool {
	for _, root := range c.h.everywhere() {
		if _, err := os.Stat(filepath.Join(root, c.Path)); err == nil {
			return true
		}
	}
	return false
}

// Contains reports whether a process is in the cgroup now.
func (c Group) Contains(pid int) bool {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	return err == nil && memberOf(string(data), "/"+c.Path)
}

// memberOf reads /proc/PID/cgroup. The paths there are relative to the
// reader's cgroup namespace, which is also the one that the mounts show.
func memberOf(data, path string) bool {
	for line := range strings.Lines(data) {
		_, rest, _ := strings.Cut(line, ":")
		_, own, _ := strings.Cut(rest, ":")
		own = strings.TrimSpace(own)
		if own == path || strings.HasSuffix(own, path) || strings.Contains(own, path+"/") {
			return true
		}
	}
	return false
}

// Stats reads what the cgroup uses.
func (c Group) Stats() (driver.Stats, error) {
	if c.h.V2 != "" {
		dir := filepath.Join(c.h.V2, c.Path)
		memory, err := Number(filepath.Join(dir, "memory.current"))
		if err != nil {
			return driver.Stats{}, err
		}
		pids, err := Number(filepath.Join(dir, "pids.current"))
		if err != nil {
			return driver.Stats{}, err
		}
		data, err := os.ReadFile(filepath.Join(dir, "cpu.stat"))
		if err != nil {
			return driver.Stats{}, err
		}
		usec, err := keyed(data, "usage_usec")
		return driver.Stats{MemoryBytes: memory, PIDs: pids, CPUTime: time.Duration(usec) * time.Microsecond}, err
	}
	memory, err := Number(filepath.Join(c.h.V1["memory"], c.Path, "memory.usage_in_bytes"))
	if err != nil {
		return driver.Stats{}, err
	}
	pids, err := Number(filepath.Join(c.h.V1["pids"], c.Path, "pids.current"))
	if err != nil {
		return driver.Stats{}, err
	}
	s := driver.Stats{MemoryBytes: memory, PIDs: pids}
	if root := c.h.V1["cpuacct"]; root != "" {
		nsec, err := Number(filepath.Join(root, c.Path, "cpuacct.usage"))
		if err != nil {
			return driver.Stats{}, err
		}
		s.CPUTime = time.Duration(nsec)
		return s, nil
	}
	// No counter: what the living processes have used.
	procs, err := c.Procs()
	if err != nil {
		return driver.Stats{}, err
	}
	for _, pid := range procs {
		if stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat"); err == nil {
			s.CPUTime += procstat.CPUTime(stat)
		}
	}
	return s, nil
}

// Number reads a file with a number.
func Number(file string) (int64, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
}

// Score sets the oom_score_adj of all processes that are there. One that has
// ended meanwhile needs none.
func (c Group) Score(adj int) {
	pids, _ := c.Procs()
	for _, pid := range pids {
		_ = os.WriteFile("/proc/"+strconv.Itoa(pid)+"/oom_score_adj", []byte(strconv.Itoa(adj)), 0)
	}
}

// LimitTasks sets how many processes and threads the cgroup may have. Those
// that are there stay.
func (c Group) LimitTasks(n int64) error {
	for _, set := range c.settings(Limits{PIDs: max(n, 1)}) {
		value := set.value
		if n == 0 {
			value = "0"
		}
		if err := os.WriteFile(set.file, []byte(value), 0); err != nil {
			return fmt.Errorf("limit the processes: %w", err)
		}
	}
	return nil
}

// MemoryFiles is the memory of files in memory, 0 when that is not known.
func (c Group) MemoryFiles() int64 {
	root := c.h.V2
	if root == "" {
		root = c.h.V1["memory"]
	}
	data, err := os.ReadFile(filepath.Join(root, c.Path, "memory.stat"))
	if err != nil {
		return 0
	}
	n, _ := keyed(data, "shmem") // not every kernel counts it
	return n
}

// moveRounds is how often a cgroup is looked at whose processes were all moved: one may
// have forked meanwhile.
const moveRounds = 100

// MoveTo moves all processes of the cgroup to another one, which exists.
func (c Group) MoveTo(to Group) error {
	for range moveRounds {
		pids, err := c.Procs()
		if err != nil || len(pids) == 0 {
			return err
		}
		for _, pid := range pids {
			for _, root := range c.h.roots() {
				err := os.WriteFile(filepath.Join(root, to.Path, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
				if err != nil && !errors.Is(err, syscall.ESRCH) {
					return fmt.Errorf("move to cgroup: %w", err)
				}
			}
		}
	}
	return errors.New("move to cgroup: processes are left behind")
}
