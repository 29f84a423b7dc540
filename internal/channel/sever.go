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
		if cause := l.drain(); cause != nil {
			err = held().Because(cause)
		}
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
				err = held()
			}
		}
		l.mu.Lock()
		for conn := range l.fresh {
			_ = hangUp(conn)
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
	if err := shut(l.socket); err != nil {
		return err
	}
	err := withFD(l.socket, func(fd int) error {
		for n := 0; ; n++ {
			conn, err := acceptNow(fd)
			if err != nil {
				return err
			}
			if n >= maxDrained || !l.hold(conn) {
				_ = hangUp(conn) // a stranger's: an agent dials so many one after another
				continue
			}
			l.wg.Go(func() { l.greet(conn, func() {}) })
		}
	})
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINVAL) { // there are no more
		return nil
	}
	return err
}

// maxDrained bounds the connections that are waited for at the end of a socket.
const maxDrained = maxPool + maxPending

// shut has a socket refuse connections.
func shut(socket *net.UnixListener) error {
	return withFD(socket, func(fd int) error {
		return os.NewSyscallError("shutdown", unix.Shutdown(fd, unix.SHUT_RD))
	})
}

// acceptNow accepts a connection of a socket; EAGAIN when there is none.
func acceptNow(socket int) (*net.UnixConn, error) {
	fd, _, err := unix.Accept4(socket, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("accept", err)
	}
	f := os.NewFile(uintptr(fd), "connection")
	defer f.Close()
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	return conn.(*net.UnixConn), nil
}

// held says that the agent may be in the middle of a read.
func held() *errs.Error {
	return errs.E(errs.Unavailable, "the sandbox's agent does not let go of its channel").RetryAfter(time.Second)
}

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
