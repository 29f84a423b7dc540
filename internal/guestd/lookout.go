package guestd

import (
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// lookEvery is how often a lookout looks. What has ended at two looks has ended
// without a sign: whoever reads from a connection closes it much sooner.
const lookEvery = 200 * time.Millisecond

// lookout knows the connections to the host, and while one is kept, closes those
// that have ended without a sign.
//
// The host ends all of them before it keeps this memory, and waits until they are
// closed here. Of one that is open all the same when the memory is written, gVisor
// takes the host's end away and wakes nobody who reads from it, neither in the memory
// nor in the sandbox that goes on (beforeSave of SCMSender, in
// pkg/sentry/socket/unix/transport): of the control connection that would be the last
// that the host hears from this agent.
type lookout struct {
	mu   sync.Mutex
	open map[*net.UnixConn]bool // whether it had ended at the last look
	stop chan struct{}          // closed to end the looking; nil: nobody looks
}

func (l *lookout) add(conn *net.UnixConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == nil {
		l.open = make(map[*net.UnixConn]bool)
	}
	l.open[conn] = false
}

func (l *lookout) remove(conn *net.UnixConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, conn)
}

// keep begins to look, if nobody does.
func (l *lookout) keep() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stop != nil {
		return
	}
	stop := make(chan struct{})
	l.stop = stop
	go func() {
		tick := time.NewTicker(lookEvery)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				l.look()
			}
		}
	}()
}

// rest ends the looking.
func (l *lookout) rest() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stop != nil {
		close(l.stop)
		l.stop = nil
	}
}

func (l *lookout) look() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for conn, before := range l.open {
		now := hasEnded(conn)
		l.open[conn] = now
		if now && before {
			_ = conn.Close()
		}
	}
}

// hasEnded reports whether nothing can come or go on a connection any more.
func hasEnded(conn *net.UnixConn) bool {
	raw, err := conn.SyscallConn()
	if err != nil {
		return true
	}
	ended := false
	err = raw.Control(func(fd uintptr) {
		poll := []unix.PollFd{{Fd: int32(fd)}} // these are told unasked
		n, err := unix.Poll(poll, 0)
		ended = err == nil && n == 1 && poll[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0
	})
	return err != nil || ended
}
