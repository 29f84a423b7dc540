package jupyter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-zeromq/zmq4"

	"github.com/cubbyhq/cubby/internal/kernel"
	"github.com/cubbyhq/cubby/internal/uptime"
)

// Client is a connection to one running kernel. Requests may come from any
// goroutine; a kernel runs one cell after another.
type Client struct {
	key     signer
	session string
	uptime  *uptime.Clock
	info    Info

	shell, control, stdin, iopub *socket

	late    kernel.Backlog // of cells that have ended
	readers sync.WaitGroup
	gone    chan struct{} // closed when the connection ended

	mu      sync.Mutex
	waiting map[string]*exchange // by the id of the request; guarded by mu
	err     error                // why it ended; guarded by mu
}

// exchange is a request until its answer is whole.
type exchange struct {
	kind   string
	handle func(message) // what comes on iopub and stdin, in order
	reply  chan message  // on shell or control; holds one
	idle   chan struct{} // closed when iopub said that all is sent
	once   sync.Once     // of idle
}

// Info is what a kernel says about itself.
type Info struct {
	Implementation string `json:"implementation"`
	Banner         string `json:"banner"`
	Language       struct {
		Name    string `json:"name"`
		Version string `json:"version"`
	} `json:"language_info"`
}

// retry is how long a kernel that is starting is left alone between attempts.
const retry = 10 * time.Millisecond

// Dial connects to a kernel that may still be starting, and returns when it
// answers and everything that it publishes arrives. It tries until ctx ends. The
// client's patience with the kernel is measured by clock.
func Dial(ctx context.Context, to Connection, clock *uptime.Clock) (*Client, error) {
	c := &Client{
		key: signer(to.Key), session: newID(), uptime: clock,
		gone: make(chan struct{}), waiting: map[string]*exchange{},
	}
	if err := c.connect(ctx, to); err != nil {
		c.closeSockets()
		return nil, err
	}
	c.readers.Go(func() { c.read(c.shell, c.answered) })
	c.readers.Go(func() { c.read(c.control, c.answered) })
	c.readers.Go(func() { c.read(c.iopub, c.published) })
	c.readers.Go(func() { c.read(c.stdin, c.asked) })
	if err := c.greet(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// connect makes the four connections. The kernel binds its ports one by one.
func (c *Client) connect(ctx context.Context, to Connection) error {
	for _, s := range []struct {
		at   **socket
		port int
		kind zmq4.SocketType
	}{
		{&c.shell, to.Shell, zmq4.Dealer}, {&c.control, to.Control, zmq4.Dealer},
		// The same identity on shell and stdin: a kernel asks for input where
		// the request came from.
		{&c.stdin, to.Stdin, zmq4.Dealer}, {&c.iopub, to.IOPub, zmq4.Sub},
	} {
		for {
			var err error
			*s.at, err = dial(ctx, to.addr(s.port), s.kind, c.session)
			if err == nil {
				break
			}
			if !pause(ctx, retry) {
				return errors.Join(context.Cause(ctx), err)
			}
		}
	}
	return c.iopub.subscribe()
}

func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// greet asks who the kernel is until an answer comes on iopub too: a
// subscription takes effect some time after it was sent, and what is published
// before is lost.
func (c *Client) greet(ctx context.Context) error {
	const patience = 200 * time.Millisecond
	for {
		x, forget, err := c.begin(c.shell, "kernel_info_request", struct{}{}, nil)
		if err != nil {
			return err
		}
		m, err := c.await(ctx, x)
		if err != nil {
			forget()
			return err
		}
		if err := json.Unmarshal(m.Content, &c.info); err != nil {
			forget()
			return errMalformed
		}
		t := time.NewTimer(patience)
		select {
		case <-x.idle:
			t.Stop()
			forget()
			return nil
		case <-t.C:
		case <-ctx.Done():
		case <-c.gone:
		}
		t.Stop()
		forget()
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if err := c.ended(); err != nil {
			return err
		}
	}
}

// Info returns what the kernel said about itself.
func (c *Client) Info() Info { return c.info }

// Gone is closed when the connection has ended.
func (c *Client) Gone() <-chan struct{} { return c.gone }

// Close ends the connection; the kernel goes on.
func (c *Client) Close() {
	c.fail(kernel.ErrGone)
	c.readers.Wait()
}

func (c *Client) closeSockets() {
	for _, s := range []*socket{c.shell, c.control, c.stdin, c.iopub} {
		if s != nil {
			s.close()
		}
	}
}

// fail ends the connection for the first reason that is given.
func (c *Client) fail(err error) {
	c.mu.Lock()
	first := c.err == nil
	if first {
		c.err = err
	}
	c.mu.Unlock()
	if first {
		close(c.gone)
		c.closeSockets()
	}
}

func (c *Client) ended() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// begin sends a request and notes who hears what belongs to it.
func (c *Client) begin(on *socket, kind string, content any, handle func(message)) (x *exchange, forget func(), err error) {
	id, frames, err := c.key.request(c.session, kind, content)
	if err != nil {
		return nil, nil, err
	}
	x = &exchange{kind: kind, handle: handle, reply: make(chan message, 1), idle: make(chan struct{})}
	c.mu.Lock()
	c.waiting[id] = x
	c.mu.Unlock()
	forget = func() {
		c.mu.Lock()
		delete(c.waiting, id)
		c.mu.Unlock()
	}
	if err := on.send(frames); err != nil {
		forget()
		c.fail(fmt.Errorf("%w: %w", kernel.ErrGone, err))
		return nil, nil, kernel.ErrGone
	}
	return x, forget, nil
}

// await returns the reply to a request.
func (c *Client) await(ctx context.Context, x *exchange) (message, error) {
	select {
	case m := <-x.reply:
		return m, nil
	case <-ctx.Done():
		return message{}, context.Cause(ctx)
	case <-c.gone:
	}
	// It may have come just before the end.
	select {
	case m := <-x.reply:
		return m, nil
	default:
		return message{}, c.ended()
	}
}

// read passes on what one socket receives, until it ends.
func (c *Client) read(s *socket, to func(message, *exchange)) {
	for {
		m, err := s.receive(c.key)
		switch {
		case errors.Is(err, errMalformed), errors.Is(err, errSignature):
			continue // not from the kernel, or nonsense
		case errors.Is(err, errTooLarge):
			c.fail(errTooLarge)
			return
		case err != nil:
			c.fail(fmt.Errorf("%w: %w", kernel.ErrGone, err))
			return
		}
		c.mu.Lock()
		x := c.waiting[m.Parent.ID]
		c.mu.Unlock()
		if x != nil {
			to(m, x)
		} else if s == c.iopub && m.Parent.Session == c.session {
			c.afterward(m)
		}
	}
}

// afterward takes what a cell shows after its end.
func (c *Client) afterward(m message) {
	if o, ok := outputOf(m); ok && (o.Stream != nil || o.Display != nil) {
		c.late.Add(o)
	}
}

func (c *Client) answered(m message, x *exchange) {
	select {
	case x.reply <- m:
	default: // one reply is enough
	}
}

func (c *Client) published(m message, x *exchange) {
	if m.Header.Type == "status" {
		var s struct {
			State string `json:"execution_state"`
		}
		if json.Unmarshal(m.Content, &s) == nil && s.State == "idle" {
			x.once.Do(func() { close(x.idle) })
		}
		return
	}
	if x.handle != nil {
		x.handle(m)
	}
}

func (c *Client) asked(m message, x *exchange) {
	if x.handle != nil && m.Header.Type == "input_request" {
		x.handle(m)
	}
}
