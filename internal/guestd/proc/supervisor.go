package proc

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// On a kernel that the sandbox shares with the host there is no cgroup that
// the agent may write, so a tree is held together by a supervisor: a process
// that is the subreaper of one command. Whoever forks twice or leaves the
// session becomes the supervisor's child in the end and never anybody else's,
// so everything below it in the process table is the tree, and its "no child
// left" is exact. Supervisors are started ahead and used again, so that a
// command does not pay for a program start.

// supervisorIdle is how many supervisors are kept for reuse.
const supervisorIdle = 4

// report is what a supervisor says, 12 bytes on the wire.
type report struct {
	kind  reportKind
	value int32  // pid or errno
	ws    uint32 // wait status
}

type reportKind uint32

const (
	reportStarted reportKind = 1 // value: pid
	reportRefused reportKind = 2 // value: errno
	reportEnded   reportKind = 3 // the command itself: ws
	reportEmpty   reportKind = 4 // no child is left; ready for the next command
)

const reportSize = 12

func (r report) encode() []byte {
	b := make([]byte, reportSize)
	binary.LittleEndian.PutUint32(b, uint32(r.kind))
	binary.LittleEndian.PutUint32(b[4:], uint32(r.value))
	binary.LittleEndian.PutUint32(b[8:], r.ws)
	return b
}

func decodeReport(b []byte) report {
	return report{
		kind:  reportKind(binary.LittleEndian.Uint32(b)),
		value: int32(binary.LittleEndian.Uint32(b[4:])),
		ws:    binary.LittleEndian.Uint32(b[8:]),
	}
}

// order is what a supervisor is told to run; its descriptors come with it.
type order struct {
	Path    string
	Argv    []string
	Env     []string
	Dir     string
	UID     uint32
	GID     uint32
	Groups  []uint32
	TTY     bool
	OneUser bool
}

// maxOrder bounds an order: more than the kernel takes as arguments.
const maxOrder = 16 << 20

// supervisors launches commands below supervisors.
type supervisors struct {
	argv  []string
	files int64 // RLIMIT_NOFILE of commands
	cfg   Config
	procs processes
	log   *slog.Logger

	mu     sync.Mutex
	idle   []*supervisor
	live   map[int]bool // pids of supervisors
	closed bool
	wg     sync.WaitGroup

	// forking is read-locked while a supervisor is being started, so that
	// nobody takes it for an orphan before it is in live.
	forking sync.RWMutex
	doomed  doomed
	killing killing
}

func newSupervisors(cfg Config, procs processes) *supervisors {
	return &supervisors{argv: cfg.Supervisor, files: cfg.OpenFiles, cfg: cfg, procs: procs, log: cfg.Log, live: make(map[int]bool)}
}

// warm makes sure that an idle supervisor is there, so that the next command
// does not wait for one to start.
func (s *supervisors) warm() {
	s.mu.Lock()
	enough := s.closed || len(s.idle) > 0
	s.mu.Unlock()
	if enough {
		return
	}
	if v, err := s.spawn(); err == nil {
		s.put(v)
	}
}

func (s *supervisors) take() (*supervisor, error) {
	s.mu.Lock()
	for len(s.idle) > 0 {
		v := s.idle[len(s.idle)-1]
		s.idle = s.idle[:len(s.idle)-1]
		if v.lost.Load() {
			continue
		}
		last := len(s.idle) == 0
		s.mu.Unlock()
		if last {
			// A short command brings its supervisor back before this fires.
			time.AfterFunc(30*time.Millisecond, s.warm)
		}
		return v, nil
	}
	s.mu.Unlock()
	return s.spawn()
}

func (s *supervisors) put(v *supervisor) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || v.lost.Load() || len(s.idle) >= supervisorIdle {
		_ = v.conn.Close()
		return
	}
	s.idle = append(s.idle, v)
}

func (s *supervisors) spawn() (*supervisor, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "supervisor"), os.NewFile(uintptr(pair[1]), "supervisor")
	defer ours.Close()
	defer theirs.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		return nil, err
	}
	s.lockForking()
	defer s.forking.RUnlock()
	pid, ended, err := s.procs.start(s.argv[0], s.argv, &syscall.ProcAttr{
		Dir:   "/",
		Env:   supervisorEnv(s.files, s.cfg.Init),
		Files: []uintptr{null.Fd(), null.Fd(), null.Fd(), theirs.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		conn.Close()
		return nil, err
	}
	v := &supervisor{pool: s, pid: pid, conn: conn.(*net.UnixConn)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = v.conn.Close()
		return nil, os.ErrClosed
	}
	s.live[pid] = true
	s.wg.Go(func() {
		v.listen()
		// Its connection ends before its children become PID 1's: whoever looks
		// for them sooner sees none.
		<-ended
		s.mu.Lock()
		delete(s.live, pid)
		s.mu.Unlock()
		v.gone()
	})
	return v, nil
}

func (s *supervisors) launch(c command, files []int, tty bool) (tree, error) {
	v, err := s.take()
	if err != nil {
		return nil, err
	}
	t, err := v.run(c, files, tty, s.cfg.OneUser)
	var errno syscall.Errno
	if err != nil && !errors.As(err, &errno) {
		// The supervisor was gone (root inside can kill an idle one).
		if v, err = s.spawn(); err == nil {
			t, err = v.run(c, files, tty, s.cfg.OneUser)
		}
	}
	if err != nil && !errors.As(err, &errno) {
		// It did not come up. With a memory limit that is not exhausted there
		// is one reason: no room for its threads.
		err = syscall.EAGAIN
	}
	if err != nil {
		return nil, err
	}
	return t, nil
}

// close ends all supervisors. Their trees must be gone.
func (s *supervisors) close() {
	s.mu.Lock()
	s.closed = true
	for _, v := range s.idle {
		_ = v.conn.Close()
	}
	s.idle = nil
	s.mu.Unlock()
	s.wg.Wait()
}

func (s *supervisors) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// supervisor is one such process.
type supervisor struct {
	pool *supervisors
	pid  int
	conn *net.UnixConn
	lost atomic.Bool

	mu    sync.Mutex
	job   *supervised // what it runs
	spent bool        // it gets no further job
}

// errNoSupervisor is the end of a supervisor before it had its order. What a
// command itself is refused with is a [syscall.Errno].
var errNoSupervisor = errors.New("the supervisor is gone")

// run starts one command and returns when it was started or refused.
func (v *supervisor) run(c command, files []int, tty, oneUser bool) (*supervised, error) {
	body, err := json.Marshal(order{
		Path: c.path, Argv: c.argv, Env: c.env, Dir: c.dir, TTY: tty, OneUser: oneUser,
		UID: c.account.UID, GID: c.account.GID, Groups: c.account.groups,
	})
	if err != nil {
		return nil, err
	}
	if len(body) > maxOrder {
		v.pool.put(v)
		return nil, syscall.E2BIG
	}
	t := &supervised{
		by:     v,
		begun:  make(chan error, 1),
		status: make(chan syscall.WaitStatus, 1),
		empty:  make(chan struct{}),
	}
	v.mu.Lock()
	v.job = t
	v.mu.Unlock()
	if err := v.send(body, files); err != nil {
		_ = v.conn.Close()
		return nil, fmt.Errorf("%w: %v", errNoSupervisor, err) //nolint:errorlint // its number is not the command's
	}
	v.wake()
	if err := <-t.begun; err != nil {
		return nil, err
	}
	return t, nil
}

// send passes an order on with its descriptors, at once where it fits.
func (v *supervisor) send(body []byte, files []int) error {
	msg := binary.LittleEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(len(body)))
	msg = append(msg, body...)
	n, _, err := v.conn.WriteMsgUnix(msg, unix.UnixRights(files...), nil)
	if err == nil && n < len(msg) {
		_, err = v.conn.Write(msg[n:])
	}
	return err
}

// wake lets a supervisor go on that root inside stopped: it has to start the
// command, or to see that nothing of it is left.
func (v *supervisor) wake() {
	if !v.lost.Load() {
		_ = syscall.Kill(v.pid, syscall.SIGCONT)
	}
}

// listen takes the supervisor's reports until it is gone.
func (v *supervisor) listen() {
	defer func() {
		v.lost.Store(true)
		_ = v.conn.Close()
	}()
	// The end of a command and of its tree mostly come together.
	from := bufio.NewReaderSize(v.conn, 4*reportSize)
	buf := make([]byte, reportSize)
	for {
		if _, err := io.ReadFull(from, buf); err != nil {
			return
		}
		v.mu.Lock()
		t := v.job
		v.mu.Unlock()
		if t == nil {
			return
		}
		switch r := decodeReport(buf); r.kind {
		case reportStarted:
			t.main = int(r.value)
			t.begun <- nil
		case reportRefused:
			t.begun <- syscall.Errno(r.value)
			v.release()
		case reportEnded:
			t.status <- syscall.WaitStatus(r.ws)
		case reportEmpty:
			t.settle()
			v.release()
		}
	}
}

func (v *supervisor) release() {
	v.mu.Lock()
	v.job = nil
	spent := v.spent
	v.mu.Unlock()
	if spent {
		_ = v.conn.Close()
		return
	}
	v.pool.put(v)
}

// spend keeps the supervisor from getting another job after t. False when t is
// its job no more.
func (v *supervisor) spend(t *supervised) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.job != t {
		return t.orphaned.Load()
	}
	v.spent = true
	return true
}

// gone settles the job of a supervisor that is not there any more: it was
// closed, or root inside killed it. What it held together belongs to PID 1
// now and is ended, because it can no longer be told apart. The command's tree
// is not gone before that.
func (v *supervisor) gone() {
	v.mu.Lock()
	t := v.job
	v.job = nil
	v.mu.Unlock()
	if t == nil {
		return
	}
	select {
	case t.begun <- io.ErrUnexpectedEOF:
	default:
	}
	t.orphaned.Store(v.pool.cfg.Init)
	close(t.status)
	if !v.pool.cfg.Init {
		t.settle()
		return
	}
	t.endOrphans()
}
