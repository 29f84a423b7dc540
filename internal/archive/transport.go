package archive

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/minio/minio-go/v7"
)

const (
	// stallTime is how long a storage may take for the next bytes of a request
	// or an answer: who waits for it holds a turn of others.
	stallTime = 2 * time.Minute
	// maxAnswer bounds what is no object: the client holds it in memory.
	maxAnswer = 1 << 20
	maxHeader = 64 << 10
)

// newTransport returns what carries the requests to a storage that is not
// believed: one that stalls or does not end is given up.
func newTransport(secure bool, stall time.Duration) (http.RoundTripper, error) {
	t, err := minio.DefaultTransport(secure)
	if err != nil {
		return nil, err
	}
	t.MaxResponseHeaderBytes = maxHeader
	t.ResponseHeaderTimeout = stall
	dial := t.DialContext
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &movingConn{Conn: c, stall: stall}, nil
	}
	return bounded{t}, nil
}

// movingConn ends when nothing moves on it, either way. A connection that
// nobody uses is one such.
type movingConn struct {
	net.Conn
	stall time.Duration
}

func (c *movingConn) Read(b []byte) (int, error) {
	c.moved()
	n, err := c.Conn.Read(b)
	return n, err
}

func (c *movingConn) Write(b []byte) (n int, err error) {
	const step = 64 << 10 // what of a large write has gone is progress
	for len(b) > 0 && err == nil {
		c.moved()
		var m int
		m, err = c.Conn.Write(b[:min(step, len(b))])
		n, b = n+m, b[m:]
	}
	return n, err
}

func (c *movingConn) moved() { _ = c.SetDeadline(time.Now().Add(c.stall)) }

// bounded gives up answers that are longer than any that is held in memory.
type bounded struct{ next http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := b.next.RoundTrip(r)
	if err != nil || isObject(r, res) {
		return res, err
	}
	res.Body = &boundedBody{ReadCloser: res.Body, left: maxAnswer}
	return res, nil
}

// isObject reports an answer that is read as a stream.
func isObject(r *http.Request, res *http.Response) bool {
	return r.Method == http.MethodGet && !r.URL.Query().Has("location") &&
		(res.StatusCode == http.StatusOK || res.StatusCode == http.StatusPartialContent)
}

var errLong = errors.New("the answer of the storage does not end")

type boundedBody struct {
	io.ReadCloser
	left int
}

func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errLong
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}
