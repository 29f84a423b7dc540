package proc

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

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

// BoundCapabilities takes every other capability out of the bounding set, and all out
// of the inheritable one: the agent keeps what it has, what it executes cannot get more.
//
// Each thread has sets of its own, and to reach all of them takes gVisor most of a
// millisecond. So a driver gives the agent what commands may not have as inheritable,
// which one call empties, and leaves nothing to take out of the bounding set.
func BoundCapabilities() error {
	sets, err := capabilitySets()
	if err != nil {
		return err
	}
	if sets.inheritable != 0 {
		if err := inheritNothing(sets); err != nil {
			return err
		}
	}
	for c := uintptr(0); c < 64; c++ {
		if sets.bounding&(1<<c) == 0 || commandCaps[c] {
			continue
		}
		_, _, errno := syscall.AllThreadsSyscall(syscall.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0)
		if errno != 0 && errno != syscall.EPERM {
			return os.NewSyscallError("prctl PR_CAPBSET_DROP", errno)
		}
	}
	return nil
}

// What capset reads in each thread; the addresses of variables of a package stay.
var (
	capsetHeader = unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	capsetData   [2]unix.CapUserData
)

// inheritNothing empties the inheritable set of all threads.
func inheritNothing(s capabilities) error {
	for i := range capsetData {
		capsetData[i] = unix.CapUserData{Effective: uint32(s.effective >> (32 * i)), Permitted: uint32(s.permitted >> (32 * i))}
	}
	_, _, errno := syscall.AllThreadsSyscall(syscall.SYS_CAPSET, uintptr(unsafe.Pointer(&capsetHeader)), uintptr(unsafe.Pointer(&capsetData[0])), 0)
	if errno != 0 {
		return os.NewSyscallError("capset", errno)
	}
	return nil
}

// capabilities are sets of this process, a bit for each capability.
type capabilities struct{ inheritable, permitted, effective, bounding uint64 }

// capabilitySets reads them; one read instead of a call for each of them.
func capabilitySets() (capabilities, error) {
	var s capabilities
	sets := map[string]*uint64{"CapInh": &s.inheritable, "CapPrm": &s.permitted, "CapEff": &s.effective, "CapBnd": &s.bounding}
	for line := range strings.Lines(string(readBounded("/proc/self/status", 16<<10))) {
		name, hex, _ := strings.Cut(line, ":")
		set := sets[name]
		if set == nil {
			continue
		}
		bits, err := strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
		if err != nil {
			return s, fmt.Errorf("/proc/self/status: %s: %w", name, err)
		}
		*set = bits
		delete(sets, name)
	}
	if len(sets) > 0 {
		return s, errors.New("/proc/self/status does not name all sets of capabilities")
	}
	return s, nil
}
