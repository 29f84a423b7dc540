package channel

import (
	"errors"
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
	_ = withFD(conn, func(fd int) error { return unix.Shutdown(fd, unix.SHUT_RDWR) })
	return conn.Close()
}

// stale reports whether the agent closed a connection that nobody used yet.
func stale(conn net.Conn) bool {
	err := withFD(conn, func(fd int) error {
		n, _, err := unix.Recvfrom(fd, make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
		if n > 0 {
			return unix.EPROTO // it has nothing to say
		}
		return err
	})
	// Nothing to read is what a quiet connection looks like.
	return !errors.Is(err, unix.EAGAIN)
}

// hungUp reports whether nothing can come or go on a connection any more, or it
// is closed.
func hungUp(conn net.Conn) bool {
	gone := false
	err := withFD(conn, func(fd int) error {
		fds := []unix.PollFd{{Fd: int32(fd)}}
		n, err := unix.Poll(fds, 0)
		gone = err == nil && n > 0 && fds[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0
		return nil
	})
	return err != nil || gone
}

// withFD calls do with the descriptor of a socket, and returns its error.
func withFD(socket any, do func(fd int) error) error {
	raw, err := socket.(syscall.Conn).SyscallConn()
	if err != nil {
		return err
	}
	var done error
	if err := raw.Control(func(fd uintptr) { done = do(int(fd)) }); err != nil {
		return err
	}
	return done
}
