// Package pidfd holds processes of the host that are nobody's child here. It starts none.
package pidfd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/driver/oci/procstat"
	"github.com/cubbyhq/cubby/internal/driver/oci/thread"
)

// Process is one process of the host that is nobody's child here: it outlives
// the daemon that started it. It is held by a pidfd, so a reused pid is never
// taken for it.
type Process struct {
	PID   int
	Start uint64   // clock ticks since the host's boot
	file  *os.File // pidfd, polled by the Go runtime
}

// Open holds the process pid; os.ErrProcessDone when there is none. A
// start other than 0 must be the process's, else it is another one.
func Open(pid int, start uint64) (*Process, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) {
		return nil, os.ErrProcessDone
	}
	if err != nil {
		return nil, fmt.Errorf("open process: %w", err)
	}
	p := &Process{PID: pid, file: os.NewFile(uintptr(fd), "pidfd")}
	// The pidfd is held first, then the start time is read: what is read
	// belongs to what is held, or the process is gone.
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err == nil {
		p.Start, err = procstat.StartTime(data)
	}
	if err != nil || start != 0 && p.Start != start || p.done() {
		p.Close()
		return nil, os.ErrProcessDone
	}
	return p, nil
}

// Close ends the hold; a wait returns.
func (p *Process) Close() { _ = p.file.Close() }

func ended(fd uintptr) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0
}

// control runs f on the descriptor. Fd() would make it blocking, which takes
// it out of the runtime's poller.
func (p *Process) control(f func(fd uintptr)) {
	if conn, err := p.file.SyscallConn(); err == nil {
		_ = conn.Control(f)
	}
}

// Program is a name for what the process executes, which is good as long as it
// runs, also when the file has been removed.
func (p *Process) Program() string { return "/proc/" + strconv.Itoa(p.PID) + "/exe" }

// Kill ends the process; one that has ended stays as it is.
func (p *Process) Kill() {
	p.control(func(fd uintptr) { _ = unix.PidfdSendSignal(int(fd), unix.SIGKILL, nil, 0) })
}

// done reports whether the process has ended.
func (p *Process) done() (done bool) {
	p.control(func(fd uintptr) { done = ended(fd) })
	return done
}

// Wait returns nil when the process has ended, and an error after Close. One
// caller at a time.
func (p *Process) Wait() error {
	conn, err := p.file.SyscallConn()
	if err != nil {
		return err
	}
	return conn.Read(ended)
}

// exitPatience is how long an ended process may take to be reaped by whoever
// became its parent.
const exitPatience = 300 * time.Millisecond

// ExitStatus tells how an ended process ended. It was never a child of this
// process, so waiting for it is not possible: while it is a zombie /proc
// knows, and once it was reaped the pidfd does, on kernels since 6.15. False
// where neither helps.
func (p *Process) ExitStatus() (status syscall.WaitStatus, known bool) {
	for end := time.Now().Add(exitPatience); ; time.Sleep(time.Millisecond) {
		status, known, possible := p.reaped()
		if known {
			return status, true
		}
		data, err := os.ReadFile("/proc/" + strconv.Itoa(p.PID) + "/stat")
		if err == nil {
			if start, err := procstat.StartTime(data); err == nil && start == p.Start {
				if status, ok := zombieStatus(data); ok {
					return status, true
				}
				possible = true // about to become a zombie
			}
		}
		if !possible || time.Now().After(end) {
			return 0, false
		}
	}
}

// zombieStatus reads the last field of /proc/PID/stat of a zombie.
func zombieStatus(stat []byte) (syscall.WaitStatus, bool) {
	fields := procstat.Fields(stat)
	if len(fields) < 50 || string(fields[0]) != "Z" {
		return 0, false
	}
	code, err := strconv.ParseUint(string(fields[49]), 10, 32)
	return syscall.WaitStatus(code), err == nil
}

// reaped asks the pidfd. possible: it may know later.
func (p *Process) reaped() (status syscall.WaitStatus, known, possible bool) {
	const (
		infoExit   = 1 << 3     // PIDFD_INFO_EXIT
		getInfo    = 0xc040ff0b // PIDFD_GET_INFO with the first 64 bytes of struct pidfd_info
		statusAt   = 60
		structSize = 64
	)
	var info [structSize]byte
	binary.NativeEndian.PutUint64(info[:], infoExit)
	errno := syscall.EBADF
	p.control(func(fd uintptr) {
		_, _, errno = unix.Syscall(unix.SYS_IOCTL, fd, getInfo, uintptr(unsafe.Pointer(&info[0])))
	})
	if errno != 0 {
		// ESRCH: it was reaped, and this kernel forgets.
		return 0, false, false
	}
	if binary.NativeEndian.Uint64(info[:])&infoExit == 0 {
		return 0, false, true
	}
	return syscall.WaitStatus(binary.NativeEndian.Uint32(info[statusAt:])), true, true
}

// SetHostname names the UTS namespace of a process.
func (p *Process) SetHostname(name string) error {
	t := thread.New()
	defer t.End()
	return t.Do(func() error {
		// By the pidfd: it is the process that is held, or none.
		if err := p.enter(unix.CLONE_NEWUTS); err != nil {
			return fmt.Errorf("enter the container's UTS namespace: %w", err)
		}
		return os.NewSyscallError("sethostname", unix.Sethostname([]byte(name)))
	})
}

// enter moves the calling thread into namespaces of the process.
func (p *Process) enter(namespaces int) error {
	raw, err := p.file.SyscallConn()
	if err != nil {
		return err
	}
	controlErr := raw.Control(func(fd uintptr) { err = unix.Setns(int(fd), namespaces) })
	if err != nil {
		return err
	}
	return controlErr
}
