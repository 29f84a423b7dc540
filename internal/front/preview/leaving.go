package preview

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/cubbyhq/cubby/internal/relay"
)

// lookEvery is how often a visitor's connection is looked at that nobody reads.
const lookEvery = time.Second

type connKey struct{}

// ConnContext is an [http.Server]'s: it lets the door notice that a visitor leaves
// whose body the app does not read.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	if secured, ok := c.(*tls.Conn); ok {
		c = secured.NetConn()
	}
	return context.WithValue(ctx, connKey{}, c)
}

// untilLeft calls left when the visitor of a request has left in the middle of its
// body. The server notices that only where somebody reads on, and an app that does
// not would keep the visit for as long as it likes. End it by stop.
func untilLeft(r *http.Request, left func()) (stop func()) {
	conn, ok := r.Context().Value(connKey{}).(net.Conn)
	if !ok || r.ProtoMajor != 1 || r.ContentLength == 0 {
		return func() {}
	}
	over := make(chan struct{})
	var looks sync.WaitGroup
	looks.Go(func() {
		tick := time.NewTicker(lookEvery)
		defer tick.Stop()
		for {
			select {
			case <-over:
				return
			case <-tick.C:
			}
			if relay.Ended(conn) {
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
