package preview

import (
	"bufio"
	"net"
	"net/http"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
)

// leaveTime is how long a visitor has to close a connection that changed its
// protocol, after the app has closed its end.
const leaveTime = time.Second

// answers are how the proxy answers a visitor.
type answers struct {
	http.ResponseWriter
	visit *visit
}

// Unwrap lets http.ResponseController reach the server's.
func (a answers) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// WriteHeader takes cookies and orders for proxies out of answers before the answer,
// which the proxy passes on unseen: some programs would take them, for any domain. One that may be
// another visitor's is not passed on.
func (a answers) WriteHeader(status int) {
	if status < http.StatusOK {
		if a.visit.own() != nil {
			return
		}
		a.Header().Del("Set-Cookie")
		dropForProxies(a.Header())
	}
	a.ResponseWriter.WriteHeader(status)
}

// Write counts that something of the answer flows.
func (a answers) Write(p []byte) (int, error) {
	a.visit.moved.Add(1)
	return a.ResponseWriter.Write(p)
}

// Hijack gives the visitor's connection to the proxy.
func (a answers) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(a.ResponseWriter).Hijack()
	return visitorConn{conn}, buffered, err
}

// visitorConn ends soon after the app has ended it. The proxy would wait for the
// visitor's end too, who may never send it.
type visitorConn struct{ net.Conn }

func (c visitorConn) CloseWrite() error {
	end, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok {
		return errs.E(errs.Unsupported, "the connection has one end for both directions")
	}
	if err := end.CloseWrite(); err != nil {
		return err
	}
	return c.SetReadDeadline(time.Now().Add(leaveTime))
}
