package rpc_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	sandboxv1 "github.com/cubbyhq/cubby/api/gen/sandbox/v1"
	"github.com/cubbyhq/cubby/api/gen/sandbox/v1/sandboxv1connect"
	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
)

// tree is a command with a child that outlives it, if nobody ends both. The
// files are there when both run.
const tree = "sleep 1000 & echo $! >child; echo $$ >parent; wait"

// A caller that leaves takes its command along, with all that it started:
// nobody could find it again. This holds in every protocol.
func TestCallerLeaves(t *testing.T) {
	t.Parallel()
	d := daemontest.Start(t, daemontest.Options{})
	s := dial(t, d)
	s.create(&sandboxv1.CreateSessionRequest{SessionId: ptr("a")})
	ok := func(command string) bool {
		return s.exec(&sandboxv1.ExecRequest{SessionId: "a", Command: command}).GetExitCode() == 0
	}
	// leave calls, waits for the command to run, cancels the call, and waits for
	// the command's end.
	leave := func(name string, call func(ctx context.Context)) {
		t.Helper()
		ctx, cancel := context.WithCancel(bounded(t))
		done := make(chan struct{})
		go func() { defer close(done); call(ctx) }()
		wait(t, name+" to start", func() bool { return ok("test -s child && test -s parent") })
		cancel()
		<-done
		wait(t, name+" to end", func() bool { return ok("! kill -0 $(cat child) && ! kill -0 $(cat parent)") })
		ok("rm child parent")
	}
	exec, stream := &sandboxv1.ExecRequest{SessionId: "a", Command: tree, Timeout: 600}, &sandboxv1.ExecStreamRequest{SessionId: "a", Command: tree}
	leave("Exec", func(ctx context.Context) { _ = s.call(ctx, "Exec", exec, &sandboxv1.ExecResponse{}) })
	leave("ExecStream", func(ctx context.Context) { _ = s.stream(ctx, stream, func(*sandboxv1.ExecStreamResponse) {}) })
	for name, options := range protocols() {
		transport := new(http.Transport)
		c := sandboxv1connect.NewSandboxServiceClient(&http.Client{Transport: transport}, d.URL, options...)
		leave(name+" Exec", func(ctx context.Context) { _, _ = c.Exec(ctx, connect.NewRequest(exec)) })
		leave(name+" ExecStream", func(ctx context.Context) {
			if st, err := c.ExecStream(ctx, connect.NewRequest(stream)); err == nil {
				for st.Receive() {
				}
				_ = st.Close()
			}
		})
		transport.CloseIdleConnections()
	}
}

// A deadline is the caller's word for when it leaves.
func TestDeadlines(t *testing.T) {
	t.Parallel()
	s := dial(t, daemontest.Start(t, daemontest.Options{}))
	s.create(&sandboxv1.CreateSessionRequest{SessionId: ptr("a")})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	var calls sync.WaitGroup
	for name, call := range map[string]func(command string) error{
		"Exec": func(command string) error {
			return s.call(ctx, "Exec", &sandboxv1.ExecRequest{SessionId: "a", Command: command, Timeout: 600}, &sandboxv1.ExecResponse{})
		},
		"ExecStream": func(command string) error {
			return s.stream(ctx, &sandboxv1.ExecStreamRequest{SessionId: "a", Command: command}, func(*sandboxv1.ExecStreamResponse) {})
		},
	} {
		calls.Go(func() {
			if err := call("mkdir " + name + " && cd " + name + " && " + tree); status.Code(err) != codes.DeadlineExceeded {
				t.Errorf("%s after its deadline = %v", name, err)
			}
		})
	}
	calls.Wait()
	for _, name := range []string{"Exec", "ExecStream"} {
		wait(t, "the command of "+name+" to end", func() bool {
			return s.exec(&sandboxv1.ExecRequest{SessionId: "a", Command: "cd " + name + "; ! kill -0 $(cat child) && ! kill -0 $(cat parent)"}).GetExitCode() == 0
		})
	}
}

// A time limit ends all that the command started.
func TestTimeoutEndsTheTree(t *testing.T) {
	t.Parallel()
	s := dial(t, daemontest.Start(t, daemontest.Options{}))
	s.create(&sandboxv1.CreateSessionRequest{SessionId: ptr("a")})
	out := s.exec(&sandboxv1.ExecRequest{SessionId: "a", Command: "echo begun; " + tree, Timeout: 2})
	if !out.GetTimedOut() || out.GetExitCode() != -1 || out.GetStdout() != "begun\n" {
		t.Errorf("Exec = %v", out)
	}
	wait(t, "the child to end", func() bool {
		return s.exec(&sandboxv1.ExecRequest{SessionId: "a", Command: "! kill -0 $(cat child)"}).GetExitCode() == 0
	})
}
