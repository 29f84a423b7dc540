package oci

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
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/poll"
)

// The pauses between two looks at a cgroup that something leaves.
const (
	firstLook = 200 * time.Microsecond
	lastLook  = 20 * time.Millisecond
)

// kill ends every process of the cgroup and returns when none is left. It
// cannot be outrun by forks: what forks is killed in the next pass, and how
// many there can be is limited.
func (c cgroup) kill(ctx context.Context) error {
	_ = c.limitTasks(0) // makes it faster; a start sets the limit again
	if c.h.v2 != "" {
		err := os.WriteFile(filepath.Join(c.h.v2, c.path, "cgroup.kill"), []byte("1"), 0)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("kill cgroup: %w", err)
		}
	}
	left := 0
	err := poll.Until(ctx, firstLook, lastLook, func() (bool, error) {
		pids, err := c.procs()
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

// remove deletes the cgroup, which holds no process any more. Children that a
// runtime made go too.
func (c cgroup) remove(ctx context.Context) error {
	for _, root := range c.h.everywhere() {
		if err := removeTree(ctx, filepath.Join(root, c.path)); err != nil {
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

// tidy removes the parent of the sandboxes' cgroups where it has none: an empty
// cgroup still costs the kernel memory.
func (h hierarchy) tidy() {
	for _, root := range h.everywhere() {
		_ = syscall.Rmdir(filepath.Join(root, h.parent))
	}
}

// exists reports whether any part of the cgroup does.
func (c cgroup) exists() bool {
	for _, root := range c.h.everywhere() {
		if _, err := os.Stat(filepath.Join(root, c.path)); err == nil {
			return true
		}
	}
	return false
}

// contains reports whether a process is in the cgroup now.
func (c cgroup) contains(pid int) bool {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	return err == nil && memberOf(string(data), "/"+c.path)
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

// stats reads what the cgroup uses.
func (c cgroup) stats() (driver.Stats, error) {
	if c.h.v2 != "" {
		dir := filepath.Join(c.h.v2, c.path)
		memory, err := number(filepath.Join(dir, "memory.current"))
		if err != nil {
			return driver.Stats{}, err
		}
		pids, err := number(filepath.Join(dir, "pids.current"))
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
	memory, err := number(filepath.Join(c.h.v1["memory"], c.path, "memory.usage_in_bytes"))
	if err != nil {
		return driver.Stats{}, err
	}
	pids, err := number(filepath.Join(c.h.v1["pids"], c.path, "pids.current"))
	if err != nil {
		return driver.Stats{}, err
	}
	s := driver.Stats{MemoryBytes: memory, PIDs: pids}
	if root := c.h.v1["cpuacct"]; root != "" {
		nsec, err := number(filepath.Join(root, c.path, "cpuacct.usage"))
		if err != nil {
			return driver.Stats{}, err
		}
		s.CPUTime = time.Duration(nsec)
		return s, nil
	}
	// No counter: what the living processes have used.
	procs, err := c.procs()
	if err != nil {
		return driver.Stats{}, err
	}
	for _, pid := range procs {
		if stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat"); err == nil {
			s.CPUTime += cpuTime(stat)
		}
	}
	return s, nil
}

func number(file string) (int64, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
}

// score sets the oom_score_adj of all processes that are there. One that has
// ended meanwhile needs none.
func (c cgroup) score(adj int) {
	pids, _ := c.procs()
	for _, pid := range pids {
		_ = os.WriteFile("/proc/"+strconv.Itoa(pid)+"/oom_score_adj", []byte(strconv.Itoa(adj)), 0)
	}
}
