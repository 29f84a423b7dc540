package main

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	archSetCPUID = 0x1012 // ARCH_SET_CPUID
	cpuidAllowed = 1
)

// leaveCPUID keeps gVisor from making the instruction CPUID fault in the
// sandbox's processes, where the processor can do that. Its own kernel would
// answer it then, but each switch between such a process and gVisor's kernel
// writes a machine register, which in a virtual machine costs more than a
// system call, and every program asks CPUID dozens of times as it starts.
// gVisor goes without where the processor cannot do it, so it is told
// that this one cannot. Call it in the process that becomes the
// sandbox, before that starts others.
func leaveCPUID() error {
	if _, _, errno := unix.RawSyscall(unix.SYS_ARCH_PRCTL, archSetCPUID, cpuidAllowed, 0); errno != 0 {
		return nil // the processor cannot, or this was called before
	}
	return refuseCPUIDFaults()
}

// refuseCPUIDFaults answers arch_prctl(ARCH_SET_CPUID) with ENODEV, in all
// threads and in what they start.
func refuseCPUIDFaults() error {
	// Offsets in struct seccomp_data.
	const dataCall, dataArch, dataArg = 0, 4, 16
	const (
		load   = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		result = unix.BPF_RET | unix.BPF_K
	)
	filter := []unix.SockFilter{
		{Code: load, K: dataArch},
		{Code: equal, K: unix.AUDIT_ARCH_X86_64, Jf: 5},
		{Code: load, K: dataCall},
		{Code: equal, K: unix.SYS_ARCH_PRCTL, Jf: 3},
		{Code: load, K: dataArg},
		{Code: equal, K: archSetCPUID, Jf: 1},
		{Code: result, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENODEV)},
		{Code: result, K: unix.SECCOMP_RET_ALLOW},
	}
	// gVisor sets it too, before its own filters. It is a thread's own, and
	// TSYNC gives it to the others.
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return os.NewSyscallError("prctl PR_SET_NO_NEW_PRIVS", err)
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	thread, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	if errno == 0 && thread != 0 {
		errno = unix.EAGAIN // a thread has a filter that the others do not have
	}
	if errno != 0 {
		return os.NewSyscallError("seccomp", errno)
	}
	return nil
}
