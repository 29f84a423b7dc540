package guestd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

// The kinds of connection that the agent opens to the host.
const (
	kindControl = "control"
	kindPool    = "pool"
	kindEgress  = "egress"
	kindConnect = "connect"
	kindResolve = "resolve"
)

const (
	spareConns   = 4   // pool connections that wait for the host
	spareAtOnce  = 2   // how many of them do not wait for a lull
	maxPoolConns = 768 // spare and used: commands, files, and connections to ports, which are most
	dialTimeout  = 5 * time.Second

	// lull is how long the host has to be content before the other spare connections
	// are made: whatever it asked for is not slowed down by them.
	lull = 20 * time.Millisecond

	firstRedial = 4 * time.Millisecond
	lastRedial  = time.Second
	// settled is how long a connection holds whose end says nothing against the
	// host: a sandbox that sleeps and wakes often is there at once each time.
	settled = 100 * time.Millisecond
	// hastyRedials are as quick as the first: about a quarter of a second.
	hastyRedials = 64
)

// uplink keeps the agent connected to the host. Its pool connections come out
// of Accept: to an http.Server it is a listener.
type uplink struct {
	socket string
	secret atomic.Pointer[string]
	log    *slog.Logger
	// returned is called whenever the host is there again, before it can ask
	// for anything. Set it before run; nil for nothing.
	returned func()

	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once

	hasty atomic.Int32 // how many of the next redials are quick
	ends  *lookout

	mu     sync.Mutex
	spare  int
	total  int
	refill chan struct{} // a token when spare connections may be missing
	want   int           // how many the host asked for beyond spareConns
}

func newUplink(socket, secret string, log *slog.Logger) *uplink {
	u := &uplink{
		socket: socket, log: log,
		conns:  make(chan net.Conn),
		closed: make(chan struct{}),
		refill: make(chan struct{}, 1),
		ends:   newLookout(),
	}
	u.secret.Store(&secret)
	return u
}

// knows reports whether a secret is the one that proves who dials.
func (u *uplink) knows(secret string) bool { return *u.secret.Load() == secret }

// rekey makes another secret prove who dials. Connections that are open stay.
func (u *uplink) rekey(secret string) { u.secret.Store(&secret) }

// hostLeaves prepares for that. The next redials are quick, since while it is
// away this process does not run, or hardly; and the end of a connection is noticed also
// when nothing tells of it.
func (u *uplink) hostLeaves() {
	u.hasty.Store(hastyRedials)
	u.ends.keep()
}

// hostIsBack ends what hostLeaves began.
func (u *uplink) hostIsBack() { u.ends.rest() }

// run keeps the control connection and the pool up until ctx ends.
func (u *uplink) run(ctx context.Context) {
	wait := firstRedial
	for ctx.Err() == nil {
		control, err := u.dial(ctx, kindControl)
		if err == nil {
			began := time.Now()
			err = u.attached(ctx, control)
			// Whatever held for a while deserves a quick return.
			if time.Since(began) > settled {
				wait = firstRedial
			}
		}
		if ctx.Err() == nil {
			u.log.Debug("not connected to the host", "err", err)
		}
		if u.hasty.Load() > 0 {
			u.hasty.Add(-1)
			wait = firstRedial
		}
		select {
		case <-ctx.Done():
		case <-time.After(jittered(wait)):
		}
		wait = min(2*wait, lastRedial)
	}
}

// jittered is a wait of half to one and a half times as long: when a daemon comes
// back, the agents of all its sandboxes do not dial it in the same moment.
func jittered(wait time.Duration) time.Duration { return wait/2 + rand.N(wait) }

// attached serves one control connection until it ends.
func (u *uplink) attached(ctx context.Context, control *net.UnixConn) error {
	ctx, cancel := context.WithCancel(ctx)
	var pool sync.WaitGroup
	defer pool.Wait()
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = control.Close() })
	defer stop()
	defer func() { _ = u.hangUp(control) }()
	u.mu.Lock()
	u.want = 0
	u.mu.Unlock()
	if u.returned != nil {
		u.returned()
	}
	pool.Go(func() { u.fill(ctx) })

	lines := bufio.NewReaderSize(control, 256)
	for {
		line, err := lines.ReadSlice('\n')
		if err != nil {
			return err
		}
		n, err := parseMore(string(line))
		if err != nil {
			return err
		}
		u.mu.Lock()
		u.want = min(u.want+n, maxPoolConns)
		u.mu.Unlock()
		u.wake()
	}
}

// parseMore reads the host's "more <n>".
func parseMore(line string) (int, error) {
	arg, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "more ")
	n, err := strconv.Atoi(arg)
	if !ok || err != nil || n < 1 {
		return 0, fmt.Errorf("malformed control line %q", line)
	}
	return n, nil
}

func (u *uplink) wake() {
	select {
	case u.refill <- struct{}{}:
	default:
	}
}

// fill keeps spare pool connections ready while the host is there.
func (u *uplink) fill(ctx context.Context) {
	quiet := time.NewTimer(lull)
	defer quiet.Stop()
	for level := spareAtOnce; ; {
		if !u.fillTo(ctx, level) {
			return
		}
		if level < spareConns {
			quiet.Reset(lull)
		}
		select {
		case <-ctx.Done():
			return
		case <-u.refill:
			level = spareAtOnce
		case <-quiet.C:
			level = spareConns
		}
	}
}

// fillTo makes spare connections until there are so many, and those that the host
// asked for; false when it is to end.
func (u *uplink) fillTo(ctx context.Context, level int) bool {
	wait := firstRedial
	for u.reserve(level) {
		conn, err := u.dial(ctx, kindPool)
		if err != nil {
			u.unreserve()
			select {
			case <-ctx.Done():
			case <-time.After(jittered(wait)):
			}
			wait = min(2*wait, lastRedial)
			if ctx.Err() != nil {
				return false
			}
			continue
		}
		wait = firstRedial
		c := &poolConn{UnixConn: conn, up: u}
		select {
		case u.conns <- c:
		case <-u.closed:
			_ = c.Close()
			return false
		}
	}
	return true
}

// reserve books a connection that is to be dialled, if there are fewer spare ones
// than level or the host asked for more.
func (u *uplink) reserve(level int) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.total >= maxPoolConns || u.spare >= level && u.want == 0 {
		return false
	}
	if u.spare >= spareConns {
		u.want--
	}
	u.spare++
	u.total++
	return true
}

func (u *uplink) unreserve() { u.leave(true) }

// leave books that a connection is not spare any more, or not at all.
func (u *uplink) leave(wasSpare bool) {
	u.mu.Lock()
	u.total--
	if wasSpare {
		u.spare--
	}
	u.mu.Unlock()
	u.wake()
}

// dial opens one connection and proves who it is. Close it with hangUp.
func (u *uplink) dial(ctx context.Context, kind string) (*net.UnixConn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	var d net.Dialer
	address, done, err := shortAddress(u.socket)
	if err != nil {
		return nil, err
	}
	defer done()
	conn, err := d.DialContext(ctx, "unix", address)
	if err != nil {
		return nil, err
	}
	_ = conn.SetWriteDeadline(time.Now().Add(dialTimeout))
	if _, err := fmt.Fprintf(conn, "CUBBY%d %s %s\n", sandbox.AgentProtocol, *u.secret.Load(), kind); err != nil {
		conn.Close()
		return nil, err
	}
	_ = conn.SetWriteDeadline(time.Time{})
	dialled := conn.(*net.UnixConn)
	u.ends.add(dialled)
	return dialled, nil
}

// hangUp closes a connection that was dialled.
func (u *uplink) hangUp(conn *net.UnixConn) error {
	u.ends.remove(conn)
	return conn.Close()
}

// shortAddress returns a name for a socket path that the kernel's 107 bytes
// can hold. It is good until done is called.
func shortAddress(path string) (address string, done func(), err error) {
	const longest = 107
	if len(path) <= longest {
		return path, func() {}, nil
	}
	dir, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir, filepath.Base(path)), func() { _ = unix.Close(dir) }, nil
}

// Accept implements net.Listener.
func (u *uplink) Accept() (net.Conn, error) {
	select {
	case c := <-u.conns:
		return c, nil
	case <-u.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (u *uplink) Close() error {
	u.once.Do(func() { close(u.closed) })
	return nil
}

// Addr implements net.Listener.
func (u *uplink) Addr() net.Addr { return &net.UnixAddr{Name: u.socket, Net: "unix"} }

// poolConn is a pool connection. It is spare until the host says something.
type poolConn struct {
	*net.UnixConn
	up     *uplink
	spoken sync.Once
	closed sync.Once
	used   bool // guarded by spoken
}

func (c *poolConn) Read(p []byte) (int, error) {
	n, err := c.UnixConn.Read(p)
	if n > 0 {
		c.spoken.Do(func() {
			c.used = true
			c.up.mu.Lock()
			c.up.spare--
			c.up.mu.Unlock()
			c.up.wake()
		})
	}
	return n, err
}

func (c *poolConn) Close() error {
	err := net.ErrClosed
	c.closed.Do(func() {
		err = c.up.hangUp(c.UnixConn)
		c.spoken.Do(func() {}) // from here on it does not become used
		c.up.leave(!c.used)
	})
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
