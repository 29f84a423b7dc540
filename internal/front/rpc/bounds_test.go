package rpc_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	sandboxv1 "github.com/cubbyhq/cubby/api/gen/sandbox/v1"
	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
)

// What is too large for a message is refused with a status or cut with a note,
// and the session goes on.
func TestMessageSizes(t *testing.T) {
	t.Parallel()
	d := daemontest.Start(t, daemontest.Options{})
	s, large := dial(t, d), dial(t, d, grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(80<<20)))
	s.create(&sandboxv1.CreateSessionRequest{SessionId: ptr("a")})
	write := func(n int) error {
		var out sandboxv1.WriteFileResponse
		err := s.call(bounded(t), "WriteFile", &sandboxv1.WriteFileRequest{SessionId: "a", Path: "f", Content: strings.Repeat("x", n)}, &out)
		if err == nil && !out.GetSuccess() {
			err = fmt.Errorf("in band: %s", out.GetError())
		}
		return err
	}
	if err := write(32 << 20); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("WriteFile of more than a message = %v", err)
	}
	const size = 15 << 20
	if err := write(size); err != nil {
		t.Errorf("WriteFile = %v", err)
	}
	read := &sandboxv1.ReadFileRequest{SessionId: "a", Path: "f"}
	// gRPC's own clients accept 4 MiB when nothing else is said.
	if err := s.call(bounded(t), "ReadFile", read, &sandboxv1.ReadFileResponse{}); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("ReadFile by a client that accepts less = %v", err)
	}
	var got sandboxv1.ReadFileResponse
	// What the last answer holds is free when the daemon has seen that nobody
	// takes it.
	ctx := bounded(t)
	for err := status.Error(codes.Unavailable, ""); status.Code(err) == codes.Unavailable; {
		if err = large.call(ctx, "ReadFile", read, &got); err != nil && status.Code(err) != codes.Unavailable {
			t.Fatal(err)
		}
	}
	if !got.GetSuccess() || len(got.GetContent()) != size {
		t.Errorf("ReadFile has %d bytes, %s", len(got.GetContent()), got.GetError())
	}
	s.exec(&sandboxv1.ExecRequest{SessionId: "a", Command: "cat f f >g"})
	large.must("ReadFile", &sandboxv1.ReadFileRequest{SessionId: "a", Path: "g"}, &got)
	if got.GetSuccess() || !strings.Contains(got.GetError(), "larger than 16777216") {
		t.Errorf("ReadFile of too much = %.100v", &got)
	}
	out := large.exec(&sandboxv1.ExecRequest{SessionId: "a", Command: "cat g"})
	if want := fmt.Sprintf("cubby: %d bytes of output are not part of this answer", 2*size-16<<20); len(out.GetStdout()) != 16<<20 || out.GetStderr() != want || out.GetExitCode() != 0 {
		t.Errorf("Exec that prints too much has %d bytes and %q", len(out.GetStdout()), out.GetStderr())
	}
	// Each byte that is not UTF-8 becomes three.
	const lines = 5 << 20
	out = large.exec(&sandboxv1.ExecRequest{SessionId: "a", Command: fmt.Sprintf(`printf 'a\377\n' >line; yes "$(cat line)" | head -n %d`, lines)})
	if n := len(out.GetStdout()); n > 16<<20 || !strings.Contains(out.GetStderr(), "bytes of output are not part of this answer") {
		t.Errorf("Exec that prints no text has %d bytes and %q", n, out.GetStderr())
	}
	printed := 0
	err := s.stream(bounded(t), &sandboxv1.ExecStreamRequest{SessionId: "a", Command: "cat f"}, func(m *sandboxv1.ExecStreamResponse) { printed += len(m.GetData()) })
	if err != nil || printed != size {
		t.Errorf("ExecStream by a client that accepts less has %d bytes, %v", printed, err)
	}
}

// Calls do not wait for each other: these all wait for the last one, which
// agentbox's ten workers would never begin.
func TestManyCallsAtOnce(t *testing.T) {
	const calls = 24
	s := dial(t, daemontest.Start(t, daemontest.Options{}))
	s.create(&sandboxv1.CreateSessionRequest{SessionId: ptr("a")})
	var all sync.WaitGroup
	for i := range calls {
		all.Go(func() {
			var out sandboxv1.ExecResponse
			command := fmt.Sprintf("touch here.%d; until test $(ls here.* | wc -l) = %d; do sleep 0.2; done", i, calls)
			err := s.call(bounded(t), "Exec", &sandboxv1.ExecRequest{SessionId: "a", Command: command, Timeout: 100}, &out)
			if err != nil || out.GetExitCode() != 0 {
				t.Errorf("call %d = %v, %v", i, &out, err)
			}
		})
	}
	all.Wait()
}
