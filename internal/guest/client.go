// Package guest is the host's client of the agent inside a sandbox. It speaks
// the guest protocol over connections that a dial function gives, turns wire
// errors back into errors of package errs, and knows neither drivers nor
// journals. What comes from a guest is not to be trusted: sizes are bounded
// here, meanings are checked by the callers.
package guest

import (
	"context"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/cubbyhq/cubby/api/gen/cubby/guest/v1/guestv1connect"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Client talks to one agent. It is safe for concurrent use.
type Client struct {
	dial func(ctx context.Context) (net.Conn, error)
	http *http.Client // keep-alive over dial; base URL is baseURL
	rpc  guestv1connect.GuestServiceClient
}

// Hello is who the agent is. BootID changes when it is another process.
type Hello struct {
	Version   string
	BootID    string
	StartedAt time.Time
}

// Start is a command to run.
type Start struct {
	sandbox.ExecSpec
	Env []string // KEY=VALUE, on top of the sandbox's; replaces ExecSpec.Env
}

// Started says that a command runs.
type Started struct {
	PID int64
	At  time.Time
}

// ExecMessage is one message of an exec's stream: exactly one field is set.
type ExecMessage struct {
	Started *Started
	Output  *sandbox.Output
	Exit    *Exit
}

// Exit ends the stream. All output ends at Offset.
type Exit struct {
	sandbox.Exit
	Offset int64
	At     time.Time
}

// ExecInfo is an exec that the agent knows.
type ExecInfo struct {
	UID      sandbox.UID
	Finished bool
	Acked    int64
	Written  int64
}

// ExecStream is the output of one exec.
type ExecStream struct{}

// New makes a client over dial.
func New(dial func(ctx context.Context) (net.Conn, error)) *Client { return &Client{dial: dial} }

// Close closes idle connections.
func (c *Client) Close() error { return nil }

// Hello asks the agent who it is; it is the readiness probe.
func (c *Client) Hello(ctx context.Context) (Hello, error) { return Hello{}, nil }

// Exec starts a command and streams its output from an offset; with a nil
// start it attaches to one that is known. A start that is sent twice runs
// once. Bytes before after are acknowledged.
func (c *Client) Exec(ctx context.Context, uid sandbox.UID, start *Start, after int64) (*ExecStream, error) {
	return nil, nil
}

// Next returns the next message; io.EOF after the exit. It is Unavailable
// when the agent was lost: attach again with the offset reached.
func (s *ExecStream) Next() (ExecMessage, error) { return ExecMessage{}, nil }

// Close leaves the stream; the command goes on.
func (s *ExecStream) Close() error { return nil }

// Ack tells the agent that output before offset is safe on the host.
func (c *Client) Ack(ctx context.Context, uid sandbox.UID, offset int64) error { return nil }

// Release makes the agent forget finished execs.
func (c *Client) Release(ctx context.Context, uids ...sandbox.UID) error { return nil }

// List returns the execs that the agent knows.
func (c *Client) List(ctx context.Context) ([]ExecInfo, error) { return nil, nil }

// Signal signals the command's process group, or with tree everything that
// descends from it. reason is what the exit shall say if this ends it.
func (c *Client) Signal(ctx context.Context, uid sandbox.UID, sig syscall.Signal, tree bool, reason sandbox.EndReason) error {
	return nil
}

// WriteStdin writes at offset and returns the offset reached; repeats are
// harmless.
func (c *Client) WriteStdin(ctx context.Context, uid sandbox.UID, offset int64, data []byte, eof bool) (int64, error) {
	return 0, nil
}

// Resize sets the terminal's size.
func (c *Client) Resize(ctx context.Context, uid sandbox.UID, size sandbox.WindowSize) error {
	return nil
}

// Shutdown ends every process and the agent.
func (c *Client) Shutdown(ctx context.Context, grace time.Duration) error { return nil }

// DialPort opens a stream to a port on the sandbox's loopback.
func (c *Client) DialPort(ctx context.Context, port int) (net.Conn, error) { return nil, nil }
