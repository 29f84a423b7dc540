package oci

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/moby/sys/mountinfo"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// A sandbox has a cgroup of its own, PARENT/<uid>, in the unified hierarchy
// (version 2) or in every hierarchy of version 1 that limits something. It is
// made and removed here and not by the runtimes: so the limits do not depend
// on which runtime runs, and everything that ever started in a sandbox is
// found below one directory.

// controllers of version 1 that are used where the host has them, and of
// these the ones without which the limits would be a lie.
var (
	v1Wanted   = []string{"memory", "cpu", "pids", "cpuacct"}
	v1Required = []string{"memory", "cpu", "pids"}
	v2Required = []string{"memory", "cpu", "pids"}
)

// hierarchy is where this host's cgroups are.
type hierarchy struct {
	parent string
	v2     string            // mount point of the unified hierarchy that has the controllers, or ""
	v1     map[string]string // controller → mount point
	hybrid string            // a unified hierarchy beside version 1, which crun does not bear
	others []string          // mount points that limit nothing here; runc makes cgroups there too
	err    error             // why nothing works
}

func openHierarchy(parent string) hierarchy {
	mounts, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	if err != nil {
		return hierarchy{err: errs.E(errs.Unsupported, "cgroups cannot be found").Because(err)}
	}
	return hierarchyOf(parent, mounts)
}

func hierarchyOf(parent string, mounts []*mountinfo.Info) hierarchy {
	h := hierarchy{parent: parent, v1: make(map[string]string)}
	// The first mount of each is the host's; later ones are views of it in
	// chroots and containers, which come and go.
	for _, m := range mounts {
		switch m.FSType {
		case "cgroup2":
			if h.v2 == "" {
				h.v2 = m.Mountpoint
			}
		case "cgroup":
			wanted := false
			for option := range strings.SplitSeq(m.VFSOptions, ",") {
				wanted = wanted || slices.Contains(v1Wanted, option)
				if slices.Contains(v1Wanted, option) && h.v1[option] == "" {
					h.v1[option] = m.Mountpoint
				}
			}
			if !wanted {
				h.others = append(h.others, m.Mountpoint)
			}
		}
	}
	if len(h.v1) > 0 {
		h.hybrid, h.v2 = h.v2, ""
	}
	if h.v1["cpuacct"] != h.v1["cpu"] {
		// Every hierarchy that a process is moved to takes milliseconds. One
		// that only counts is not worth it.
		if root, ok := h.v1["cpuacct"]; ok {
			h.others = append(h.others, root)
			delete(h.v1, "cpuacct")
		}
	}
	if h.hybrid != "" {
		h.others = append(h.others, h.hybrid)
	}
	var missing []string
	switch {
	case h.v2 != "":
		have, err := os.ReadFile(filepath.Join(h.v2, "cgroup.controllers"))
		if err != nil {
			h.err = errs.E(errs.Unsupported, "cgroups cannot be read").Because(err)
			return h
		}
		for _, c := range v2Required {
			if !slices.Contains(strings.Fields(string(have)), c) {
				missing = append(missing, c)
			}
		}
	default:
		for _, c := range v1Required {
			if h.v1[c] == "" {
				missing = append(missing, c)
			}
		}
	}
	if len(missing) > 0 {
		h.err = errs.E(errs.Unsupported, "this host has no cgroup controller for %s", strings.Join(missing, ", ")).
			Hint("sandboxes are limited by cgroups; mount them, or boot with cgroup_enable=memory")
	}
	return h
}

func (h hierarchy) usable() error { return h.err }

func (h hierarchy) String() string {
	switch {
	case h.v2 != "":
		return "cgroup v2"
	case h.hybrid != "":
		return "cgroup v1 (hybrid)"
	}
	return "cgroup v1"
}

// roots are the mount points that hold sandboxes' cgroups, each once.
func (h hierarchy) roots() []string {
	if h.v2 != "" {
		return []string{h.v2}
	}
	var roots []string
	for _, c := range v1Wanted {
		if root := h.v1[c]; root != "" && !slices.Contains(roots, root) {
			roots = append(roots, root)
		}
	}
	return roots
}

// everywhere are the mount points where a sandbox can have a cgroup.
func (h hierarchy) everywhere() []string { return append(h.roots(), h.others...) }

// list names the sandboxes that have a cgroup.
func (h hierarchy) list() ([]sandbox.UID, error) {
	var uids []sandbox.UID
	for _, root := range h.everywhere() {
		entries, err := os.ReadDir(filepath.Join(root, h.parent))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if uid, err := sandbox.ParseUID(e.Name()); err == nil && e.IsDir() && !slices.Contains(uids, uid) {
				uids = append(uids, uid)
			}
		}
	}
	return uids, nil
}

func (h hierarchy) cgroup(uid sandbox.UID) cgroup {
	return cgroup{h: h, path: filepath.Join(h.parent, string(uid))}
}

// cgroup is one sandbox's, whether it exists or not.
type cgroup struct {
	h    hierarchy
	path string // PARENT/<uid>, the same in every hierarchy
}

// limits of a cgroup; 0 is none.
type limits struct {
	memory int64
	cpus   float64
	pids   int64
}

// socketMemory is how much of the host's memory the buffers of a sandbox's TCP
// and UDP sockets may take beside its limit, on cgroup version 1. Sockets that
// have reached it become slow; none fails.
func socketMemory(limit int64) int64 { return max(limit/16, 4<<20) }

const cpuPeriod = 100 * time.Millisecond

func cpuQuota(cpus float64) int64 {
	// The kernel refuses quotas below a millisecond.
	return max(int64(cpus*float64(cpuPeriod.Microseconds())), 1000)
}

// create makes the cgroup with its limits. It may exist already, empty.
func (c cgroup) create(l limits) error {
	if c.h.err != nil {
		return c.h.err
	}
	if c.h.v2 != "" {
		if err := c.h.delegate(); err != nil {
			return err
		}
	}
	for _, root := range c.h.roots() {
		dir := filepath.Join(root, c.path)
		err := os.MkdirAll(dir, 0o755)
		if errors.Is(err, fs.ErrNotExist) {
			// Another daemon tidied the empty parent up in between.
			err = os.MkdirAll(dir, 0o755)
		}
		if err != nil {
			return fmt.Errorf("make cgroup: %w", err)
		}
	}
	for _, set := range c.settings(l) {
		err := os.WriteFile(set.file, []byte(set.value), 0)
		if err != nil && (!set.optional || !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.EOPNOTSUPP) && !errors.Is(err, syscall.EINVAL)) {
			return fmt.Errorf("set %s: %w", filepath.Base(set.file), err)
		}
	}
	return nil
}

// delegate switches the controllers on below the parent.
func (h hierarchy) delegate() error {
	parent := filepath.Join(h.v2, h.parent)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return fmt.Errorf("make cgroup: %w", err)
	}
	want := "+" + strings.Join(v2Required, " +")
	for _, dir := range []string{h.v2, parent} {
		file := filepath.Join(dir, "cgroup.subtree_control")
		if have, err := os.ReadFile(file); err == nil && containsAll(strings.Fields(string(have)), v2Required) {
			continue
		}
		if err := os.WriteFile(file, []byte(want), 0); err != nil {
			return errs.E(errs.Unsupported, "cgroup controllers cannot be given to sandboxes").
				Hint("cubby's own cgroup namespace must leave the root of the hierarchy empty of processes").Because(err)
		}
	}
	return nil
}

func containsAll(have, want []string) bool {
	return !slices.ContainsFunc(want, func(s string) bool { return !slices.Contains(have, s) })
}

type setting struct {
	file, value string
	optional    bool // not every kernel has it
}

func (c cgroup) settings(l limits) []setting {
	file := func(controller, name string) string {
		if c.h.v2 != "" {
			return filepath.Join(c.h.v2, c.path, name)
		}
		return filepath.Join(c.h.v1[controller], c.path, name)
	}
	var s []setting
	if l.memory > 0 {
		bytes := strconv.FormatInt(l.memory, 10)
		if c.h.v2 != "" {
			s = append(s,
				setting{file: file("", "memory.max"), value: bytes},
				setting{file: file("", "memory.swap.max"), value: "0", optional: true})
		} else {
			s = append(s,
				setting{file: file("memory", "memory.limit_in_bytes"), value: bytes},
				setting{file: file("memory", "memory.memsw.limit_in_bytes"), value: bytes, optional: true},
				setting{file: file("memory", "memory.swappiness"), value: "0", optional: true},
				// Version 1 counts the buffers of TCP and UDP apart from all other
				// memory, and not at all without this.
				setting{file: file("memory", "memory.kmem.tcp.limit_in_bytes"), value: strconv.FormatInt(socketMemory(l.memory), 10), optional: true})
		}
	}
	if l.cpus > 0 {
		quota, period := strconv.FormatInt(cpuQuota(l.cpus), 10), strconv.FormatInt(cpuPeriod.Microseconds(), 10)
		if c.h.v2 != "" {
			s = append(s, setting{file: file("", "cpu.max"), value: quota + " " + period})
		} else {
			s = append(s,
				setting{file: file("cpu", "cpu.cfs_period_us"), value: period},
				setting{file: file("cpu", "cpu.cfs_quota_us"), value: quota})
		}
	}
	if l.pids > 0 {
		s = append(s, setting{file: file("pids", "pids.max"), value: strconv.FormatInt(min(l.pids, maxTasks), 10)})
	}
	return s
}

// enter moves a thread into the cgroup, so that what it forks starts there.
// Version 1 only; version 2 moves whole processes, see open.
func (c cgroup) enter(tid int) error {
	if c.h.v2 != "" {
		return nil
	}
	for _, root := range c.h.roots() {
		if err := os.WriteFile(filepath.Join(root, c.path, "tasks"), []byte(strconv.Itoa(tid)), 0); err != nil {
			return fmt.Errorf("enter cgroup: %w", err)
		}
	}
	return nil
}

// open returns a descriptor for SysProcAttr.CgroupFD; nil on version 1.
func (c cgroup) open() (*os.File, error) {
	if c.h.v2 == "" {
		return nil, nil
	}
	return os.Open(filepath.Join(c.h.v2, c.path))
}

// procs lists the host's pids of all processes in the cgroup. None when it
// does not exist.
func (c cgroup) procs() ([]int, error) {
	var pids []int
	for _, root := range c.h.roots() {
		data, err := os.ReadFile(filepath.Join(root, c.path, "cgroup.procs"))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) {
			continue
		}
		if err != nil {
			return nil, err
		}
		found, err := parsePIDs(data)
		if err != nil {
			return nil, err
		}
		for _, pid := range found {
			// A thread that starts a runtime is in the cgroup for a moment
			// (see enter), and version 1 then names the whole process.
			if pid != os.Getpid() && !slices.Contains(pids, pid) {
				pids = append(pids, pid)
			}
		}
	}
	return pids, nil
}

func parsePIDs(data []byte) ([]int, error) {
	var pids []int
	for line := range bytes.Lines(data) {
		pid, err := strconv.Atoi(string(bytes.TrimSpace(line)))
		if err != nil {
			return nil, fmt.Errorf("cgroup.procs: %w", err)
		}
		// 0 is a process of another pid namespace: nothing that can be
		// signalled, and kill(0) would hit ourselves.
		if pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// oomKills counts the processes that the kernel killed for the memory limit.
func (c cgroup) oomKills() (int64, error) {
	file := filepath.Join(c.h.v2, c.path, "memory.events")
	if c.h.v2 == "" {
		file = filepath.Join(c.h.v1["memory"], c.path, "memory.oom_control")
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	return keyed(data, "oom_kill")
}

// keyed reads one value of a file of "key value" lines.
func keyed(data []byte, key string) (int64, error) {
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		if k, v, ok := strings.Cut(lines.Text(), " "); ok && k == key {
			return strconv.ParseInt(v, 10, 64)
		}
	}
	return 0, fmt.Errorf("no %s", key)
}
