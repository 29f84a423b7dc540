// Package channel is the host's end of the connection to a guest agent: one
// UNIX socket per sandbox, on which the host listens and the agent dials. The
// agent keeps one control connection and a pool of plain connections ready;
// the host takes one of the pool whenever it wants to speak, asks for more
// over the control connection, and receives the sandbox's egress streams.
//
// Root inside a sandbox can reach the socket, so every connection starts with
// one line that proves knowledge of the sandbox's secret; what does not, or is
// slow about it, is closed. The package speaks no HTTP and knows no driver.
package channel

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Bounds of one sandbox's connections.
const (
	maxPool     = 256  // waiting to be dialled; the agent bounds those in use
	maxEgress   = 1280 // waiting or handed out; the agent opens fewer, and closes some before we do
	maxPending  = 64   // that have not proven yet who they are
	helloWithin = 2 * time.Second
)

// Listener is the host's end of one sandbox's channel. Its methods are safe
// for concurrent use.
type Listener struct {
	socket *net.UnixListener
	log    *slog.Logger

	pool    chan net.Conn
	streams chan *egressConn
	egress  chan struct{} // a token for each egress stream that is open
	pending chan struct{} // a token for each connection without hello

	deaf    chan struct{} // closed when no connection is to be accepted any more
	drained chan struct{} // closed when none is
	closed  chan struct{}
	closing sync.Once
	wg      sync.WaitGroup

	mu      sync.Mutex
	secrets []string              // each is good; see Rekey
	control *control              // nil: the agent is away
	arrived chan struct{}         // closed when control is set; replaced when it is lost
	foreign chan struct{}         // closed when an agent of an unknown version is refused; replaced when control is set
	version foreignVersion        // of that agent; while foreign is closed
	fresh   map[net.Conn]struct{} // accepted and not handed out
	given   map[net.Conn]struct{} // handed out and not closed
	waiting int                   // Dial calls that found the pool empty

	letGoWithin time.Duration // of Sever
}

// control is a live control connection.
type control struct {
	conn net.Conn
	gone chan struct{}
}

// Listen replaces a stale socket file at path and accepts connections that
// know secret, in the background, until Close. The mode and the owner of path
// are the caller's matter.
func Listen(path, secret string, log *slog.Logger) (*Listener, error) {
	if secret == "" {
		return nil, errs.E(errs.Internal, "a guest channel needs a secret")
	}
	socket, err := listenUnix(path)
	if err != nil {
		return nil, fmt.Errorf("guest channel: %w", err)
	}
	l := &Listener{
		socket:  socket,
		secrets: []string{secret},
		log:     log,
		pool:    make(chan net.Conn, maxPool),
		streams: make(chan *egressConn),
		egress:  make(chan struct{}, maxEgress),
		pending: make(chan struct{}, maxPending),
		deaf:    make(chan struct{}),
		drained: make(chan struct{}),
		closed:  make(chan struct{}),
		arrived: make(chan struct{}),
		foreign: make(chan struct{}),
		fresh:   make(map[net.Conn]struct{}),
		given:   make(map[net.Conn]struct{}),

		letGoWithin: letGoWithin,
	}
	l.wg.Go(l.accept)
	return l, nil
}

func listenUnix(path string) (*net.UnixListener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	// It is bound through its directory: the kernel takes 107 bytes of a path,
	// and shows what it was given to whoever is connected, inside too.
	dir, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: filepath.Dir(path), Err: err}
	}
	defer func() { _ = unix.Close(dir) }()
	address := fmt.Sprintf("/proc/self/fd/%d/%s", dir, filepath.Base(path))
	socket, err := net.ListenUnix("unix", &net.UnixAddr{Name: address, Net: "unix"})
	if err != nil {
		return nil, err
	}
	// The file stays: a listener of the next daemon may be there by then.
	socket.SetUnlinkOnClose(false)
	return socket, nil
}

func (l *Listener) accept() {
	defer close(l.drained)
	for {
		// Strangers that say nothing must not cost more than their bound.
		select {
		case l.pending <- struct{}{}:
		case <-l.deaf:
			return
		}
		conn, err := l.socket.AcceptUnix()
		if err != nil {
			<-l.pending
			select {
			case <-l.deaf:
				return
			case <-time.After(10 * time.Millisecond):
				// Out of descriptors: they come back.
				l.log.Warn("guest channel does not accept", "err", err)
				continue
			}
		}
		if !l.hold(conn) {
			<-l.pending
			_ = hangUp(conn)
			return
		}
		l.wg.Go(func() { l.greet(conn, func() { <-l.pending }) })
	}
}

// greet lets a connection in that says within its time who it is, and calls said then.
func (l *Listener) greet(conn *net.UnixConn, said func()) {
	kind, err := readHello(conn, l.known, time.Now().Add(helloWithin))
	said()
	if err != nil {
		l.log.Debug("guest channel refused a connection", "err", err)
		if v, ok := errors.AsType[foreignVersion](err); ok {
			l.refuse(v)
		}
		l.drop(conn)
		return
	}
	l.admit(conn, kind)
}

// Rekey makes the agent known by another secret. From now on either is good, and
// when the returned function is called, the new one alone: call it when the agent
// is known to have the new one. Connections that were proven stay.
func (l *Listener) Rekey(secret string) (done func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.secrets = append(l.secrets, secret)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.secrets = []string{secret}
	}
}

// known are the secrets that are good.
func (l *Listener) known() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.secrets)
}

// hold notes a connection as ours to close; false when the listener is closed.
func (l *Listener) hold(conn net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.closed:
		return false
	default:
	}
	l.fresh[conn] = struct{}{}
	return true
}

// handOut gives a connection away; false when Close was faster.
func (l *Listener) handOut(conn net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.fresh[conn]
	delete(l.fresh, conn)
	return ok
}

// give is handOut to somebody who calls taken when the connection is closed.
func (l *Listener) give(conn net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.fresh[conn]; !ok {
		return false
	}
	delete(l.fresh, conn)
	l.given[conn] = struct{}{}
	return true
}

func (l *Listener) taken(conn net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.given, conn)
}

func (l *Listener) drop(conn net.Conn) {
	l.handOut(conn)
	_ = hangUp(conn)
}

// admit puts an authenticated connection where it belongs.
func (l *Listener) admit(conn *net.UnixConn, kind kind) {
	switch kind {
	case kindControl:
		l.serveControl(conn)
	case kindPool:
		select {
		case l.pool <- conn:
		default:
			l.drop(conn)
		}
	case kindEgress, kindConnect, kindResolve:
		select {
		case l.egress <- struct{}{}:
		default:
			l.drop(conn)
			return
		}
		stream := &egressConn{givenConn: givenConn{conn, l}, door: doors[kind], release: sync.OnceFunc(func() { <-l.egress })}
		select {
		case l.streams <- stream:
		case <-l.closed:
			l.handOut(conn)
			_ = stream.Close()
		}
	}
}

// serveControl makes conn the control connection and waits for its end.
func (l *Listener) serveControl(conn net.Conn) {
	c := &control{conn: conn, gone: make(chan struct{})}
	l.mu.Lock()
	if old := l.control; old != nil {
		_ = hangUp(old.conn)
		close(old.gone)
	} else {
		close(l.arrived)
	}
	l.control = c
	select {
	case <-l.foreign:
		l.foreign = make(chan struct{})
	default:
	}
	missing := l.waiting
	l.mu.Unlock()
	if missing > 0 {
		l.ask(missing)
	}

	// The agent says nothing here: a byte is as bad as the end.
	_, _ = conn.Read(make([]byte, 1))
	l.mu.Lock()
	if l.control == c {
		l.control = nil
		l.arrived = make(chan struct{})
		close(c.gone)
	}
	l.mu.Unlock()
	l.drop(conn)
}

// ask tells the agent that n pool connections are missing.
func (l *Listener) ask(n int) {
	l.mu.Lock()
	c := l.control
	l.mu.Unlock()
	if c == nil {
		return // serveControl asks for all that wait
	}
	select {
	case <-l.closed:
		return // a word that cannot be said would end the connection before the agent has
	default:
	}
	// An agent that does not read must not block the host.
	_ = c.conn.SetWriteDeadline(time.Now().Add(helloWithin))
	if _, err := fmt.Fprintf(c.conn, "more %d\n", n); err != nil {
		_ = hangUp(c.conn)
	}
}

// Dial returns a fresh connection to the agent, on which the host is an
// HTTP/1.1 client. It waits for one; Unavailable when ctx ends first or the
// listener is closed, Unsupported when the agent speaks a version of the
// protocol that this daemon does not.
func (l *Listener) Dial(ctx context.Context) (net.Conn, error) {
	for {
		conn, err := l.next(ctx)
		if err != nil {
			return nil, err
		}
		if !l.give(conn) {
			continue
		}
		given := givenConn{conn.(*net.UnixConn), l}
		if stale(conn) {
			_ = given.Close()
			continue
		}
		return given, nil
	}
}

func (l *Listener) next(ctx context.Context) (net.Conn, error) {
	select {
	case <-l.closed:
		return nil, errs.E(errs.Unavailable, "the sandbox's channel is closed")
	default:
	}
	select {
	case conn := <-l.pool:
		return conn, nil
	default:
	}
	l.mu.Lock()
	l.waiting++
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		l.waiting--
		l.mu.Unlock()
	}()
	l.ask(1)
	select {
	case conn := <-l.pool:
		return conn, nil
	case <-l.refused():
		return nil, l.errVersion()
	case <-ctx.Done():
		return nil, errs.E(errs.Unavailable, "the sandbox's agent does not answer").Because(context.Cause(ctx))
	case <-l.closed:
		return nil, errs.E(errs.Unavailable, "the sandbox's channel is closed")
	}
}

// AcceptEgress returns the next stream that the sandbox opened towards the
// outside, and by which door. It counts against the sandbox's bound until it is
// closed.
func (l *Listener) AcceptEgress(ctx context.Context) (net.Conn, sandbox.Door, error) {
	for {
		select {
		case stream := <-l.streams:
			if l.give(stream.UnixConn) {
				return stream, stream.door, nil
			}
			_ = stream.Close()
		case <-ctx.Done():
			return nil, "", context.Cause(ctx)
		case <-l.closed:
			return nil, "", errs.E(errs.Unavailable, "the sandbox's channel is closed")
		}
	}
}

// Connected reports whether the control connection is up.
func (l *Listener) Connected() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.control != nil
}

// Closed reports whether the listener was closed or severed.
func (l *Listener) Closed() bool {
	select {
	case <-l.closed:
		return true
	default:
		return false
	}
}

// Wait returns when the control connection is up; its errors are those of
// [Listener.Dial].
func (l *Listener) Wait(ctx context.Context) error {
	l.mu.Lock()
	arrived, foreign := l.arrived, l.foreign
	l.mu.Unlock()
	select {
	case <-arrived:
		return nil
	case <-foreign:
		return l.errVersion()
	case <-ctx.Done():
		return errs.E(errs.Unavailable, "the sandbox's agent has not connected").Because(context.Cause(ctx))
	case <-l.closed:
		return errs.E(errs.Unavailable, "the sandbox's channel is closed")
	}
}

// Gone is closed when the control connection that is current at the call is
// lost or replaced; it is closed already when there is none.
func (l *Listener) Gone() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.control == nil {
		gone := make(chan struct{})
		close(gone)
		return gone
	}
	return l.control.gone
}

// Close stops listening and closes every connection that was not handed out.
// The socket file stays; a second Close does nothing.
func (l *Listener) Close() error {
	l.closing.Do(func() {
		l.mu.Lock()
		close(l.deaf)
		close(l.closed)
		_ = shut(l.socket)
		_ = l.socket.Close()
		for conn := range l.fresh {
			_ = hangUp(conn)
		}
		clear(l.fresh)
		l.mu.Unlock()
	})
	l.wg.Wait()
	return nil
}
