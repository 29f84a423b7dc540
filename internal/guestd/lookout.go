package guestd

import (
	"errors"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// lookEvery is how often a lookout looks. What has ended at two looks has ended
// without a sign: whoever reads from a connection closes it much sooner.
const lookEvery = 200 * time.Millisecond

// lastLooks is how often it still looks when the host is back: two looks find what has
// ended, and one may have come before the end.
const lastLooks = 3

// lookout knows the connections to the host, and while one is kept, closes those
// that have ended without a sign.
//
// The host ends all of them before it keeps this memory, and waits for a while until they
// are closed here. Of one that is open all the same when the memory is written, gVisor
// takes the host's end away and wakes nobody who reads from it, neither in the memory nor
// in the sandbox that goes on (beforeSave of SCMSender, in
// pkg/sentry/socket/unix/transport): of the control connection that would be the last
// that the host hears from this agent, and of any other a place that is never free again.
type lookout struct {
	mu   sync.Mutex
	open map[*net.UnixConn]bool // whether it had ended at the last look
	left int                    // looks until the goroutine ends; 0: there is none, below 0: no bound
	over bool                   // nobody looks any more
	wait sync.WaitGroup
	stop chan struct{} // closed by end
}

func newLookout() *lookout {
	return &lookout{open: make(map[*net.UnixConn]bool), stop: make(chan struct{})}
}

func (l *lookout) add(conn *net.UnixConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
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
	if l.left == 0 && !l.over {
		l.wait.Go(l.run)
	}
	l.left = -1
}

// rest ends the looking, soon.
func (l *lookout) rest() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.left != 0 {
		l.left = lastLooks
	}
}

// end ends the looking for good.
func (l *lookout) end() {
	l.mu.Lock()
	if !l.over {
		l.over = true
		close(l.stop)
	}
	l.mu.Unlock()
	l.wait.Wait()
}

func (l *lookout) run() {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-tick.C:
			if !l.look() {
				return
			}
		}
	}
}

// look closes what had ended at the last look and still is open, and reports whether to
// look again.
func (l *lookout) look() (again bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for conn, before := range l.open {
		now := hasEnded(conn)
		l.open[conn] = now
		if now && before {
			_ = conn.Close()
		}
	}
	if l.left > 0 {
		l.left--
	}
	return l.left != 0
}

// hasEnded reports whether nothing can come or go on a connection any more, and all
// that has come was read.
func hasEnded(conn *net.UnixConn) bool {
	raw, err := conn.SyscallConn()
	if err != nil {
		return true
	}
	ended := false
	err = raw.Control(func(fd uintptr) {
		poll := []unix.PollFd{{Fd: int32(fd)}} // these are told unasked
		n, err := unix.Poll(poll, 0)
		if err != nil || n == 0 || poll[0].Revents&(unix.POLLHUP|unix.POLLERR) == 0 {
			return
		}
		var one [1]byte
		n, _, err = unix.Recvfrom(int(fd), one[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		ended = n <= 0 && !errors.Is(err, unix.EAGAIN)
	})
	return err != nil || ended
}
