package channel

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

// givenConn is a connection that was handed out.
type givenConn struct {
	*net.UnixConn
	from *Listener
}

func (c givenConn) Close() error {
	c.from.taken(c.UnixConn)
	return hangUp(c.UnixConn)
}

// egressConn gives its slot back when it is closed.
type egressConn struct {
	givenConn
	door    sandbox.Door
	release func()
}

func (c *egressConn) Close() error {
	err := c.givenConn.Close()
	c.release()
	return err
}

// hangUp closes a connection, and has the agent notice it at once: of a connection that
// is only closed, a program that is being started has a copy until it is executed. Both
// directions end in one step, since the end of one alone says something else.
func hangUp(conn net.Conn) error {
	if raw, err := conn.(syscall.Conn).SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RDWR) })
	}
	return conn.Close()
}

// stale reports whether the agent closed a connection that nobody used yet.
func stale(conn net.Conn) bool {
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return true
	}
	ended := false
	err = raw.Control(func(fd uintptr) {
		var b [1]byte
		n, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		// Nothing to read is what a quiet connection looks like.
		ended = err != unix.EAGAIN || n > 0
	})
	return err != nil || ended
}

// hungUp reports whether nothing can come or go on a connection any more, or it
// is closed.
func hungUp(conn net.Conn) bool {
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return true
	}
	gone := false
	err = raw.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd)}}
		n, err := unix.Poll(fds, 0)
		gone = err == nil && n > 0 && fds[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0
	})
	return err != nil || gone
}
