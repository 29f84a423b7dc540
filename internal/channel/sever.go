package channel

import (
	"errors"
	"maps"
	"net"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/errs"
)

// severWithin is how long the agent may take to close its end of a connection
// that somebody has, whose other end the host has closed.
const severWithin = 500 * time.Millisecond

// letGoWithin is the same for connections that nobody has: the control connection,
// and spare ones. On a busy host the agent may not run for seconds.
const letGoWithin = 10 * time.Second

// Sever is [Listener.Close] for an agent whose memory is about to be kept. It
// ends every connection, also those that were handed out, and returns when the
// agent has noticed: an agent that is frozen in the middle of a read would go on
// reading for good. One that does so with its control connection would never dial
// again, so Sever is Unavailable when the agent keeps that, or a spare one. What it
// has sent already can still be read from what was handed out, which stays its
// owner's to close.
func (l *Listener) Sever() (err error) {
	l.closing.Do(func() {
		err = l.drain()
		l.mu.Lock()
		close(l.closed)
		_ = l.socket.Close()
		fresh, given := slices.Collect(maps.Keys(l.fresh)), slices.Collect(maps.Keys(l.given))
		l.mu.Unlock()
		// The agent reads the end, and closes its own, which is the sign of it.
		for _, conn := range slices.Concat(fresh, given) {
			_ = conn.(*net.UnixConn).CloseWrite()
		}
		deadline := time.Now().Add(severWithin)
		cut := false
		for _, conn := range given {
			if !hangsUp(conn, deadline) {
				// It has something to say first: it finds nobody to say it to.
				_ = conn.(*net.UnixConn).CloseRead()
				cut = true
			}
		}
		if cut {
			time.Sleep(severWithin / 10)
		}
		deadline = time.Now().Add(l.letGoWithin)
		for _, conn := range fresh {
			if !hangsUp(conn, deadline) {
				err = errHeld
			}
		}
		l.mu.Lock()
		for conn := range l.fresh {
			conn.Close()
		}
		clear(l.fresh)
		l.mu.Unlock()
	})
	l.wg.Wait()
	return err
}

// drain has nobody connect any more, which a close of the socket alone does not: a
// program that is being started has a copy of it until it is executed. And it takes the
// connections that nobody has accepted yet: the end of the socket would be theirs too,
// but nobody would wait until the agent has noticed it.
func (l *Listener) drain() error {
	close(l.deaf)
	if err := l.socket.SetDeadline(time.Now()); err != nil {
		return err
	}
	<-l.drained
	raw, err := l.socket.SyscallConn()
	if err != nil {
		return err
	}
	var taken error
	err = raw.Control(func(fd uintptr) {
		taken = os.NewSyscallError("shutdown", unix.Shutdown(int(fd), unix.SHUT_RD))
		for taken == nil {
			var conn net.Conn
			if conn, taken = acceptNow(int(fd)); taken == nil {
				l.hold(conn)
			}
		}
	})
	if errors.Is(taken, unix.EAGAIN) {
		taken = nil
	}
	return errors.Join(err, taken)
}

// acceptNow accepts a connection of a socket; EAGAIN when there is none.
func acceptNow(socket int) (net.Conn, error) {
	fd, _, err := unix.Accept4(socket, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("accept", err)
	}
	f := os.NewFile(uintptr(fd), "connection")
	defer f.Close()
	return net.FileConn(f)
}

// errHeld says that the agent may be in the middle of a read.
var errHeld = errs.E(errs.Unavailable, "the sandbox's agent does not let go of its channel").RetryAfter(time.Second)

// hangsUp waits for hungUp.
func hangsUp(conn net.Conn, deadline time.Time) bool {
	for !hungUp(conn) {
		if !time.Now().Before(deadline) {
			return false
		}
		time.Sleep(time.Millisecond)
	}
	return true
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
