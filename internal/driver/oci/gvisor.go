package oci

import (
	"fmt"
	"path/filepath"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/cubbyhq/cubby/internal/driver/oci/cgroup"
)

// gvisor completes the specification for runsc. What it asks for is given by
// gVisor's own kernel and not by the host's.
func (b bundle) gvisor(s *specs.Spec) {
	s.Process.Capabilities = capabilities(
		"CAP_AUDIT_WRITE", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_MKNOD",
		"CAP_NET_ADMIN", "CAP_NET_BIND_SERVICE", "CAP_NET_RAW", // the agent redirects connections to itself
		"CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID",
		"CAP_SYS_ADMIN", // the agent mounts the sandbox's own cgroup filesystem
		"CAP_SYS_CHROOT", "CAP_SYS_PTRACE", "CAP_SYS_RESOURCE",
	)
	s.Mounts = append([]specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc"},
		{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"}},
		tmpfs("/dev/shm", "1777", b.note.Limits.MemoryBytes/2),
		{Destination: "/tmp", Type: "bind", Source: b.tmpDir(), Options: []string{"bind", "rw", "nosuid", "nodev"}},
	}, b.shared()...)
	// Left alone, gVisor puts /tmp into the sandbox's memory. With these hints
	// it is a filesystem of gVisor's own, as fast, in a file on the disk.
	const hint = "dev.gvisor.spec.mount.tmp."
	s.Annotations = map[string]string{
		hint + "source":    b.tmpDir(),
		hint + "type":      "tmpfs",
		hint + "share":     "container",
		hint + "options":   fmt.Sprintf("mode=01777,size=%d", b.note.Limits.DiskBytes),
		"dev.cubby.shield": "true", // of the agent; see cmd/runsc
	}
	if b.nobodys {
		s.Annotations["dev.cubby.line"] = b.box.bundle() // where it gets files of its own; see cmd/runsc
	}
	for _, ns := range []specs.LinuxNamespaceType{
		specs.PIDNamespace, specs.IPCNamespace, specs.UTSNamespace, specs.MountNamespace, specs.NetworkNamespace,
	} {
		s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: ns})
	}
	// These are what the sandbox shows to its programs (see cmd/runsc); what
	// is enforced is the cgroup.
	memory, quota, period := b.note.Limits.MemoryBytes, cgroup.CPUQuota(b.note.Limits.CPUs), uint64(cgroup.CPUPeriod/time.Microsecond)
	s.Linux.Resources = &specs.LinuxResources{
		Memory: &specs.LinuxMemory{Limit: &memory},
		CPU:    &specs.LinuxCPU{Quota: &quota, Period: &period},
	}
}

// The host's memory limit of a gVisor sandbox stands above its budget, which
// the agent keeps inside: the host's limit kills the whole sandbox. The
// difference is what gVisor itself needs (some 20 MiB, more with many files
// and mappings) and the time that the agent takes to notice.
func gvisorMemory(budget int64) int64 {
	return budget + max(budget/8, 128<<20)
}

// The host's limit of tasks of a gVisor sandbox is far above what its processes
// need: gVisor has a task or two of the host for each, and some dozens for
// itself. It is there for a gVisor that was taken over.
func gvisorTasks(pids int64) int64 { return min(8*pids+1024, cgroup.MaxTasks) }

func (b bundle) overlayDir() string { return filepath.Join(b.storesDir(), overlayName) }
func (b bundle) tmpDir() string     { return filepath.Join(b.storesDir(), tmpName) }

const overlayName, tmpName = "overlay", "tmp"

// storesDir is where the directories are in which gVisor keeps changes to filesystems.
func (b bundle) storesDir() string {
	if b.nobodys {
		// The runtime opens them in the mount namespace of its file server, where they
		// would hold on to all mounts that the host has at that moment. Its own
		// descriptor leads out of there.
		return fmt.Sprintf("/proc/self/fd/%d", storesFD)
	}
	return b.note.root()
}

// storesFD is the runtime's descriptor of the directory of nobody's stores.
const storesFD = 5

// beginFlags are runscFlags of a command that begins a run. The empty network
// namespace of gVisor's file servers is one for all: to make one for each takes
// the kernel many milliseconds.
func (b bundle) beginFlags() []string {
	return append(b.runscFlags(), "--shared-root="+b.sharedRoot)
}

// runscFlags come before every command.
func (b bundle) runscFlags() []string {
	return []string{
		"--root=" + b.box.runtime(),
		"--log=" + b.box.log(), "--log-format=json",
		"--platform=systrap",
		"--network=none",
		"--net-raw",       // leaves the agent its capability; commands never have it
		"--host-uds=open", // the agent dials the host's socket
		"--ignore-cgroups",
		"--in-sandbox-cgroup=v2",
		"--overlay2=" + fmt.Sprintf("root:dir=%s,size=%d", b.overlayDir(), b.note.Limits.DiskBytes),
	}
}
