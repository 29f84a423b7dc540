package jupyter

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"github.com/go-zeromq/zmq4"
	"github.com/go-zeromq/zmq4/security/null"
)

// maxHandshake bounds a message before the connection stands, in bytes.
const maxHandshake = 64 << 10

// maxFrames bounds the parts of a message.
const maxFrames = 256

// socket is one ZeroMQ connection to a kernel. Sends may come from any
// goroutine; receives from one.
type socket struct {
	conn *zmq4.Conn // shakes hands and sends
	in   *bufio.Reader
	came atomic.Int64 // bytes, for who waits for the end of a long message
	mu   sync.Mutex   // serialises sends
}

// incoming counts what a connection brings.
type incoming struct {
	net.Conn
	came *atomic.Int64
}

func (i incoming) Read(p []byte) (int, error) {
	n, err := i.Conn.Read(p)
	i.came.Add(int64(n))
	return n, err
}

// dial connects to a kernel's port and shakes hands. The identity is what a
// ROUTER at the other end knows the connection by.
func dial(ctx context.Context, addr string, kind zmq4.SocketType, identity string) (*socket, error) {
	var d net.Dialer
	raw, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	// The handshake reads from a peer that may never answer.
	stop := context.AfterFunc(ctx, func() { raw.Close() })
	conn, err := zmq4.Open(&bounded{Conn: raw}, null.Security(), kind, zmq4.SocketIdentity(identity), false, nil)
	if err == nil && !stop() {
		err = context.Cause(ctx)
	}
	if err != nil {
		raw.Close()
		return nil, fmt.Errorf("connect to a kernel: %w", err)
	}
	s := &socket{conn: conn}
	s.in = bufio.NewReaderSize(incoming{raw, &s.came}, readBuffer)
	return s, nil
}

// subscribe asks a PUB socket for everything.
func (s *socket) subscribe() error { return s.send([][]byte{{1}}) }

func (s *socket) send(frames [][]byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conn.SendMsg(zmq4.NewMsgFrom(frames...))
}

func (s *socket) close() { _ = s.conn.Close() }

var errTooLarge = errors.New("the kernel sent a message that is too large")

// The parts of a ZMTP 3 stream (https://rfc.zeromq.org/spec/23/).
const (
	greetingSize = 64
	flagMore     = 1
	flagLong     = 2
	flagCommand  = 4
)

// bounded watches the frames of a handshake go by and ends it at the first one
// that claims more than there may be: zmq4 allocates what a header says.
type bounded struct {
	net.Conn
	greeted int     // bytes of the greeting
	head    [9]byte // of the frame that comes
	got     int     // bytes of head
	body    uint64  // bytes of the frame that are still to come
	message uint64  // bytes of the message so far
	frames  int     // of the message so far
	err     error
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.Conn.Read(p)
	if b.err = b.scan(p[:n]); b.err != nil {
		return 0, b.err
	}
	return n, err
}

// scan follows the framing through p.
func (b *bounded) scan(p []byte) error {
	if b.greeted < greetingSize {
		n := min(len(p), greetingSize-b.greeted)
		b.greeted += n
		p = p[n:]
	}
	for len(p) > 0 {
		if b.body > 0 {
			n := min(uint64(len(p)), b.body)
			b.body -= n
			p = p[n:]
			continue
		}
		b.head[b.got] = p[0]
		b.got++
		p = p[1:]
		var size uint64
		switch long := b.head[0]&flagLong != 0; {
		case long && b.got == 9:
			size = binary.BigEndian.Uint64(b.head[1:])
		case !long && b.got == 2:
			size = uint64(b.head[1])
		default:
			continue
		}
		b.got = 0
		b.frames++
		if size > maxHandshake-b.message || b.frames > maxFrames {
			return errTooLarge
		}
		b.message += size
		b.body = size
		if b.head[0]&flagMore == 0 {
			b.message, b.frames = 0, 0
		}
	}
	return nil
}
