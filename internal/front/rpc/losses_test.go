package rpc_test

import (
	"net/http"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	sandboxv1 "github.com/cubbyhq/cubby/api/gen/sandbox/v1"
	"github.com/cubbyhq/cubby/api/gen/sandbox/v1/sandboxv1connect"
	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
	"github.com/cubbyhq/cubby/internal/errs"
)

// TestLossesAreMetadata: the call that wakes a session whose memory is lost says so in
// its header, in every protocol, and the next one does not.
func TestLossesAreMetadata(t *testing.T) {
	t.Parallel()
	d := daemontest.Start(t, daemontest.Options{})
	s := dial(t, d)
	s.create(&sandboxv1.CreateSessionRequest{SessionId: ptr("a")})
	d.Faults.SetFail("Wake", errs.E(errs.NotFound, "the memory is damaged"))
	const key = "cubby-restore-incomplete"
	exec, stream := &sandboxv1.ExecRequest{SessionId: "a", Command: "true"}, &sandboxv1.ExecStreamRequest{SessionId: "a", Command: "true"}
	calls := map[string]func() string{
		"Exec": func() string {
			var head metadata.MD
			var out sandboxv1.ExecResponse
			if err := s.conn.Invoke(bounded(t), "/sandbox.v1.SandboxService/Exec", exec, &out, grpc.Header(&head)); err != nil {
				t.Fatal(err)
			}
			return first(head.Get(key))
		},
		"ReadFile": func() string {
			var head metadata.MD
			var out sandboxv1.ReadFileResponse
			in := &sandboxv1.ReadFileRequest{SessionId: "a", Path: "nothing"}
			_ = s.conn.Invoke(bounded(t), "/sandbox.v1.SandboxService/ReadFile", in, &out, grpc.Header(&head)) // an error has a header too
			return first(head.Get(key))
		},
		"CreateSession": func() string {
			var head metadata.MD
			var out sandboxv1.CreateSessionResponse
			in := &sandboxv1.CreateSessionRequest{SessionId: ptr("a")}
			if err := s.conn.Invoke(bounded(t), "/sandbox.v1.SandboxService/CreateSession", in, &out, grpc.Header(&head)); err != nil {
				t.Fatal(err)
			}
			return first(head.Get(key))
		},
	}
	transport := new(http.Transport)
	defer transport.CloseIdleConnections()
	for name, options := range protocols() {
		c := sandboxv1connect.NewSandboxServiceClient(&http.Client{Transport: transport}, d.URL, options...)
		calls[name+" Exec"] = func() string {
			res, err := c.Exec(bounded(t), connect.NewRequest(exec))
			if err != nil {
				t.Fatal(err)
			}
			return res.Header().Get(key)
		}
		calls[name+" ExecStream"] = func() string {
			st, err := c.ExecStream(bounded(t), connect.NewRequest(stream))
			if err != nil {
				t.Fatal(err)
			}
			defer st.Close()
			for st.Receive() {
			}
			return st.ResponseHeader().Get(key)
		}
	}
	for name, call := range calls {
		if _, err := client.New(d.URL).Sleep(bounded(t), "a", true); err != nil {
			t.Fatal(err)
		}
		if lost := call(); lost == "" {
			t.Errorf("%s does not say what is lost", name)
		}
		if lost := call(); lost != "" {
			t.Errorf("%s of one that runs says %q", name, lost)
		}
	}
}

func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}
