package ports

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cubbyhq/cubby/client"
)

// Rule says that a port of this machine leads to one of a sandbox.
type Rule struct {
	Listen string // host:port; port 0 is a free one
	Port   int    // of the sandbox
}

// ParseRule reads [[HOST:]LOCAL:]PORT. Without HOST it listens on 127.0.0.1,
// without LOCAL on the same port, and with an empty LOCAL or 0 on a free one.
func ParseRule(text string) (Rule, error) {
	bad := fmt.Errorf("%q is not [[HOST:]LOCAL:]PORT", text)
	i := strings.LastIndexByte(text, ':')
	port, err := number(text[i+1:])
	if err != nil || port == 0 {
		return Rule{}, bad
	}
	host, local := "127.0.0.1", text
	if i >= 0 {
		local = text[:i]
	}
	if strings.Contains(local, ":") {
		if host, local, err = net.SplitHostPort(local); err != nil || host == "" {
			return Rule{}, bad
		}
	}
	if local == "" {
		local = "0"
	}
	if _, err := number(local); err != nil {
		return Rule{}, bad
	}
	return Rule{Listen: net.JoinHostPort(host, local), Port: port}, nil
}

// ParseRules reads several.
func ParseRules(texts []string) ([]Rule, error) {
	rules := make([]Rule, len(texts))
	for i, text := range texts {
		var err error
		if rules[i], err = ParseRule(text); err != nil {
			return nil, err
		}
	}
	return rules, nil
}

func number(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	return int(n), err
}

// Forward makes the ports of this machine lead to those of a sandbox until ctx
// ends, and prints where it listens. What goes wrong with one connection is
// noted and ends nothing else.
func Forward(ctx context.Context, c *client.Client, id string, rules []Rule, out io.Writer, note func(format string, args ...any)) error {
	box, err := c.Get(ctx, id)
	if err != nil {
		return err
	}
	var listeners []net.Listener
	defer func() {
		for _, l := range listeners {
			_ = l.Close()
		}
	}()
	for _, rule := range rules {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", rule.Listen)
		if err != nil {
			return fmt.Errorf("cannot listen on %s: %w", rule.Listen, cause(err))
		}
		listeners = append(listeners, l)
	}
	var all sync.WaitGroup
	for i, l := range listeners {
		f := &forward{c: c, id: box.ID, port: rules[i].Port, note: note}
		fmt.Fprintf(out, "%s leads to port %d of %s\n", l.Addr(), f.port, f.id)
		all.Go(func() { f.accept(ctx, l) })
	}
	<-ctx.Done()
	for _, l := range listeners {
		_ = l.Close() // so that accept ends
	}
	all.Wait()
	return nil
}

// cause is what the system said.
func cause(err error) error {
	for next := errors.Unwrap(err); next != nil; next = errors.Unwrap(next) {
		err = next
	}
	return err
}

// forward leads connections to one port.
type forward struct {
	c    *client.Client
	id   string
	port int
	note func(format string, args ...any)
}

// acceptPause is how long to wait when no connection can be taken, as without
// free descriptors.
const acceptPause = 100 * time.Millisecond

// accept returns when the listener is closed and no connection is left.
func (f *forward) accept(ctx context.Context, l net.Listener) {
	var conns sync.WaitGroup
	defer conns.Wait()
	for {
		conn, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = conn.Close()
			}
			return
		case err != nil:
			f.note("cannot take a connection: %v", cause(err))
			select {
			case <-ctx.Done():
			case <-time.After(acceptPause):
			}
			continue
		}
		conns.Go(func() {
			if err := f.join(ctx, conn.(*net.TCPConn)); err != nil && ctx.Err() == nil {
				f.note("port %d: %v", f.port, err)
			}
		})
	}
}

// join carries a connection until both of its directions have ended. One that
// breaks is reset here, so that nobody takes what came for all.
func (f *forward) join(ctx context.Context, here *net.TCPConn) error {
	defer func() { _ = here.Close() }()
	there, err := f.c.DialPort(ctx, f.id, f.port)
	if err != nil {
		_ = here.SetLinger(0)
		return err
	}
	defer func() { _ = there.Close() }()
	ended := make(chan error, 2)
	go func() { ended <- carry(there, here) }()
	go func() { ended <- carry(here, there) }()
	var first error
	stop := ctx.Done()
	for left := 2; left > 0; {
		select {
		case err = <-ended:
			left--
		case <-stop:
			err, stop = ctx.Err(), nil
		}
		if err != nil && first == nil {
			first = err
			_ = here.SetLinger(0)
			_ = here.Close()
			_ = there.Close()
		}
	}
	var remote *client.Error
	if errors.As(first, &remote) {
		return first
	}
	return nil // the program on this machine broke off
}

type halfCloser interface {
	net.Conn
	CloseWrite() error
}

// carry copies one direction, and its end.
func carry(to, from halfCloser) error {
	if _, err := io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, make([]byte, 64<<10)); err != nil {
		return err
	}
	return to.CloseWrite()
}
