package postgrestest

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// Line is the way of a daemon to a server, which can be cut at an exact moment. While
// it is cut, the server is away for the daemon: connections end and none is made.
type Line struct {
	listener net.Listener
	server   string // the server's socket

	mu       sync.Mutex
	conns    map[net.Conn]bool // guarded by mu
	left     int               // statements until it is cut; -1: it is not going to be; guarded by mu
	away     bool              // guarded by mu
	cut      chan struct{}     // closed when it is cut; guarded by mu
	relaying sync.WaitGroup
}

// NewLine returns a line to the database with a URL of this package, and the URL by
// which it is used. It ends with the test.
func NewLine(t testing.TB, database string) (*Line, string) {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	const socket = ".s.PGSQL.5432"
	dir, err := os.MkdirTemp("", "pgline") // the paths of sockets are short
	if err != nil {
		t.Fatal(err)
	}
	l := &Line{server: filepath.Join(q.Get("host"), socket), conns: map[net.Conn]bool{}, left: -1, cut: make(chan struct{})}
	if l.listener, err = net.Listen("unix", filepath.Join(dir, socket)); err != nil {
		t.Fatal(err)
	}
	l.relaying.Go(l.accept)
	t.Cleanup(func() {
		_ = l.listener.Close()
		l.Cut()
		l.relaying.Wait()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	q.Set("host", dir)
	u.RawQuery = q.Encode()
	return l, u.String()
}

// CutAfter cuts the line when so many more statements were sent over it, before the
// server has the last of them. The channel is closed then.
func (l *Line) CutAfter(statements int) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left = statements
	l.cut = make(chan struct{})
	return l.cut
}

// Cut cuts the line.
func (l *Line) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sever()
}

// sever is called with mu held.
func (l *Line) sever() {
	if l.away {
		return
	}
	l.away, l.left = true, -1
	for conn := range l.conns {
		_ = conn.Close()
	}
	clear(l.conns)
	close(l.cut)
}

// Mend makes the line whole, and it is cut no more by itself.
func (l *Line) Mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.away {
		l.cut = make(chan struct{})
	}
	l.away, l.left = false, -1
}

func (l *Line) accept() {
	for {
		conn, err := l.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		server, err := net.Dial("unix", l.server)
		if err != nil || !l.hold(conn, server) {
			_ = conn.Close()
			if err == nil {
				_ = server.Close()
			}
			continue
		}
		l.relaying.Go(func() {
			_, _ = io.Copy(conn, server)
			_ = conn.Close()
		})
		l.relaying.Go(func() {
			l.pass(conn, server)
			_ = server.Close()
		})
	}
}

// hold reports false while the line is cut.
func (l *Line) hold(conns ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.away {
		return false
	}
	for _, conn := range conns {
		l.conns[conn] = true
	}
	return true
}

// pass sends what a client says to the server, message by message, and counts those
// that have something executed.
func (l *Line) pass(from, to net.Conn) {
	// The first message has no type.
	var head [5]byte
	if _, err := io.ReadFull(from, head[1:]); err != nil || !send(from, to, head[1:]) {
		return
	}
	for {
		if _, err := io.ReadFull(from, head[:]); err != nil {
			return
		}
		if kind := head[0]; (kind == 'E' || kind == 'Q') && l.count() {
			return
		}
		if !send(from, to, head[:]) {
			return
		}
	}
}

// send passes on a message whose head was read.
func send(from io.Reader, to io.Writer, head []byte) bool {
	length := binary.BigEndian.Uint32(head[len(head)-4:])
	if length < 4 {
		return false
	}
	if _, err := to.Write(head); err != nil {
		return false
	}
	_, err := io.CopyN(to, from, int64(length)-4)
	return err == nil
}

// count counts a statement, and reports true when the line is cut by it.
func (l *Line) count() (cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.left < 0 {
		return l.away
	}
	if l.left--; l.left > 0 {
		return false
	}
	l.sever()
	return true
}
