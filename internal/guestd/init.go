package guestd

import (
	"fmt"
	"log/slog"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
	"github.com/cubbyhq/cubby/internal/guestd/proc"
	"github.com/cubbyhq/cubby/internal/redirect"
)

// agentFiles is what the agent needs for itself: its connections, the
// commands' pipes.
const agentFiles = 4096

// containerThreads are created ahead: in a container the agent shares its limit
// of processes with the commands.
const containerThreads = 12

// Prepare sets up PID 1: what the sandbox needs once, before anything else
// runs in it. What the runtime did already, or does not allow, is skipped;
// the errors that it returns make a sandbox useless or unsafe.
func Prepare(boot *guestv1.Boot, log *slog.Logger) error {
	// The secret is in memory: nobody may trace or dump this process.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return os.NewSyscallError("prctl PR_SET_DUMPABLE", err)
	}
	if boot.GetHostname() != "" {
		_ = unix.Sethostname([]byte(boot.GetHostname()))
	}
	writeProfile(profileDir)
	if err := loopbackUp(); err != nil && boot.GetEgressListen() != "" {
		return err
	}
	if boot.GetSetRedirect() {
		if err := redirect.Set(); err != nil {
			return fmt.Errorf("redirect connections: %w", err)
		}
	}
	raiseOpenFiles(boot)
	dumpNoCore()
	if err := proc.BoundCapabilities(); err != nil {
		return err
	}
	if boot.GetInSandboxCgroup() {
		return nil // the kernel is the shield, and the agent shares no limit of threads
	}
	// A runtime that allows no filter leaves what its kernel allows.
	_ = proc.Shield(containerThreads)
	return nil
}

// loopbackUp brings lo up in a network namespace that was made empty.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer func() { _ = unix.Close(fd) }()
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, ifr); err != nil {
		return os.NewSyscallError("lo", err)
	}
	if flags := ifr.Uint16(); flags&unix.IFF_UP == 0 {
		ifr.SetUint16(flags | unix.IFF_UP)
		return os.NewSyscallError("bring lo up", unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr))
	}
	return nil
}

// dumpNoCore keeps the memory of everything in the sandbox from programs of the
// host that take core dumps.
func dumpNoCore() { _ = syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{}) }

// raiseOpenFiles gives the agent room for itself. Where the commands' limit is
// large enough for both, the agent takes it too, and commands inherit it.
func raiseOpenFiles(boot *guestv1.Boot) {
	var have syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &have) != nil {
		return
	}
	want := max(agentFiles, uint64(boot.GetOpenFiles()))
	for _, limit := range []syscall.Rlimit{
		{Cur: want, Max: want},
		{Cur: min(want, have.Max), Max: have.Max},
	} {
		if syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit) == nil {
			return
		}
	}
}
