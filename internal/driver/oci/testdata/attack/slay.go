package main

import (
	"encoding/binary"
	"os"
	"strconv"
	"syscall"
	"unsafe"
)

// Numbers that package syscall does not have on every architecture; these are the same
// on all.
const (
	pidfdSendSignal = 424
	pidfdOpen       = 434
	ptraceSeize     = 0x4206
	rlimitProcesses = 6
	cloneParent     = 0x8000
)

// codes are what a signal can say of where it comes from: those of queued signals, of
// timers, message queues and files, of tkill, of a user, and some of the kernel's own.
var codes = []int32{-1, -2, -3, -4, -5, -6, -7, -60, 0, 1, 2, 6, 0x80}

// slay sends PID 1 and each of its threads every signal in every way, so many times, and
// counts what was not refused.
func slay(most int) (sent int) {
	for range most {
		for sig := 1; sig <= 64; sig++ {
			sent += slayBy(uintptr(sig))
		}
	}
	return sent
}

func slayBy(sig uintptr) (sent int) {
	try := func(call uintptr, args ...uintptr) (result uintptr) {
		args = append(args, 0, 0, 0, 0, 0)
		result, _, errno := syscall.RawSyscall6(call, args[0], args[1], args[2], args[3], args[4], args[5])
		if errno == 0 {
			sent++
			return result
		}
		return ^uintptr(0)
	}
	targets := []uintptr{1}
	if threads, err := os.ReadDir("/proc/1/task"); err == nil {
		for _, thread := range threads {
			if id, err := strconv.Atoi(thread.Name()); err == nil && id != 1 {
				targets = append(targets, uintptr(id))
			}
		}
	}
	var files []uintptr
	if fd := try(pidfdOpen, 1, 0); fd != ^uintptr(0) {
		files = append(files, fd)
	}
	if dir, err := os.Open("/proc/1"); err == nil {
		defer dir.Close()
		files = append(files, dir.Fd())
	}
	for _, id := range targets {
		try(syscall.SYS_KILL, id, sig)
		try(syscall.SYS_TKILL, id, sig)
		try(syscall.SYS_TGKILL, 1, id, sig)
	}
	for _, fd := range files {
		try(pidfdSendSignal, fd, sig)
	}
	for _, code := range codes {
		var info [128]byte // struct siginfo
		binary.NativeEndian.PutUint32(info[0:], uint32(sig))
		binary.NativeEndian.PutUint32(info[8:], uint32(code))
		at := uintptr(unsafe.Pointer(&info))
		for _, id := range targets {
			try(syscall.SYS_RT_SIGQUEUEINFO, id, sig, at)
			try(syscall.SYS_RT_TGSIGQUEUEINFO, 1, id, sig, at)
		}
		for _, fd := range files {
			try(pidfdSendSignal, fd, sig, at)
		}
	}
	fileSends(try, targets, sig)
	var nothing [2]uint64 // struct rlimit
	for _, id := range targets {
		timerSends(try, id, sig)
		// Not a signal, and as deadly: neither files, nor processes, nor time on a processor.
		for _, limit := range []uintptr{syscall.RLIMIT_NOFILE, rlimitProcesses, syscall.RLIMIT_CPU} {
			try(syscall.SYS_PRLIMIT64, id, limit, uintptr(unsafe.Pointer(&nothing)))
		}
		try(syscall.SYS_PTRACE, ptraceSeize, id)
	}
	// Children of this process's own parent, and orphans of PID 1, which tell of their end
	// by the signal.
	if child := try(syscall.SYS_CLONE, cloneParent|sig); child == 0 {
		_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 0, 0, 0)
	}
	if child := try(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD)); child == 0 {
		parent, _, _ := syscall.RawSyscall(syscall.SYS_GETPID, 0, 0, 0)
		if r, _, _ := syscall.RawSyscall6(syscall.SYS_CLONE, sig, 0, 0, 0, 0, 0); r == 0 {
			for now := parent; now == parent; now, _, _ = syscall.RawSyscall(syscall.SYS_GETPPID, 0, 0, 0) {
				pause := syscall.Timespec{Nsec: 1e6}
				_, _, _ = syscall.RawSyscall(syscall.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&pause)), 0, 0)
			}
		}
		_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 0, 0, 0)
	} else if child != ^uintptr(0) {
		_, _ = syscall.Wait4(int(child), nil, 0, nil)
	}
	return sent
}

// fileSends has a file send the signal in the place of SIGIO.
func fileSends(try func(uintptr, ...uintptr) uintptr, targets []uintptr, sig uintptr) {
	const setSignal, setOwnerEx, ownerThread = 10, 15, 0
	for _, id := range targets {
		pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
		if err != nil {
			return
		}
		fd := uintptr(pair[0])
		owner := [2]int32{ownerThread, int32(id)}
		if try(syscall.SYS_FCNTL, fd, setOwnerEx, uintptr(unsafe.Pointer(&owner))) == ^uintptr(0) {
			try(syscall.SYS_FCNTL, fd, syscall.F_SETOWN, id)
		}
		try(syscall.SYS_FCNTL, fd, setSignal, sig)
		try(syscall.SYS_FCNTL, fd, syscall.F_SETFL, syscall.O_ASYNC)
		_, _ = syscall.Write(pair[1], []byte("x"))
		_ = syscall.Close(pair[0])
		_ = syscall.Close(pair[1])
	}
}

// timerSends has a timer of this process send the signal to a thread.
func timerSends(try func(uintptr, ...uintptr) uintptr, id, sig uintptr) {
	const threadID = 4
	var event [64]byte // struct sigevent
	binary.NativeEndian.PutUint32(event[8:], uint32(sig))
	binary.NativeEndian.PutUint32(event[12:], threadID)
	binary.NativeEndian.PutUint32(event[16:], uint32(id))
	var timer int32
	if try(syscall.SYS_TIMER_CREATE, 1, uintptr(unsafe.Pointer(&event)), uintptr(unsafe.Pointer(&timer))) == ^uintptr(0) {
		return
	}
	at := [4]int64{0, 0, 0, 1} // in a nanosecond, once
	try(syscall.SYS_TIMER_SETTIME, uintptr(timer), 0, uintptr(unsafe.Pointer(&at)))
}
