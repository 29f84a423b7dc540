package client

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/coder/websocket"

	"github.com/cubbyhq/cubby/client/internal/deadline"
)

// portWrite bounds a message to the daemon, portRead one of its.
const (
	portWrite = 64 << 10
	portRead  = 1 << 20
)

// PortConn is a connection to a TCP port of a sandbox, through the daemon. Its
// directions end one by one: [PortConn.CloseWrite] ends the one to the program,
// and Read returns io.EOF when the program has ended the other. Every other end is
// an [*Error]: what was read until then may not be all.
//
// Read is for one goroutine, and Write and CloseWrite are for one. A deadline
// that passes ends the whole connection.
type PortConn struct {
	c    *Client
	conn *websocket.Conn
	to   portAddr

	reading, writing deadline.Limit
	message          io.Reader // nil between two messages; of the reader alone
	length           int       // of what was read of it
	ended            bool      // Read has returned io.EOF; of the reader alone
	closed           bool      // of the writer alone
}

// DialPort connects to a TCP port of a sandbox. It wakes the sandbox as a command
// does, and keeps it awake while bytes flow. It is [Unavailable] when nothing
// listens. ctx bounds the dial alone.
func (c *Client) DialPort(ctx context.Context, id string, port int) (*PortConn, error) {
	if c.bad != nil {
		return nil, c.bad
	}
	header := http.Header{}
	if c.token != "" {
		header.Set("Authorization", "Bearer "+c.token)
	}
	conn, res, err := websocket.Dial(ctx, c.base.String()+sandboxPath(id, "ports", strconv.Itoa(port), "connect"), &websocket.DialOptions{
		HTTPClient: c.http, HTTPHeader: header, Subprotocols: []string{"cubby.port.v1"}, CompressionMode: websocket.CompressionDisabled,
	})
	if err != nil {
		if res != nil && res.StatusCode >= 300 {
			defer res.Body.Close()
			return nil, errorOf(res)
		}
		return nil, c.transportError(ctx, err)
	}
	conn.SetReadLimit(portRead)
	p := &PortConn{c: c, conn: conn, to: portAddr{host: c.base.Host, id: id, port: port}}
	p.reading.Begin()
	p.writing.Begin()
	return p, nil
}

// Read gives what the program sends.
func (p *PortConn) Read(b []byte) (int, error) {
	for !p.ended {
		if p.message == nil {
			_, message, err := p.conn.Reader(p.reading.Context)
			if err != nil {
				return 0, p.broken(&p.reading, err)
			}
			p.message, p.length = message, 0
		}
		n, err := p.message.Read(b)
		p.length += n
		switch {
		case errors.Is(err, io.EOF):
			p.message = nil
			p.ended = p.length == 0 // which is how the direction ends
		case err != nil:
			return n, p.broken(&p.reading, err)
		}
		if n > 0 || len(b) == 0 {
			return n, nil
		}
	}
	return 0, io.EOF
}

// Write sends bytes to the program.
func (p *PortConn) Write(b []byte) (int, error) {
	written := 0
	for written < len(b) {
		if p.closed {
			return written, net.ErrClosed
		}
		chunk := b[written:min(len(b), written+portWrite)]
		if err := p.conn.Write(p.writing.Context, websocket.MessageBinary, chunk); err != nil {
			return written, p.broken(&p.writing, err)
		}
		written += len(chunk)
	}
	return written, nil
}

// CloseWrite ends the direction to the program, which sees the end of its input.
// The other direction goes on.
func (p *PortConn) CloseWrite() error {
	if p.closed {
		return nil
	}
	p.closed = true
	if err := p.conn.Write(p.writing.Context, websocket.MessageBinary, nil); err != nil {
		return p.broken(&p.writing, err)
	}
	return nil
}

// broken is why a connection ended that should have gone on.
func (p *PortConn) broken(limit *deadline.Limit, err error) error {
	if limit.Passed() {
		return &Error{Code: Timeout, Message: "the deadline of the connection passed", cause: os.ErrDeadlineExceeded}
	}
	message := "the connection to the daemon broke"
	var closed websocket.CloseError
	switch {
	case errors.As(err, &closed) && closed.Reason != "":
		message = closed.Reason
	case errors.Is(err, net.ErrClosed):
		return &Error{Code: Canceled, Message: "the connection is closed", cause: net.ErrClosed}
	}
	return &Error{Code: Unavailable, Message: message, Retryable: true, cause: err}
}

// Close ends both directions. What was written until then reaches the program.
func (p *PortConn) Close() error {
	// The daemon may be gone, or may have closed it first.
	_ = p.conn.Close(websocket.StatusNormalClosure, "")
	p.reading.End()
	p.writing.End()
	return nil
}

// LocalAddr is not known: the connection is the HTTP client's.
func (p *PortConn) LocalAddr() net.Addr { return portAddr{host: "local"} }

// RemoteAddr names the daemon, the sandbox and the port.
func (p *PortConn) RemoteAddr() net.Addr { return p.to }

// SetDeadline is for reads and writes.
func (p *PortConn) SetDeadline(t time.Time) error {
	p.reading.Set(t)
	p.writing.Set(t)
	return nil
}

// SetReadDeadline is for reads.
func (p *PortConn) SetReadDeadline(t time.Time) error {
	p.reading.Set(t)
	return nil
}

// SetWriteDeadline is for writes.
func (p *PortConn) SetWriteDeadline(t time.Time) error {
	p.writing.Set(t)
	return nil
}

// portAddr is where a port is.
type portAddr struct {
	host, id string
	port     int
}

func (portAddr) Network() string { return "cubby" }

func (a portAddr) String() string {
	if a.id == "" {
		return a.host
	}
	return a.host + "/" + url.PathEscape(a.id) + ":" + strconv.Itoa(a.port)
}
