package proc

import (
	"context"
	"errors"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
	"github.com/cubbyhq/cubby/internal/errs"
)

// terminalDrain bounds how long the output of a terminal is awaited after its
// command ended: what the line discipline holds cannot be counted.
const terminalDrain = 50 * time.Millisecond

// terminalHolds is more than a terminal holds for its reader, on Linux and in
// gVisor.
const terminalHolds = 256 << 10

// stdio is the agent's end of a command's descriptors.
type stdio struct {
	*Files
	in   *stdin // nil: the command reads nothing
	outs []*outlet
	tty  *os.File // master, nil without a terminal
}

// openStdio makes the descriptors that start asks for, out of files. On error
// nothing is left open.
func openStdio(start *guestv1.ExecStart, files *Files) (_ *stdio, err error) {
	s := &stdio{Files: files}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if size := start.GetPty(); size != nil {
		return s, s.openTerminal(size)
	}
	if start.GetStdin() {
		ours, err := s.Pipe(0, false)
		if err != nil {
			return s, err
		}
		s.in = newStdin(ours, false)
	}
	for i, name := range []Stream{Stdout, Stderr} {
		ours, err := s.Pipe(i+1, true)
		if err != nil {
			return s, err
		}
		s.outs = append(s.outs, &outlet{stream: name, file: ours, done: make(chan struct{})})
	}
	return s, nil
}

func (s *stdio) openTerminal(size *guestv1.WindowSize) error {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return os.NewSyscallError("open /dev/ptmx", err)
	}
	s.tty = os.NewFile(uintptr(fd), "ptmx")
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return os.NewSyscallError("unlock terminal", err)
	}
	n, err := unix.IoctlGetUint32(fd, unix.TIOCGPTN)
	if err != nil {
		return os.NewSyscallError("name terminal", err)
	}
	slave, err := unix.Open("/dev/pts/"+strconv.Itoa(int(n)), unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("open terminal", err)
	}
	s.fds = []int{slave, slave, slave}
	s.in = newStdin(s.tty, true)
	s.outs = []*outlet{{stream: Stdout, file: s.tty, tty: true, done: make(chan struct{})}}
	return s.resize(size)
}

// owner gives the terminal to the command's user, so that it can open its tty
// by name. Where the agent may not, the descriptors still work.
func (s *stdio) owner(a Account) {
	if s.tty != nil {
		_ = unix.Fchown(s.fds[0], int(a.UID), -1)
	}
}

func (s *stdio) resize(size *guestv1.WindowSize) error {
	if s.tty == nil {
		return errs.E(errs.WrongState, "the command has no terminal")
	}
	raw, err := s.tty.SyscallConn()
	if err != nil {
		return err
	}
	const largest = 1 << 15
	ws := &unix.Winsize{Col: uint16(min(size.GetCols(), largest)), Row: uint16(min(size.GetRows(), largest))}
	var ioctl error
	if err := raw.Control(func(fd uintptr) { ioctl = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, ws) }); err != nil {
		return err
	}
	return ioctl
}

func (s *stdio) close() {
	s.Close()
	if s.in != nil {
		s.in.close()
	}
	for _, o := range s.outs {
		o.file.Close()
	}
	if s.tty != nil {
		s.tty.Close()
	}
}

// outlet carries one stream of a command into its output.
type outlet struct {
	stream Stream
	file   *os.File
	tty    bool
	done   chan struct{} // closed when copy returned
	ended  bool          // copy saw the end; set before done
}

// outletBuffers holds the buffers of copy.
type outletBuffers struct{ pool sync.Pool }

func (b *outletBuffers) get() *[]byte {
	if p, ok := b.pool.Get().(*[]byte); ok {
		return p
	}
	p := make([]byte, 32<<10)
	return &p
}

// copy moves bytes until the stream ends or drain interrupts it.
func (o *outlet) copy(ctx context.Context, to *Output, buffers *outletBuffers, now func() time.Time) {
	defer close(o.done)
	buf := buffers.get()
	defer buffers.pool.Put(buf)
	for {
		n, err := o.file.Read(*buf)
		if n > 0 && to.Write(ctx, o.stream, (*buf)[:n], now()) != nil {
			return
		}
		if err != nil {
			o.ended = err == io.EOF || errors.Is(err, unix.EIO)
			return
		}
	}
}

// drain takes over what the command left in the pipe or terminal when it
// ended, and nothing that others write much later. It waits for room like copy
// does.
func (o *outlet) drain(ctx context.Context, to *Output, cfg Config) {
	interrupt := func() { _ = o.file.SetReadDeadline(time.Unix(1, 0)) }
	if o.tty {
		enough := cfg.Uptime.AfterFunc(terminalDrain, interrupt)
		<-o.done
		enough.Stop()
	} else {
		interrupt()
		<-o.done
	}
	if o.ended {
		return
	}
	// An interrupted copy has not read what came while it was not scheduled.
	_ = o.file.SetReadDeadline(time.Time{})
	_ = to.Write(ctx, o.stream, o.remains(), cfg.Now())
}

// remains reads what is there now and does not wait for more.
func (o *outlet) remains() (left []byte) {
	raw, err := o.file.SyscallConn()
	if err != nil {
		return nil
	}
	_ = raw.Read(func(fd uintptr) bool {
		most := terminalHolds // who is left may write all the time
		if !o.tty {
			most, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ)
		}
		if err != nil || most <= 0 {
			return true
		}
		buf := make([]byte, most)
		for len(left) < most {
			n, err := unix.Read(int(fd), buf[len(left):])
			if err == unix.EINTR {
				continue
			}
			if err != nil || n <= 0 {
				break
			}
			left = buf[:len(left)+n]
		}
		return true
	})
	return left
}

// discard reads on for children that outlived the command, so that they
// neither block nor die of a broken pipe. It returns when the last is gone or
// ctx ends.
func (o *outlet) discard(ctx context.Context) {
	defer o.file.Close()
	if o.ended {
		return
	}
	_ = o.file.SetReadDeadline(time.Time{})
	stop := context.AfterFunc(ctx, func() { _ = o.file.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	_, _ = io.Copy(io.Discard, o.file)
}

// stdin takes what the host writes, at offsets.
type stdin struct {
	tty  bool
	file *os.File
	turn chan struct{} // holds a token while nobody writes

	mu     sync.Mutex
	offset int64
	ended  bool
}

func newStdin(f *os.File, tty bool) *stdin {
	s := &stdin{tty: tty, file: f, turn: make(chan struct{}, 1)}
	s.turn <- struct{}{}
	return s
}

// write passes data on from where the last write ended and returns the
// offset reached, also with an error. Bytes before it are skipped, a gap is
// errs.Invalid; errs.WrongState when the command reads no more.
func (s *stdin) write(ctx context.Context, offset int64, data []byte, eof bool) (int64, error) {
	select {
	case <-ctx.Done():
		return s.reached(), context.Cause(ctx)
	case <-s.turn:
	}
	defer func() { s.turn <- struct{}{} }()

	at := s.reached()
	if offset < 0 || offset > at {
		return at, errs.E(errs.Invalid, "standard input was written up to %d, not %d", at, offset)
	}
	data = data[min(int64(len(data)), at-offset):]
	if s.isEnded() {
		if len(data) > 0 {
			return at, errs.E(errs.WrongState, "standard input is closed")
		}
		return at, nil
	}
	if len(data) > 0 {
		n, err := s.pass(ctx, data)
		at = s.advance(n)
		if err != nil {
			return at, err
		}
	}
	if !eof {
		return at, nil
	}
	if s.tty {
		// What a person types to say so; the terminal itself stays open. Until
		// it is passed on, the end can be said again.
		if _, err := s.pass(ctx, []byte{4}); err != nil && !errors.Is(err, errs.WrongState) {
			return at, err
		}
		s.end()
		return at, nil
	}
	s.end()
	if err := s.file.Close(); !errors.Is(err, os.ErrClosed) {
		return at, err
	}
	return at, nil // the command had all it wanted, and has ended
}

func (s *stdin) pass(ctx context.Context, data []byte) (int, error) {
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = s.file.SetWriteDeadline(time.Unix(1, 0))
		close(interrupted)
	})
	n, err := s.file.Write(data)
	if !stop() {
		<-interrupted // or its deadline would be that of the next write
		_ = s.file.SetWriteDeadline(time.Time{})
	}
	switch {
	case err == nil:
		return n, nil
	case ctx.Err() != nil:
		return n, context.Cause(ctx)
	case errors.Is(err, unix.EPIPE), errors.Is(err, unix.EIO), errors.Is(err, os.ErrClosed):
		return n, errs.E(errs.WrongState, "the command does not read its standard input any more").Because(err)
	}
	return n, err
}

func (s *stdin) reached() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.offset
}

func (s *stdin) advance(n int) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.offset += int64(n)
	return s.offset
}

// end says that nothing more is taken.
func (s *stdin) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
}

func (s *stdin) isEnded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// close ends standard input when the command is gone: a write that waits
// returns.
func (s *stdin) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	if !s.tty {
		s.file.Close()
	}
}
