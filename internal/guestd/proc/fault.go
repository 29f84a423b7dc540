package proc

import (
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Go takes a signal for a fault of its own, and ends the program or panics, unless it was
// sent by kill or tkill. Whoever may send signals can also queue one (SI_QUEUE), or have a
// file or a timer send it. So these signals get a handler in front of Go's that looks where
// they come from: a fault is the kernel's, and only the kernel can give a signal to another
// process a code above 0.

// faults are the signals that Go takes so. SIGSTKFLT, which no kernel sends for a fault, is
// treated as they are, but a file can send it with a code above 0: it does nothing at all.
var faults = []syscall.Signal{unix.SIGILL, unix.SIGTRAP, unix.SIGBUS, unix.SIGFPE, unix.SIGSEGV, unix.SIGSYS}

// sigaction is struct sigaction of the kernel.
type sigaction struct{ handler, flags, restorer, mask uint64 }

func (a *sigaction) get(sig syscall.Signal) error {
	return act(sig, nil, a)
}

func (a *sigaction) set(sig syscall.Signal) error {
	return act(sig, a, nil)
}

func act(sig syscall.Signal, set, get *sigaction) error {
	if _, _, errno := syscall.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(get)), 8, 0, 0); errno != 0 {
		return fmt.Errorf("rt_sigaction of %v: %w", sig, errno)
	}
	return nil
}

// goFault is Go's own handler, for faultHandler.
var goFault uint64

// ownFaults has only faults of the agent itself end it. Commands start with the defaults,
// as before: Go resets in a child what it handles.
func ownFaults() error {
	for _, sig := range faults {
		var a sigaction
		if err := a.get(sig); err != nil {
			return err
		}
		if a.handler == uint64(faultHandler()) {
			continue
		}
		if goFault != 0 && a.handler != goFault {
			return fmt.Errorf("%v has a handler of its own", sig)
		}
		goFault = a.handler
		a.handler = uint64(faultHandler())
		if err := a.set(sig); err != nil {
			return err
		}
	}
	var a sigaction
	if err := a.get(unix.SIGSTKFLT); err != nil {
		return err
	}
	a.handler = uint64(quietHandler())
	return a.set(unix.SIGSTKFLT)
}

// faultHandler is the address of a handler that passes on to goFault what the kernel says
// of a fault, and returns at once from everything else.
func faultHandler() uintptr
