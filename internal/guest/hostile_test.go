package guest_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/guest"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// An agent that was taken over answers what it likes. Every call of the host
// ends by itself, with an error and before it has read much.
func TestAnswersOfAHostileAgent(t *testing.T) {
	const begin = "HTTP/1.1 200 OK\r\nContent-Type: application/proto\r\n"
	zeros := strings.Repeat("\x00", 64<<10)
	tests := map[string][2]string{ // a beginning, and what follows for ever
		"endless body":   {begin + "\r\n", zeros},
		"endless chunks": {begin + "Transfer-Encoding: chunked\r\n\r\n", "10000\r\n" + zeros + "\r\n"},
		"endless error":  {"HTTP/1.1 500 Oh\r\nContent-Type: application/json\r\n\r\n{\"message\":\"", strings.Repeat("a", 1<<16)},
		"endless header": {begin, "A: b\r\n"},
		"endless hints":  {"", "HTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n"},
		"no http":        {"", zeros},
	}
	calls := map[string]func(ctx context.Context, c *guest.Client) error{
		"Hello": func(ctx context.Context, c *guest.Client) error { _, err := c.Hello(ctx); return err },
		"Stat": func(ctx context.Context, c *guest.Client) error {
			_, err := c.Stat(ctx, "/", true)
			return err
		},
		"CompleteCode": func(ctx context.Context, c *guest.Client) error {
			_, err := c.CompleteCode(ctx, "python", "x", 1)
			return err
		},
		"Exec": func(ctx context.Context, c *guest.Client) error {
			s, err := c.Exec(ctx, sandbox.NewUID(), nil, 0)
			if err != nil {
				return err
			}
			defer s.Close()
			_, err = s.Next()
			return err
		},
		"Write": func(ctx context.Context, c *guest.Client) error {
			_, err := c.Write(ctx, "/a", strings.NewReader("a"), sandbox.FileWrite{})
			return err
		},
	}
	for name, answer := range tests {
		for call, do := range calls {
			// An endless body is what these two are made of; the first takes
			// it for a message too many, the other does not look at it.
			if name == "endless body" || name == "endless chunks" {
				if call == "Write" {
					continue
				}
			}
			t.Run(name+"/"+call, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				host, agent := net.Pipe()
				var sent int
				answered := make(chan struct{})
				go func() {
					defer close(answered)
					defer agent.Close()
					r, err := http.ReadRequest(bufio.NewReader(agent))
					if err != nil {
						return
					}
					_, _ = io.Copy(io.Discard, r.Body)
					_, err = io.WriteString(agent, answer[0])
					for err == nil {
						var n int
						n, err = io.WriteString(agent, answer[1])
						sent += n
					}
				}()
				c := guest.New(func(context.Context) (net.Conn, error) { return host, nil })
				defer c.Close()
				if err := do(ctx, c); err == nil {
					t.Error("the call succeeded")
				}
				if ctx.Err() != nil {
					t.Error("the call did not end by itself")
				}
				host.Close()
				<-answered
				if sent > 16<<20 {
					t.Errorf("%d bytes were taken", sent)
				}
			})
		}
	}
}

// TestAnOlderAgentSaysWhatItDoesNotKnow: a sandbox keeps its agent when the host
// gets a newer program.
func TestAnOlderAgentSaysWhatItDoesNotKnow(t *testing.T) {
	agent := httptest.NewServer(http.NotFoundHandler())
	defer agent.Close()
	c := guest.New(func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", agent.Listener.Addr().String())
	})
	defer c.Close()
	_, _, err := c.Unkilled(t.Context(), time.Second)
	if !errors.Is(err, errs.Unsupported) || errs.Public(err).Hint == "" {
		t.Errorf("a call that the agent does not know: %v, want unsupported and a hint", err)
	}
}
