package proc

import (
	"errors"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// In a container root could set the agent's resource limits to nothing. The kernel permits
// that between processes of one user and one group, saved ones included, so the agent has
// a saved group that is not its other one. Besides there is a seccomp filter that the agent
// puts on itself before the first command and that all commands inherit: a few system calls are
// refused when they name one of the threads that the agent has by then. In gVisor, where the
// same user can kill PID 1 too, its kernel is the shield: see cmd/runsc.

// uncaught are the signals that the Go runtime has no handler for; all others
// do nothing to the agent.
var uncaught = []uint32{uint32(unix.SIGKILL), uint32(unix.SIGSTOP), 32, 33, 34}

// shieldRule refuses a call whose argument number target names the agent, and,
// where signal is not negative, whose argument number signal is uncaught.
type shieldRule struct {
	call           uint32
	target, signal int
}

func shieldRules() []shieldRule {
	return []shieldRule{
		{unix.SYS_KILL, 0, 1},
		{unix.SYS_TKILL, 0, 1},
		{unix.SYS_TGKILL, 0, 2},
		{unix.SYS_RT_SIGQUEUEINFO, 0, 1},
		{unix.SYS_RT_TGSIGQUEUEINFO, 0, 2},
		{unix.SYS_PIDFD_OPEN, 0, -1},
		{unix.SYS_PRLIMIT64, 0, -1},
		{unix.SYS_PROCESS_VM_READV, 0, -1},
		{unix.SYS_PROCESS_VM_WRITEV, 0, -1},
		{unix.SYS_PTRACE, 1, -1},
	}
}

// Shield raises the shield between the agent and its commands, and creates threads
// more of the agent's behind it. Call it once, as PID 1 before the first command.
// With an error there is no shield.
func Shield(threads int) error {
	// A user namespace without the group leaves the filter.
	alone := syscall.Setresgid(-1, -1, savedGroup)
	last, err := raiseShield(threads)
	warmThreads(threads, last)
	return errors.Join(alone, err)
}

// savedGroup is anything but 0. Commands do not get it: starting one sets all of its groups.
const savedGroup = 1

// raiseShield installs the filter on every thread; more is how many threads
// will be made before the first command. Call it once, after the last use of
// syscall.AllThreadsSyscall, which sends signal 33. It returns the last id that is
// behind the shield, 0 with an error.
func raiseShield(more int) (last uint32, err error) {
	arch, ok := map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}[runtime.GOARCH]
	if !ok {
		return 0, errors.New("no filter for this architecture")
	}
	if last, err = lastThread(); err != nil {
		return 0, err
	}
	last += uint32(more)
	program := shieldProgram(arch, last)
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(program)
	if errno != 0 {
		return 0, os.NewSyscallError("seccomp", errno)
	}
	return last, nil
}

// lastThread returns the highest id of this process's threads. As PID 1
// before the first command, every id up to it is one of them.
func lastThread() (uint32, error) {
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return 0, err
	}
	last := uint64(1)
	for _, e := range entries {
		if id, err := strconv.ParseUint(e.Name(), 10, 31); err == nil {
			last = max(last, id)
		}
	}
	return uint32(last), nil
}

// Offsets in struct seccomp_data; pids and signals are in the low words.
const (
	dataCall = 0
	dataArch = 4
	dataArgs = 16
)

func shieldProgram(arch, last uint32) []unix.SockFilter {
	const (
		load   = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		above  = unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K
		result = unix.BPF_RET | unix.BPF_K
		allow  = unix.SECCOMP_RET_ALLOW
	)
	refuse := uint32(unix.SECCOMP_RET_ERRNO) | uint32(unix.EPERM)
	arg := func(n int) uint32 { return dataArgs + 8*uint32(n) }
	// Each rule has a block that ends in a verdict; in front of them, the
	// number of the call selects one.
	var blocks []unix.SockFilter
	rules := shieldRules()
	starts := make([]int, len(rules))
	for i, r := range rules {
		starts[i] = len(blocks)
		blocks = append(blocks,
			unix.SockFilter{Code: load, K: arg(r.target)},
			unix.SockFilter{Code: equal, K: 0, Jf: 1},
			unix.SockFilter{Code: result, K: allow},
			unix.SockFilter{Code: above, K: last, Jf: 1},
			unix.SockFilter{Code: result, K: allow})
		if r.signal >= 0 {
			blocks = append(blocks, unix.SockFilter{Code: load, K: arg(r.signal)})
			for _, sig := range uncaught {
				blocks = append(blocks, unix.SockFilter{Code: equal, K: sig, Jf: 1}, unix.SockFilter{Code: result, K: refuse})
			}
			blocks = append(blocks, unix.SockFilter{Code: result, K: allow})
		} else {
			blocks = append(blocks, unix.SockFilter{Code: result, K: refuse})
		}
	}
	program := []unix.SockFilter{
		{Code: load, K: dataArch},
		{Code: equal, K: arch, Jt: 1},
		{Code: result, K: allow},
		{Code: load, K: dataCall},
	}
	for i, r := range rules {
		// Behind this jump: the other jumps and the verdict of no rule.
		program = append(program, unix.SockFilter{Code: equal, K: r.call, Jt: uint8(len(rules) - i + starts[i])})
	}
	program = append(program, unix.SockFilter{Code: result, K: allow})
	return append(program, blocks...)
}
