// Package relay carries bytes from one connection to another. A connection on
// which nothing comes costs no buffer, one that is fast gets a large one, and
// of the large ones there are few: a thousand connections whose readers stand
// still hold what small buffers take.
package relay

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// small holds a record of TLS with what encryption adds to its 16 KiB: a
	// client that writes one after the other would cost two reads and two
	// writes for each, the second of a few bytes.
	small = 18 << 10
	full  = 16 << 10  // who writes as much at once, writes more
	large = 256 << 10 // for streams
	// maxLarge bounds the large buffers that are in use at once, in the whole
	// process.
	maxLarge = 32
)

var (
	smalls = sync.Pool{New: func() any { return new([small]byte) }}
	larges = sync.Pool{New: func() any { return new([large]byte) }}
	inUse  atomic.Int32 // large buffers
)

// Copy copies until from ends, which is no error, or one of the two fails. It
// returns how much was written. from should be a connection of the kernel's, as
// *net.TCPConn and *net.UnixConn are; from any other it copies with a buffer
// that it holds all the time.
func Copy(to io.Writer, from net.Conn) (int64, error) {
	kernel, ok := from.(syscall.Conn)
	if !ok {
		return io.CopyBuffer(writer{to}, reader{from}, make([]byte, small))
	}
	raw, err := kernel.SyscallConn()
	if err != nil {
		return 0, err
	}
	var written int64
	s := source{raw: raw}
	for {
		got, err := s.next()
		if err != nil || len(got) == 0 {
			return written, err
		}
		n, err := to.Write(got)
		written += int64(n)
		s.buf.give()
		if err != nil {
			return written, err
		}
	}
}

// writer and reader hide what io.CopyBuffer would use instead of the buffer.
type (
	writer struct{ io.Writer }
	reader struct{ io.Reader }
)

// source reads a connection into buffers that it has only while there is
// something in them.
type source struct {
	raw  syscall.RawConn
	fast bool // the last read was of a stream
	buf  buffer
	n    int
	err  error
}

// next waits for bytes and returns them; buf is to be given back after use.
// None and no error is the end.
func (s *source) next() ([]byte, error) {
	err := s.raw.Read(s.try)
	if err == nil && s.err != nil {
		err = os.NewSyscallError("read", s.err)
	}
	if err != nil || s.n <= 0 {
		return nil, err
	}
	return s.buf.bytes()[:s.n], nil
}

// try reads once; false when nothing is there yet.
func (s *source) try(fd uintptr) bool {
	s.buf = take(s.fast)
	for {
		if s.n, s.err = unix.Read(int(fd), s.buf.bytes()); !errors.Is(s.err, unix.EINTR) {
			break
		}
	}
	if s.n <= 0 {
		s.buf.give()
	} else {
		s.fast = s.n >= full
	}
	return !errors.Is(s.err, unix.EAGAIN)
}

// buffer is one of the two, or none.
type buffer struct {
	small *[small]byte
	large *[large]byte
}

// take returns a small buffer, or a large one that is wished for and left.
func take(wantLarge bool) buffer {
	if wantLarge {
		if inUse.Add(1) <= maxLarge {
			return buffer{large: larges.Get().(*[large]byte)}
		}
		inUse.Add(-1)
	}
	return buffer{small: smalls.Get().(*[small]byte)}
}

func (b *buffer) bytes() []byte {
	if b.large != nil {
		return b.large[:]
	}
	return b.small[:]
}

func (b *buffer) give() {
	switch {
	case b.large != nil:
		larges.Put(b.large)
		inUse.Add(-1)
	case b.small != nil:
		smalls.Put(b.small)
	}
	*b = buffer{}
}

// closing is how many milliseconds pass at most between the two halves of a close:
// gVisor ends what a program sends before it closes the host's socket.
const closing = 10

// Gone reports whether the other side of a connection has closed it whole, and
// not only ended what it sends: after the end that [Copy] returned without an
// error it tells a side that broke off from one that was done.
func Gone(conn net.Conn) bool { return hungUp(conn, closing) }

// hungUp is Gone within some milliseconds.
func hungUp(conn net.Conn, within int) bool { return happened(conn, unix.POLLHUP, within) }

// Ended reports whether the other side of a connection has ended what it sends,
// also while bytes of it wait to be read.
func Ended(conn net.Conn) bool { return happened(conn, unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR, 0) }

// happened reports whether one of some events is true of a connection, or becomes
// so within some milliseconds.
func happened(conn net.Conn, events int16, within int) bool {
	kernel, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := kernel.SyscallConn()
	if err != nil {
		return false
	}
	so := false
	err = raw.Control(func(fd uintptr) {
		poll := []unix.PollFd{{Fd: int32(fd), Events: events}}
		n, err := unix.Poll(poll, within)
		so = err == nil && n == 1 && poll[0].Revents&events != 0
	})
	return err == nil && so
}
