package guestd

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
	"github.com/cubbyhq/cubby/internal/redirect"
)

// agentFiles is what the agent needs for itself: its connections, the
// commands' pipes.
const agentFiles = 4096

// Threads that are created ahead, see warmThreads. In gVisor the agent does not
// share the commands' limit; it has some, so that the shield covers them.
const (
	containerThreads = 12
	gvisorThreads    = 5
)

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
	if err := boundCommands(); err != nil {
		return err
	}
	if boot.GetInSandboxCgroup() {
		return nil // the cgroups have to be mounted first: see shieldCgroups
	}
	// Threads inherit the filter, which is dear to put on many. A runtime
	// that allows none leaves what its kernel allows.
	last, _ := raiseShield(containerThreads, !boot.GetSetRedirect())
	warmThreads(containerThreads, last)
	return nil
}

// shieldCgroups is the end of what Prepare does where the agent has cgroups:
// only the shield keeps root among the commands from mounting them too.
func shieldCgroups(boot *guestv1.Boot) error {
	last, err := raiseShield(gvisorThreads, !boot.GetSetRedirect())
	if err != nil {
		return err
	}
	warmThreads(gvisorThreads, last)
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

// commandCaps is what root among the commands may have: what root in a Docker
// container has, without mknod. Above all not SYS_ADMIN and SYS_PTRACE, with
// which it could reach the agent's cgroups and memory, and not
// SYS_RESOURCE, with which it could raise its limits.
var commandCaps = map[uintptr]bool{
	unix.CAP_CHOWN: true, unix.CAP_DAC_OVERRIDE: true, unix.CAP_FOWNER: true, unix.CAP_FSETID: true,
	unix.CAP_KILL: true, unix.CAP_SETGID: true, unix.CAP_SETUID: true, unix.CAP_SETPCAP: true,
	unix.CAP_NET_BIND_SERVICE: true, unix.CAP_SYS_CHROOT: true, unix.CAP_AUDIT_WRITE: true, unix.CAP_SETFCAP: true,
}

// boundCommands takes every other capability out of the bounding set: the
// agent keeps what it has, what it executes cannot get more.
func boundCommands() error {
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

// notifySignals takes every signal, so that none that root inside sends can
// end the agent, and commands start with the defaults. It returns the channel
// of SIGCHLD.
func notifySignals() chan os.Signal {
	signal.Notify(make(chan os.Signal, 1))
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	return children
}
