package preview

import (
	"errors"
	"net"
	"net/http/httptrace"
	"sync/atomic"

	"github.com/cubbyhq/cubby/internal/errs"
)

// appConn is a connection to an app that requests of several visitors use one after
// the other. [net/http.Transport] gives it to the next request before it looks for
// bytes that the app sent beyond the answer, and would take those for the next
// answer. So the connection keeps the order: the first byte of an answer has to be
// read after the first byte of its question was written. What an app sends later
// than that cannot be told from an answer.
type appConn struct {
	net.Conn
	state atomic.Int32
}

// The states of an appConn.
const (
	notAsked  int32 = iota // a request has the connection, nothing of it was written
	asked                  // written, at least in part; no byte came since
	answering              // bytes came since
	spoilt                 // the app sent an answer that nobody had asked for
)

var errUnasked = errors.New("the app sent an answer before it was asked")

// take is called when a request gets the connection: the request before it is
// answered, so whoever reads has read all of that answer.
func (c *appConn) take() {
	for {
		if s := c.state.Load(); s == spoilt || c.state.CompareAndSwap(s, notAsked) {
			return
		}
	}
}

func (c *appConn) Write(p []byte) (int, error) {
	c.state.CompareAndSwap(notAsked, asked)
	return c.Conn.Write(p)
}

// Read fails on bytes that come before the question. The transport repeats a request
// on a new connection then, if it may.
func (c *appConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && !c.state.CompareAndSwap(asked, answering) && c.state.CompareAndSwap(notAsked, spoilt) {
		return 0, errUnasked
	}
	return n, err
}

// begin is called by the reader when it has the first byte of an answer. If none was
// read since the question, the transport had it in its buffer before.
func (c *appConn) begin() {
	if c.state.Load() != answering {
		c.state.Store(spoilt)
		_ = c.Close() // nobody shall get it again
	}
}

// CloseWrite ends the direction to the app, where the connection can.
func (c *appConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// trace follows a request to its connection, and the answer out of it.
func (v *visit) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) {
			c := info.Conn.(*appConn)
			c.take()
			v.conn.Store(c)
		},
		GotFirstResponseByte: func() { v.conn.Load().begin() },
		Got1xxResponse:       v.hinted,
	}
}

// own is an error if the answer was there before the question: it may be another
// visitor's.
func (v *visit) own() error {
	if v.conn.Load().state.Load() == spoilt {
		return errs.E(errs.Unavailable, "the app sent an answer before it was asked")
	}
	return nil
}
