package oci

import (
	"maps"
	"path/filepath"
	"slices"
	"strconv"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/cubbyhq/cubby/internal/driver/oci/idrange"
	"github.com/cubbyhq/cubby/internal/driver/oci/seccomp"
)

// containerCapabilities are what root in a container keeps. The agent needs
// KILL, SETUID, SETGID and SETPCAP to run commands as other users with less;
// the rest lets root inside install packages and own files. None of them
// reaches the host: with a user namespace they hold over the sandbox's own
// ids only, without one seccomp, the masked paths and the empty network
// namespace (which belongs to the host's user namespace, so NET_BIND_SERVICE
// is about its loopback) bound them.
var containerCapabilities = []string{
	"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_NET_BIND_SERVICE",
	"CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_CHROOT",
}

var maskedPaths = []string{
	"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/kpagecgroup",
	"/proc/kpagecount", "/proc/kpageflags", "/proc/latency_stats", "/proc/pagetypeinfo", "/proc/sched_debug",
	"/proc/scsi", "/proc/sysrq-trigger", "/proc/timer_list", "/proc/timer_stats", "/proc/vmallocinfo", "/proc/mounts.orig",
	"/sys/firmware", "/sys/devices/virtual/powercap", "/sys/dev/block", "/sys/fs/selinux", "/sys/kernel/security", "/sys/module",
}

var readonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys"}

// maxTerminals is how many pseudo-terminals a container can have at once. The
// host has 3072 for all of them (kernel.pty.max less kernel.pty.reserve).
const maxTerminals = 64

// container completes the specification for crun and runc. Mount, network and
// cgroup setup that needs the host's root is done before, in the namespaces
// that the runtime starts in: see prepare.
func (b bundle) container(s *specs.Spec) {
	s.Process.Capabilities = capabilities(containerCapabilities...)
	memory := b.note.Limits.MemoryBytes
	s.Mounts = []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "noexec", "strictatime", "mode=755", "size=65536k"}},
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5", "max=" + strconv.Itoa(maxTerminals)}},
		{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: []string{"nosuid", "noexec", "nodev"}},
		tmpfs("/dev/shm", "1777", memory/2),
		{Destination: "/sys", Type: "bind", Source: b.sysfs, Options: []string{"bind", "ro", "nosuid", "noexec", "nodev"}},
	}
	s.Mounts = append(s.Mounts, b.limitMounts()...)
	s.Mounts = append(s.Mounts, b.shared()...)
	for _, ns := range []specs.LinuxNamespaceType{
		specs.PIDNamespace, specs.IPCNamespace, specs.UTSNamespace, specs.MountNamespace, specs.CgroupNamespace,
	} {
		s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: ns})
	}
	if base := b.note.IDBase; base > 0 {
		s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: specs.UserNamespace, Path: b.userns})
		mapping := []specs.LinuxIDMapping{{ContainerID: 0, HostID: base, Size: idrange.Count}}
		s.Linux.UIDMappings, s.Linux.GIDMappings = mapping, mapping
	}
	// Shared memory dies with the last process that has it: a leftover would
	// fill the sandbox's memory with nobody to kill for it. So would semaphores
	// and message queues of System V, which no process has; they get 2 MiB each.
	s.Linux.Sysctl = map[string]string{
		"kernel.shm_rmid_forced": "1", "kernel.sem": "250 32000 100 256", "kernel.msgmni": "128",
	}
	s.Linux.RootfsPropagation = "private"
	s.Linux.MaskedPaths, s.Linux.ReadonlyPaths = maskedPaths, readonlyPaths
	if b.note.Runtime.Kind == crun {
		s.Annotations = map[string]string{seccomp.Annotation: seccomp.Filter()}
	} else {
		s.Linux.Seccomp = seccomp.Profile()
		if b.note.IDBase > 0 {
			// It sets limits from outside, which in a user namespace that is not
			// its user's takes CAP_SYS_RESOURCE. The agent sets them itself.
			s.Process.Rlimits = nil
		}
		s.Linux.CgroupsPath = "/" + filepath.Join(b.cgroups.Parent, string(b.note.UID))
	}
}

// limitMounts show a container its own limits and use, where programs that
// care look for them. It cannot write there.
func (b bundle) limitMounts() []specs.Mount {
	bind := func(from, to string) specs.Mount {
		return specs.Mount{Destination: to, Type: "bind", Source: from, Options: []string{"bind", "ro", "nosuid", "noexec", "nodev"}}
	}
	const view = "/sys/fs/cgroup"
	path := b.cgroups.Group(b.note.UID).Path
	if b.cgroups.V2 != "" {
		return []specs.Mount{bind(filepath.Join(b.cgroups.V2, path), view)}
	}
	mounts := []specs.Mount{bind(b.cgroup, view)}
	for _, controller := range slices.Sorted(maps.Keys(b.cgroups.V1)) {
		mounts = append(mounts, bind(filepath.Join(b.cgroups.V1[controller], path), filepath.Join(view, controller)))
	}
	return mounts
}
