package tunnel

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/cubbyhq/cubby/internal/core/preview"
)

const (
	// readLimit bounds a message of a client.
	readLimit = 256 << 10
	// bufferSize is that of a direction, and of the door's messages.
	bufferSize = 32 << 10
	// pingEvery keeps proxies and routers in between from forgetting a silent
	// connection. A ping that is not answered ends nothing: a client that does not
	// read for a while is not gone. Those that are, TCP finds.
	pingEvery = 20 * time.Second
	// askTime bounds the question whether the agent is still there.
	askTime = 5 * time.Second
)

var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// session is one connection.
type session struct {
	visit  *preview.Visit
	port   net.Conn
	client *websocket.Conn
}

// verdict is why the daemon closes a connection.
type verdict struct {
	code   websocket.StatusCode
	reason string
}

func (v *verdict) Error() string { return v.reason }

var (
	errBroken = &verdict{websocket.StatusInternalError, "the connection to the program broke"}
	// errLeft: the client closed the connection, or it broke.
	errLeft = errors.New("the client went away")
)

// serve returns when the connection is closed and nothing of it runs.
func (s *session) serve(parent, life context.Context) {
	s.client.SetReadLimit(readLimit)
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	stop := context.AfterFunc(life, func() {
		cancel(&verdict{websocket.StatusGoingAway, "the daemon is stopping"})
	})
	defer stop()

	ended := make(chan struct{}, 2) // of each direction
	var parts sync.WaitGroup
	// What reads and writes has the parent's context: to end one's context breaks
	// the client's connection, and nothing could be said any more.
	parts.Go(func() { cancel(s.toPort(parent, ended)) })
	parts.Go(func() {
		if err := s.toClient(parent); err != nil {
			cancel(err)
			return
		}
		ended <- struct{}{}
	})
	parts.Go(func() { s.ping(ctx) })

	over := s.wait(ctx, ended)
	if over != nil {
		_ = s.client.Close(over.code, over.reason) // the client may be gone
	}
	cancel(nil)
	_ = s.client.CloseNow() // as above
	_ = s.port.Close()      // ends what reads and writes
	parts.Wait()
}

// wait waits for the end of both directions, or of everything, and returns how
// the client's connection is to be closed; nil: it is gone.
func (s *session) wait(ctx context.Context, ended <-chan struct{}) *verdict {
	for range 2 {
		select {
		case <-ended:
		case <-ctx.Done():
			var v *verdict
			errors.As(context.Cause(ctx), &v)
			return v
		}
	}
	return &verdict{websocket.StatusNormalClosure, ""}
}

// toPort passes on what the client sends, tells of the end of this direction, and
// reads on: the client's close and its pongs come by the same way.
func (s *session) toPort(ctx context.Context, ended chan<- struct{}) error {
	over := false
	for {
		kind, message, err := s.client.Reader(ctx)
		switch {
		case err != nil:
			return errLeft
		case kind != websocket.MessageBinary:
			return &verdict{websocket.StatusUnsupportedData, "a message is text"}
		case over:
			return &verdict{websocket.StatusPolicyViolation, "a message follows the end"}
		}
		n, err := s.pass(ctx, message)
		switch {
		case errors.Is(err, websocket.ErrMessageTooBig):
			return &verdict{websocket.StatusMessageTooBig, "a message is too long"}
		case err != nil:
			return err
		case n > 0:
			continue
		}
		if end, ok := s.port.(interface{ CloseWrite() error }); !ok || end.CloseWrite() != nil {
			return errBroken
		}
		over = true
		ended <- struct{}{}
	}
}

// pass writes a message to the port and returns its length.
func (s *session) pass(ctx context.Context, message io.Reader) (total int, err error) {
	buffer := buffers.Get().(*[bufferSize]byte)
	defer buffers.Put(buffer)
	for {
		n, err := message.Read(buffer[:])
		total += n
		if n > 0 {
			s.visit.Touch(ctx)
			if _, err := s.port.Write(buffer[:n]); err != nil {
				return total, errBroken
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return total, nil
		case errors.Is(err, websocket.ErrMessageTooBig):
			return total, err
		case err != nil:
			return total, errLeft
		}
	}
}

// toClient passes on what the program sends, and the end of that.
func (s *session) toClient(ctx context.Context) error {
	buffer := buffers.Get().(*[bufferSize]byte)
	defer buffers.Put(buffer)
	for {
		n, err := s.port.Read(buffer[:])
		if n > 0 {
			s.visit.Touch(ctx)
			if s.client.Write(ctx, websocket.MessageBinary, buffer[:n]) != nil {
				return errLeft
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			// The end of the sandbox looks like that of the program's bytes.
			asking, cancel := context.WithTimeout(ctx, askTime)
			defer cancel()
			if !s.visit.GoesOn(asking) {
				return errBroken
			}
			if s.client.Write(ctx, websocket.MessageBinary, nil) != nil {
				return errLeft
			}
			return nil
		case err != nil:
			return errBroken
		}
	}
}

// ping shows proxies and routers that the connection is still there.
func (s *session) ping(ctx context.Context) {
	t := time.NewTicker(pingEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if s.client.Ping(ctx) != nil { // whoever reads sees why
			return
		}
	}
}
