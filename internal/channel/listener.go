// Package channel is the host's end of the connection to a guest agent: one
// UNIX socket per sandbox, on which the host listens and the agent dials. The
// agent keeps one control connection and a pool of plain connections ready;
// the host takes one of the pool whenever it wants to speak, asks for more
// over the control connection, and receives the sandbox's egress streams.
//
// Root inside a sandbox can reach the socket, so every connection starts with
// one line that proves knowledge of the sandbox's secret; what does not, or is
// slow about it, is closed. The package speaks no HTTP and knows no driver.
package channel

import (
	"context"
	"log/slog"
	"net"

	"github.com/cubbyhq/cubby/internal/errs"
)

// Listener is the host's end of one sandbox's channel.
type Listener struct{}

// Listen replaces a stale socket file at path and accepts connections that
// know secret, in the background, until Close. The mode and the owner of path
// are the caller's matter.
func Listen(path, secret string, log *slog.Logger) (*Listener, error) {
	return nil, errs.E(errs.Unsupported, "not written")
}

// Dial returns a fresh connection to the agent, on which the host is an
// HTTP/1.1 client. It waits for one; Unavailable when ctx ends first or the
// listener is closed.
func (l *Listener) Dial(ctx context.Context) (net.Conn, error) { return nil, nil }

// AcceptEgress returns the next stream that the sandbox opened towards the
// outside.
func (l *Listener) AcceptEgress(ctx context.Context) (net.Conn, error) { return nil, nil }

// Connected reports whether the control connection is up.
func (l *Listener) Connected() bool { return false }

// Wait returns when the control connection is up.
func (l *Listener) Wait(ctx context.Context) error { return nil }

// Gone is closed when the control connection that is current at the call is
// lost; it is closed already when there is none.
func (l *Listener) Gone() <-chan struct{} { return nil }

// Close stops listening and closes every connection that was not handed out.
func (l *Listener) Close() error { return nil }
