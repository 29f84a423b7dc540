package preview

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cubbyhq/cubby/internal/relay"
)

const (
	// lookEvery is how often a visitor's connection is looked at that nobody reads.
	lookEvery = time.Second
	// maxQuiet is after how many looks an app is given up that takes no more of a body
	// and says nothing.
	maxQuiet = 300
)

type connKey struct{}

// ConnContext is an [http.Server]'s: it lets the door notice that a visitor leaves
// whose body the app does not read.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	if secured, ok := c.(*tls.Conn); ok {
		c = secured.NetConn()
	}
	return context.WithValue(ctx, connKey{}, c)
}

// passing is the body of a request on its way to the app.
type passing struct {
	io.ReadCloser
	reading atomic.Bool // somebody waits for the visitor
	ended   atomic.Bool
	moved   *atomic.Int64 // reads of it, and writes of the answer
}

func (p *passing) Read(b []byte) (int, error) {
	p.reading.Store(true)
	n, err := p.ReadCloser.Read(b)
	p.reading.Store(false)
	p.moved.Add(1)
	if err != nil {
		p.ended.Store(true)
	}
	return n, err
}

// untilLeft calls left when the visitor of a request has left in the middle of its
// body, or the app neither takes more of it nor answers for some minutes. The server
// notices who leaves only where somebody reads on, so an app that does not would keep
// the visit for as long as it likes. End it by stop.
func untilLeft(r *http.Request, moved *atomic.Int64, left func()) (stop func()) {
	conn, _ := r.Context().Value(connKey{}).(net.Conn)
	if r.ContentLength == 0 {
		return func() {}
	}
	body := &passing{ReadCloser: r.Body, moved: moved}
	r.Body = body
	over := make(chan struct{})
	var looks sync.WaitGroup
	looks.Go(func() {
		tick := time.NewTicker(lookEvery)
		defer tick.Stop()
		for before, quiet := moved.Load(), 0; ; {
			select {
			case <-over:
				return
			case <-tick.C:
			}
			if now := moved.Load(); now != before || body.reading.Load() || body.ended.Load() {
				before, quiet = now, 0
			} else {
				quiet++
			}
			// A connection of HTTP/2 is always read, and is of other requests too.
			if quiet >= maxQuiet || r.ProtoMajor == 1 && conn != nil && relay.Ended(conn) {
				left()
				return
			}
		}
	})
	return func() {
		close(over)
		looks.Wait()
	}
}
