package drivertest

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
	"github.com/cubbyhq/cubby/api/gen/cubby/guest/v1/guestv1connect"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Guest returns a client of the agent in a sandbox, with a connection for
// every call.
func Guest(d driver.Driver, h driver.Handle) guestv1connect.GuestServiceClient {
	return guestv1connect.NewGuestServiceClient(&http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return d.DialGuest(ctx, h) },
	}}, "http://guest")
}

// Exec runs a shell command in a sandbox to its end and returns its output,
// of both streams, and how it ended.
func Exec(ctx context.Context, d driver.Driver, h driver.Handle, user, script string, env ...string) (string, *guestv1.ExecExit, error) {
	stream, err := Guest(d, h).Exec(ctx, connect.NewRequest(&guestv1.ExecRequest{
		ExecUid: string(sandbox.NewUID()),
		Start:   &guestv1.ExecStart{Shell: script, User: user, Env: env},
	}))
	if err != nil {
		return "", nil, err
	}
	defer func() { _ = stream.Close() }()
	var out strings.Builder
	for stream.Receive() {
		switch e := stream.Msg().GetEvent().(type) {
		case *guestv1.ExecResponse_Output:
			out.Write(e.Output.GetData())
		case *guestv1.ExecResponse_Exit:
			return out.String(), e.Exit, nil
		}
	}
	return out.String(), nil, stream.Err()
}

func (s *suite) execAs(t *testing.T, h driver.Handle, user, script string, env ...string) string {
	t.Helper()
	out, exit, err := Exec(s.ctx, s.d, h, user, script, env...)
	if err != nil || exit.GetCode() != 0 {
		t.Fatalf("%s: %v, %v: %s", script, exit, err, out)
	}
	return out
}

func (s *suite) exec(t *testing.T, h driver.Handle, script string, env ...string) string {
	t.Helper()
	return s.execAs(t, h, sandbox.UserSandbox, script, env...)
}

// launch starts a command that goes on, and returns when it has said ready.
func (s *suite) launch(t *testing.T, h driver.Handle, script string) {
	t.Helper()
	ctx, cancel := context.WithCancel(s.ctx)
	t.Cleanup(cancel)
	stream, err := Guest(s.d, h).Exec(ctx, connect.NewRequest(&guestv1.ExecRequest{
		ExecUid: string(sandbox.NewUID()),
		Start:   &guestv1.ExecStart{Shell: script, User: sandbox.UserSandbox},
	}))
	if err != nil {
		t.Fatalf("%s: %v", script, err)
	}
	var out strings.Builder
	for !strings.Contains(out.String(), "ready\n") {
		if !stream.Receive() {
			t.Fatalf("%s: ended before it was ready: %v", script, stream.Err())
		}
		out.Write(stream.Msg().GetOutput().GetData())
	}
}

func (s *suite) bootID(t *testing.T, h driver.Handle) string {
	t.Helper()
	hello, err := Guest(s.d, h).Hello(s.ctx, connect.NewRequest(&guestv1.HelloRequest{}))
	if err != nil {
		t.Fatalf("Hello: %v", err)
	}
	return hello.Msg.GetBootId()
}
