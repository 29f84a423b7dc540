package proc

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// commandCaps is what root among the commands may have: what root in a Docker
// container has, without mknod. Above all not SYS_ADMIN and SYS_PTRACE, with
// which it could reach the agent's cgroups and memory, and not
// SYS_RESOURCE, with which it could raise its limits.
var commandCaps = map[uintptr]bool{
	unix.CAP_CHOWN: true, unix.CAP_DAC_OVERRIDE: true, unix.CAP_FOWNER: true, unix.CAP_FSETID: true,
	unix.CAP_KILL: true, unix.CAP_SETGID: true, unix.CAP_SETUID: true, unix.CAP_SETPCAP: true,
	unix.CAP_NET_BIND_SERVICE: true, unix.CAP_SYS_CHROOT: true, unix.CAP_AUDIT_WRITE: true, unix.CAP_SETFCAP: true,
}

// BoundCapabilities takes every other capability out of the bounding set: the
// agent keeps what it has, what it executes cannot get more.
func BoundCapabilities() error {
	bounding, err := boundingSet()
	if err != nil {
		return err
	}
	for c := uintptr(0); c < 64; c++ {
		if bounding&(1<<c) == 0 || commandCaps[c] {
			continue
		}
		// Each thread has a set of its own.
		_, _, errno := syscall.AllThreadsSyscall(syscall.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0)
		if errno != 0 && errno != syscall.EPERM {
			return os.NewSyscallError("prctl PR_CAPBSET_DROP", errno)
		}
	}
	return nil
}

// boundingSet reads this process's; one read instead of a call for each of
// them.
func boundingSet() (uint64, error) {
	for line := range strings.Lines(string(readBounded("/proc/self/status", 16<<10))) {
		if hex, ok := strings.CutPrefix(line, "CapBnd:"); ok {
			return strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
		}
	}
	return 0, errors.New("/proc/self/status does not name the bounding set")
}
