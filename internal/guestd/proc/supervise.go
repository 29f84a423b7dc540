package proc

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"os"
	"runtime/debug"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// How a supervisor is told what it must know before its first order.
const (
	envOpenFiles = "CUBBY_OPEN_FILES"
	envOOMScore  = "CUBBY_OOM_SCORE"
)

// commandOOMScore makes the kernel prefer commands to the agent.
const commandOOMScore = "300"

func supervisorEnv(openFiles int64, init bool) []string {
	env := []string{"GOMAXPROCS=1", "GOTRACEBACK=none"}
	if openFiles > 0 {
		env = append(env, envOpenFiles+"="+strconv.FormatInt(openFiles, 10))
	}
	if init {
		env = append(env, envOOMScore+"="+commandOOMScore)
	}
	return env
}

// Supervise is the main function of a supervisor process: it runs the
// commands that come over descriptor 3, one after the other, each with all
// its descendants, until the other end is closed. It never returns.
func Supervise() {
	debug.SetGCPercent(25)
	ignoreSignals()
	if err := supervise(3); err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

// ignoreSignals makes a careless "kill -TERM -1" of root inside pass by. It is
// done behind the Go runtime's back: os/signal would take three more threads,
// and the sandbox's limit counts every one; and the runtime, which still
// believes that it handles these signals, gives commands the defaults.
func ignoreSignals() {
	type sigaction struct{ handler, flags, restorer, mask uint64 }
	const ignore = 1
	action := sigaction{handler: ignore}
	for _, sig := range []syscall.Signal{
		unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2,
		unix.SIGALRM, unix.SIGPIPE, unix.SIGABRT, unix.SIGTRAP, unix.SIGSYS,
	} {
		_, _, _ = syscall.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
	}
}

func supervise(fd int) error {
	unix.CloseOnExec(fd)
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	limitOpenFiles(os.Getenv(envOpenFiles))
	oom := openScore(os.Getenv(envOOMScore))
	for {
		o, files, err := receiveOrder(fd)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := obey(fd, o, files, oom); err != nil {
			return err
		}
	}
}

func limitOpenFiles(s string) {
	n, err := strconv.ParseUint(s, 10, 63)
	if err != nil || n == 0 {
		return
	}
	var have syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &have) != nil {
		return
	}
	n = max(n, 16)
	if syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: n, Max: n}) != nil {
		n = min(n, have.Max)
		_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: n, Max: n})
	}
}

// score is the supervisor's oom_score_adj, which its commands inherit. The
// kernel kills the largest process among those of one score: a supervisor with
// the score of its commands would go before a thousand small ones.
type score struct {
	file          *os.File // nil: all of them keep what they have
	own, commands []byte
}

func openScore(commands string) score {
	if commands == "" {
		return score{}
	}
	file, err := os.OpenFile("/proc/self/oom_score_adj", os.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return score{}
	}
	own := make([]byte, 16)
	n, _ := file.Read(own)
	return score{file: file, own: own[:n], commands: []byte(commands)}
}

// forCommand sets the score that the next child starts with; restore sets the
// supervisor's own again.
func (s score) forCommand() {
	if s.file != nil {
		_, _ = s.file.WriteAt(s.commands, 0)
	}
}

func (s score) restore() {
	if s.file != nil {
		_, _ = s.file.WriteAt(s.own, 0)
	}
}

func obey(fd int, o order, files []int, oom score) error {
	c := command{path: o.Path, argv: o.Argv, env: o.Env, dir: o.Dir, account: Account{UID: o.UID, GID: o.GID, groups: o.Groups}}
	oom.forCommand()
	main, err := syscall.ForkExec(o.Path, o.Argv, c.attributes(files, o.TTY, o.OneUser))
	oom.restore()
	for _, f := range files {
		_ = syscall.Close(f)
	}
	if err != nil {
		var errno syscall.Errno
		if !errors.As(err, &errno) {
			errno = syscall.EINVAL
		}
		return tell(fd, report{kind: reportRefused, value: int32(errno)})
	}
	if err := tell(fd, report{kind: reportStarted, value: int32(main)}); err != nil {
		return err
	}
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, unix.WALL, nil)
		switch {
		case err == syscall.EINTR:
		case err == syscall.ECHILD:
			return tell(fd, report{kind: reportEmpty})
		case err != nil:
			return err
		case !over(ws):
		case pid == main:
			main = 0
			ended := report{kind: reportEnded, ws: uint32(ws)}
			if childless() {
				return tell(fd, ended, report{kind: reportEmpty})
			}
			if err := tell(fd, ended); err != nil {
				return err
			}
		}
	}
}

// childless reports that no child is left, also none that waits to be reaped.
func childless() bool {
	return unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT|unix.WALL, nil) == unix.ECHILD
}

// tell sends reports with one write: each wakes the agent.
func tell(fd int, reports ...report) error {
	var b []byte
	for _, r := range reports {
		b = append(b, r.encode()...)
	}
	_, err := syscall.Write(fd, b)
	return err
}

func receiveOrder(fd int) (o order, files []int, err error) {
	head := make([]byte, 4)
	oob := make([]byte, unix.CmsgSpace(4*maxFiles))
	n, oobn, _, _, err := unix.Recvmsg(fd, head, oob, unix.MSG_CMSG_CLOEXEC|unix.MSG_WAITALL)
	for err == unix.EINTR {
		n, oobn, _, _, err = unix.Recvmsg(fd, head, oob, unix.MSG_CMSG_CLOEXEC|unix.MSG_WAITALL)
	}
	switch {
	case err != nil:
		return o, files, err
	case n == 0:
		return o, files, io.EOF
	case n < len(head):
		return o, files, io.ErrUnexpectedEOF
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return o, files, err
	}
	for _, m := range msgs {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil || len(fds) < 3 {
			return o, files, errors.New("an order without its descriptors")
		}
		files = fds
	}
	size := binary.LittleEndian.Uint32(head)
	if len(msgs) != 1 || size > maxOrder {
		return o, files, errors.New("malformed order")
	}
	body := make([]byte, size)
	for at := 0; at < len(body); {
		n, err := syscall.Read(fd, body[at:])
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return o, files, err
		case n == 0:
			return o, files, io.ErrUnexpectedEOF
		default:
			at += n
		}
	}
	return o, files, json.Unmarshal(body, &o)
}
