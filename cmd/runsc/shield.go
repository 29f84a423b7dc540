package main

import (
	"fmt"
	"slices"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
)

// shieldAnnotation of a specification shields the first process from all others.
const shieldAnnotation = "dev.cubby.shield"

func shielded(spec *specs.Spec) bool { return spec.Annotations[shieldAnnotation] == "true" }

// In gVisor every process of the same user can kill PID 1, which here is the agent,
// and everybody may have a user namespace and mount in it: with the cgroup
// filesystem a command could leave its group, and with it the reach of its time
// limit, and raise the limit of processes. So a few system calls are refused to all
// but the first process. A filter of system calls inside could do that too, but gVisor
// evaluates one for every number there is whenever a thread or a process begins, which
// took each of them more than a millisecond.

// refusal reports whether a call is refused to a task that is not of the first process.
type refusal func(t *kernel.Task, args arch.SyscallArguments) bool

// refusals has the calls by their names in gVisor's tables.
func refusals() map[string]refusal {
	always := func(*kernel.Task, arch.SyscallArguments) bool { return true }
	all := map[string]refusal{
		"kill": harm(0, 1), "tkill": harm(0, 1), "tgkill": harm(0, 2),
		"rt_sigqueueinfo": harm(0, 1), "rt_tgsigqueueinfo": harm(0, 2),
		"pidfd_send_signal": signalOfFile,
		"fcntl":             fileSignal,
		"mount":             always, "fsopen": always,
		"socket": ping,
	}
	for name, pid := range map[string]int{
		"pidfd_open": 0, "prlimit64": 0, "process_vm_readv": 0, "process_vm_writev": 0, "ptrace": 1,
	} {
		all[name] = func(t *kernel.Task, args arch.SyscallArguments) bool { return isFirst(t, args[pid]) }
	}
	return all
}

// isFirst reports whether an argument is the number of a thread of the first process,
// in the task's namespace.
func isFirst(t *kernel.Task, pid arch.SyscallArgument) bool {
	if pid.Int() <= 0 {
		return false
	}
	target := t.PIDNamespace().TaskWithID(kernel.ThreadID(pid.Int()))
	return target != nil && target.ThreadGroup() == t.Kernel().GlobalInit()
}

// lethal are the signals that could end the first process: those that Go's runtime has no
// handler for, and those that it takes for a fault of its own where the sender says so. All
// others do nothing to the agent.
var lethal = []unix.Signal{
	unix.SIGKILL, unix.SIGSTOP, 32, 33, 34,
	unix.SIGILL, unix.SIGTRAP, unix.SIGBUS, unix.SIGFPE, unix.SIGSEGV, unix.SIGSTKFLT, unix.SIGSYS,
}

// harm refuses to send one that would harm the first process.
func harm(pid, number int) refusal {
	return func(t *kernel.Task, args arch.SyscallArguments) bool {
		return slices.Contains(lethal, unix.Signal(args[number].Int())) && isFirst(t, args[pid])
	}
}

// signalOfFile is harm for a process that is named by a file: a pidfd, or its
// directory of /proc.
func signalOfFile(t *kernel.Task, args arch.SyscallArguments) bool {
	if !slices.Contains(lethal, unix.Signal(args[1].Int())) {
		return false
	}
	file := t.GetFile(args[0].Int())
	if file == nil {
		return false
	}
	defer file.DecRef(t)
	target, err := kernel.PIDFDTask(file)
	return err == nil && target.ThreadGroup() == t.Kernel().GlobalInit()
}

// fileSignal refuses such signals in the place of SIGIO, which a file sends to
// whomever its owner names.
func fileSignal(_ *kernel.Task, args arch.SyscallArguments) bool {
	return args[1].Int() == unix.F_SETSIG && slices.Contains(lethal, unix.Signal(args[2].Int()))
}

// ping refuses sockets for pings: loopback is the route to every address (see
// internal/redirect), so they would wait for answers that cannot come.
func ping(_ *kernel.Task, args arch.SyscallArguments) bool {
	return args[0].Int() == unix.AF_INET && args[2].Int() == unix.IPPROTO_ICMP
}

// raiseShield puts the refusals in front of gVisor's own functions. Call it before
// the kernel runs.
func raiseShield() error {
	calls := make(map[string]wrapper)
	for name, refused := range refusals() {
		calls[name] = func(do kernel.SyscallFn) kernel.SyscallFn {
			return func(t *kernel.Task, sysno uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
				if t.ThreadGroup() != t.Kernel().GlobalInit() && refused(t, args) {
					return 0, nil, linuxerr.EPERM
				}
				return do(t, sysno, args)
			}
		}
	}
	if err := wrapCalls(calls); err != nil {
		return fmt.Errorf("the shield of the first process: %w", err)
	}
	return nil
}
