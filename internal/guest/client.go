// Package guest is the host's client of the agent inside a sandbox. It speaks
// the guest protocol over connections that a dial function gives, turns wire
// errors back into errors of package errs, and knows neither drivers nor
// journals. What comes from a guest is not to be trusted: sizes are bounded
// here, meanings are checked by the callers.
package guest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
	"github.com/cubbyhq/cubby/api/gen/cubby/guest/v1/guestv1connect"
	"github.com/cubbyhq/cubby/internal/capability"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

const (
	// baseURL is a name only: every connection comes from dial.
	baseURL = "http://guest"
	// maxMessage bounds a message of the agent. Output comes in pieces of
	// 64 KiB, listings in batches.
	maxMessage = 8 << 20
	// maxHeader bounds the headers of an answer.
	maxHeader = 64 << 10
	// idleConns are kept open for the next call; more would only hold memory
	// in the guest.
	idleConns = 8
	idleFor   = 90 * time.Second
)

// Client talks to one agent. It is safe for concurrent use.
type Client struct {
	dial      func(ctx context.Context) (net.Conn, error)
	transport *http.Transport
	http      *http.Client // keep-alive over dial; the base URL is baseURL
	calls     *http.Client // http, for single calls and streams
	rpc       guestv1connect.GuestServiceClient
	agent     *capability.Known
	sync      func(ctx context.Context) error // of [Disk]
}

// New makes a client over dial, which gives fresh connections to the agent. It
// opens none yet.
func New(dial func(ctx context.Context) (net.Conn, error)) *Client { return NewOnDisk(dial, Disk{}) }

// NewOnDisk is [New] for the agent of a sandbox with this disk.
func NewOnDisk(dial func(ctx context.Context) (net.Conn, error), disk Disk) *Client {
	t := &http.Transport{
		DialContext:         func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
		MaxIdleConns:        idleConns,
		MaxIdleConnsPerHost: idleConns,
		IdleConnTimeout:     idleFor,
		DisableCompression:  true,
		ReadBufferSize:      32 << 10,
		WriteBufferSize:     32 << 10,
		// The guest's headers are read into memory.
		MaxResponseHeaderBytes: maxHeader,
	}
	trips := diskBound(t, disk)
	h := &http.Client{
		Transport: trips,
		// An agent has nowhere else to send its host.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	calls, agent := &http.Client{Transport: shortAnswers{trips}, CheckRedirect: h.CheckRedirect}, new(capability.Known)
	return &Client{
		dial: dial, transport: t, http: h, calls: calls, agent: agent, sync: disk.Sync,
		rpc: guestv1connect.NewGuestServiceClient(calls, baseURL,
			connect.WithAcceptCompression("gzip", nil, nil),
			connect.WithReadMaxBytes(maxMessage),
			connect.WithInterceptors(capability.Interceptor(agent, calls))),
	}
}

// Require is Unsupported, with what to do, when the agent lacks a capability. Calls need
// no caller that asks before: each is refused by itself.
func (c *Client) Require(ctx context.Context, needed sandbox.AgentCapability) error {
	return fromWire(ctx, c.agent.Require(ctx, c.calls, needed))
}

// shortAnswers cuts off what answers a single call. The service's client has a
// bound of its own, but reads on to the end of what is longer, and the answer
// of an agent that was taken over may have none.
type shortAnswers struct{ http.RoundTripper }

func (s shortAnswers) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := s.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if stream := strings.HasPrefix(r.Header.Get("Content-Type"), "application/connect+"); !stream {
		res.Body = http.MaxBytesReader(nil, res.Body, maxMessage+1)
	}
	return res, nil
}

// Close closes idle connections. Calls that are under way end by themselves.
func (c *Client) Close() error {
	c.transport.CloseIdleConnections()
	return nil
}

// Hello is who the agent is. BootID changes when it is another process, or
// that of a copy.
type Hello struct {
	Version   string
	BootID    string
	StartedAt time.Time
}

// Hello asks the agent who it is; it is the readiness probe.
func (c *Client) Hello(ctx context.Context) (Hello, error) {
	res, err := c.rpc.Hello(ctx, connect.NewRequest(&guestv1.HelloRequest{}))
	if err != nil {
		return Hello{}, fromWire(ctx, err)
	}
	c.agent.Note(res.Msg)
	return Hello{
		Version:   clean(res.Msg.GetVersion()),
		BootID:    clean(res.Msg.GetBootId()),
		StartedAt: timeOf(res.Msg.GetStartedAt()),
	}, nil
}

// DialPort opens a stream to a port on the sandbox's loopback. Its directions
// can be closed one by one. Unavailable when nothing listens there.
func (c *Client) DialPort(ctx context.Context, port int) (net.Conn, error) {
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	upgraded, err := upgrade(conn, fmt.Sprintf("%s/v1/dial?port=%d", baseURL, port))
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		conn.Close()
		return nil, fromWire(ctx, err)
	}
	return upgraded, nil
}

func upgrade(conn net.Conn, url string) (net.Conn, error) {
	const protocol = "cubby-tcp"
	req, err := http.NewRequest(http.MethodGet, url, nil) //nolint:noctx // the caller's context ends the connection
	if err != nil {
		return nil, err
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", protocol)
	if err := req.Write(conn); err != nil {
		return nil, err
	}
	// A guest could send headers without end.
	head := &io.LimitedReader{R: conn, N: maxHeader}
	r := bufio.NewReader(head)
	res, err := http.ReadResponse(r, req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusSwitchingProtocols {
		defer res.Body.Close()
		return nil, httpError(res)
	}
	if res.Header.Get("Upgrade") != protocol {
		return nil, errs.E(errs.Unavailable, "the sandbox's agent speaks another protocol")
	}
	return &portConn{Conn: conn, early: r}, nil
}

// portConn is a dialled port; the first bytes may have come with the answer.
type portConn struct {
	net.Conn
	early *bufio.Reader // nil once it is empty
}

func (c *portConn) Read(p []byte) (int, error) {
	if c.early != nil {
		if c.early.Buffered() > 0 {
			return c.early.Read(p)
		}
		c.early = nil
	}
	return c.Conn.Read(p)
}

// CloseWrite ends this direction; the other goes on.
func (c *portConn) CloseWrite() error {
	if h, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite()
	}
	return c.Close()
}
