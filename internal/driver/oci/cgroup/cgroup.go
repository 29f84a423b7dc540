// Package cgroup is the control group that each sandbox has on the host,
// PARENT/<uid>: in the unified hierarchy (version 2) or in every hierarchy of
// version 1 that limits something. It is made and removed here and not by the
// runtimes: so the limits do not depend on which runtime runs, and everything
// that ever started in a sandbox is found below one directory.
package cgroup

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

// controllers of version 1 that are used where the host has them, and of
// these the ones without which the limits would be a lie.
var (
	v1Wanted   = []string{"memory", "cpu", "pids", "cpuacct"}
	v1Required = []string{"memory", "cpu", "pids"}
	v2Required = []string{"memory", "cpu", "pids"}
)

// Hierarchy is where this host's cgroups are.
type Hierarchy struct {
	Parent string
	V2     string            // mount point of the unified hierarchy that has the controllers, or ""
	V1     map[string]string // controller → mount point
	Hybrid string            // a unified hierarchy beside version 1, which crun does not bear
	others []string          // mount points that limit nothing here; runc makes cgroups there too
	err    error             // why nothing works
}

// Open finds the cgroups of this host. Those of sandboxes are below parent.
func Open(parent string) Hierarchy {
	mounts, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	if err != nil {
		return Hierarchy{err: errs.E(errs.Unsupported, "cgroups cannot be found").Because(err)}
	}
	return Of(parent, mounts)
}

// Of is Open for a host with these mounts.
func Of(parent string, mounts []*mountinfo.Info) Hierarchy {
	h := Hierarchy{Parent: parent, V1: make(map[string]string)}
	// The first mount of each is the host's; later ones are views of it in
	// chroots and containers, which come and go.
	for _, m := range mounts {
		switch m.FSType {
		case "cgroup2":
			if h.V2 == "" {
				h.V2 = m.Mountpoint
			}
		case "cgroup":
			wanted := false
			for option := range strings.SplitSeq(m.VFSOptions, ",") {
				wanted = wanted || slices.Contains(v1Wanted, option)
				if slices.Contains(v1Wanted, option) && h.V1[option] == "" {
					h.V1[option] = m.Mountpoint
				}
			}
			if !wanted {
				h.others = append(h.others, m.Mountpoint)
			}
		}
	}
	if len(h.V1) > 0 {
		h.Hybrid, h.V2 = h.V2, ""
	}
	if h.V1["cpuacct"] != h.V1["cpu"] {
		// Every hierarchy that a process is moved to takes milliseconds. One
		// that only counts is not worth it.
		if root, ok := h.V1["cpuacct"]; ok {
			h.others = append(h.others, root)
			delete(h.V1, "cpuacct")
		}
	}
	if h.Hybrid != "" {
		h.others = append(h.others, h.Hybrid)
	}
	var missing []string
	switch {
	case h.V2 != "":
		have, err := os.ReadFile(filepath.Join(h.V2, "cgroup.controllers"))
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
			if h.V1[c] == "" {
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

// Usable is nil where sandboxes can be limited.
func (h Hierarchy) Usable() error { return h.err }

func (h Hierarchy) String() string {
	switch {
	case h.V2 != "":
		return "cgroup v2"
	case h.Hybrid != "":
		return "cgroup v1 (hybrid)"
	}
	return "cgroup v1"
}

// roots are the mount points that hold sandboxes' cgroups, each once.
func (h Hierarchy) roots() []string {
	if h.V2 != "" {
		return []string{h.V2}
	}
	var roots []string
	for _, c := range v1Wanted {
		if root := h.V1[c]; root != "" && !slices.Contains(roots, root) {
			roots = append(roots, root)
		}
	}
	return roots
}

// everywhere are the mount points where a sandbox can have a cgroup.
func (h Hierarchy) everywhere() []string { return append(h.roots(), h.others...) }

// List names the sandboxes that have a cgroup.
func (h Hierarchy) List() ([]sandbox.UID, error) {
	var uids []sandbox.UID
	for _, root := range h.everywhere() {
		entries, err := os.ReadDir(filepath.Join(root, h.Parent))
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

// Group is the cgroup of a sandbox.
func (h Hierarchy) Group(uid sandbox.UID) Group {
	return Group{h: h, Path: filepath.Join(h.Parent, string(uid))}
}

// Group is the cgroup of one sandbox's, whether it exists or not.
type Group struct {
	h    Hierarchy
	Path string // PARENT/<uid>, the same in every hierarchy
}

// Limits of a cgroup; 0 is none.
type Limits struct {
	Memory int64
	CPUs   float64
	PIDs   int64
}

// SocketMemory is how much of the host's memory the buffers of a sandbox's TCP
// and UDP sockets may take beside its limit, on cgroup version 1. Sockets that
// have reached it become slow; none fails.
func SocketMemory(limit int64) int64 { return max(limit/16, 4<<20) }

// CPUPeriod is in which a cgroup may take the time that it has.
const CPUPeriod = 100 * time.Millisecond

// CPUQuota is what a cgroup may take of each period, in microseconds.
func CPUQuota(cpus float64) int64 {
	// The kernel refuses quotas below a millisecond.
	return max(int64(cpus*float64(CPUPeriod.Microseconds())), 1000)
}

// Create makes the cgroup with its limits. It may exist already, empty.
func (c Group) Create(l Limits) error {
	if c.h.err != nil {
		return c.h.err
	}
	if c.h.V2 != "" {
		if err := c.h.delegate(); err != nil {
			return err
		}
	}
	for _, root := range c.h.roots() {
		dir := filepath.Join(root, c.Path)
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
func (h Hierarchy) delegate() error {
	parent := filepath.Join(h.V2, h.Parent)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return fmt.Errorf("make cgroup: %w", err)
	}
	want := "+" + strings.Join(v2Required, " +")
	for _, dir := range []string{h.V2, parent} {
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

func (c Group) settings(l Limits) []setting {
	file := func(controller, name string) string {
		if c.h.V2 != "" {
			return filepath.Join(c.h.V2, c.Path, name)
		}
		return filepath.Join(c.h.V1[controller], c.Path, name)
	}
	var s []setting
	if l.Memory > 0 {
		bytes := strconv.FormatInt(l.Memory, 10)
		if c.h.V2 != "" {
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
				setting{file: file("memory", "memory.kmem.tcp.limit_in_bytes"), value: strconv.FormatInt(SocketMemory(l.Memory), 10), optional: true})
		}
	}
	if l.CPUs > 0 {
		quota, period := strconv.FormatInt(CPUQuota(l.CPUs), 10), strconv.FormatInt(CPUPeriod.Microseconds(), 10)
		if c.h.V2 != "" {
			s = append(s, setting{file: file("", "cpu.max"), value: quota + " " + period})
		} else {
			s = append(s,
				setting{file: file("cpu", "cpu.cfs_period_us"), value: period},
				setting{file: file("cpu", "cpu.cfs_quota_us"), value: quota})
		}
	}
	if l.PIDs > 0 {
		s = append(s, setting{file: file("pids", "pids.max"), value: strconv.FormatInt(min(l.PIDs, MaxTasks), 10)})
	}
	return s
}

// Enter moves a thread into the cgroup, so that what it forks starts there.
// Version 1 only; version 2 moves whole processes, see open.
func (c Group) Enter(tid int) error {
	if c.h.V2 != "" {
		return nil
	}
	for _, root := range c.h.roots() {
		if err := os.WriteFile(filepath.Join(root, c.Path, "tasks"), []byte(strconv.Itoa(tid)), 0); err != nil {
			return fmt.Errorf("enter cgroup: %w", err)
		}
	}
	return nil
}

// Open returns a descriptor for SysProcAttr.CgroupFD; nil on version 1.
func (c Group) Open() (*os.File, error) {
	if c.h.V2 == "" {
		return nil, nil
	}
	return os.Open(filepath.Join(c.h.V2, c.Path))
}

// Procs lists the host's pids of all processes in the cgroup. None when it
// does not exist.
func (c Group) Procs() ([]int, error) {
	var pids []int
	for _, root := range c.h.roots() {
		data, err := os.ReadFile(filepath.Join(root, c.Path, "cgroup.procs"))
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

// OOMKills counts the processes that the kernel killed for the memory limit.
func (c Group) OOMKills() (int64, error) {
	file := filepath.Join(c.h.V2, c.Path, "memory.events")
	if c.h.V2 == "" {
		file = filepath.Join(c.h.V1["memory"], c.Path, "memory.oom_control")
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

// MaxTasks is the largest limit that the kernel takes: it has no more process
// ids (PID_MAX_LIMIT).
const MaxTasks = 4 << 20
