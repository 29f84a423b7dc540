package proc

import (
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// quiet gives signals a handler that does nothing. In a child that it forks Go sets
// each signal that it handles itself back to its default, one system call for each
// of 60, which in gVisor is a tenth of what a short command takes. A handler that is
// not Go's needs none of that: executing the command ends it, and until then it may
// run in the child.
//
// The signals must be ones that the agent has no use for. They can neither end it
// nor wake anybody in it, and commands start with the defaults. While one is handled all
// others wait: each that came in between would take its part of the signal stack, which
// has room for some ten.
func quiet(signals ...syscall.Signal) {
	for _, sig := range signals {
		// A command that is forked in between would ignore the signal for good.
		syscall.ForkLock.RLock()
		signal.Ignore(sig) // and Go forgets it
		action := sigaction{handler: uint64(quietHandler()), flags: onStack | restart | restorerFlag, restorer: uint64(quietRestorer()), mask: everySignal}
		_ = action.set(sig)
		syscall.ForkLock.RUnlock()
	}
}

// SA_ONSTACK, without which a handler runs on the small stack of a goroutine, and
// SA_RESTART, of the kernel's asm-generic/signal-defs.h.
const (
	onStack = 0x08000000
	restart = 0x10000000
)

// everySignal is the set of them all, as Go's own handlers have it.
const everySignal = ^uint64(0)

// unused are the signals that the agent has no use for: all but those of its own
// faults, of the end of children, and of Go's scheduler, and one that Go does not
// forget (SIGSTKFLT).
func unused() []syscall.Signal {
	all := []syscall.Signal{
		unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGPIPE, unix.SIGALRM, unix.SIGTERM,
		unix.SIGCONT, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGXCPU, unix.SIGXFSZ, unix.SIGVTALRM,
		unix.SIGWINCH, unix.SIGIO, unix.SIGPWR,
	}
	// The C library's own end at 34; Go leaves them alone.
	for sig := syscall.Signal(35); sig <= 64; sig++ {
		all = append(all, sig)
	}
	return all
}

// quietHandler is the address of a handler that returns at once, and quietRestorer
// that of what it returns to, where the kernel does not bring that itself.
func quietHandler() uintptr
func quietRestorer() uintptr
