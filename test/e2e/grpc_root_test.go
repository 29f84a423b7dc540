//go:build root

package e2e_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	sandboxv1 "github.com/cubbyhq/cubby/api/gen/sandbox/v1"
	sdk "github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/packages/packagestest"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/test/harness"
)

// agentboxSnippets are those of agentbox's documentation that a gRPC client
// can do, by their numbers. Every official client does all of them.
var agentboxSnippets = []string{
	"2.2", "2.3", "2.4", "2.5", "2.6", "2.7", "2.8", "2.9", "2.10", "2.11", "2.12", "2.13", "2.14", "2.15", "2.16", "2.17",
}

// TestGRPC does agentbox's snippets with the official client for Go.
func TestGRPC(t *testing.T) {
	t.Parallel()
	x := packagestest.New(t, packagestest.Options{Address: elsewhere + ":0"})
	h := newReal(t, harness.Options{})
	url, err := h.start([]string{"--pip-index-url", x.PyPI})
	if err != nil {
		t.Fatal(err)
	}
	address := strings.TrimPrefix(url, "http://")
	for _, isolation := range []string{"gvisor", "container"} {
		// gRPC cannot choose the isolation; a session that another door made is
		// one as any other.
		if _, err := sdk.New(url).Create(t.Context(), sdk.CreateOptions{ID: isolation, Isolation: isolation, Labels: map[string]string{"agentbox": "true"}}); err != nil {
			t.Fatal(err)
		}
		t.Run(isolation+"/go", func(t *testing.T) { goSnippets(t, address, isolation) })
		t.Run(isolation+"/leave", func(t *testing.T) { callerLeaves(t, address, isolation) })
	}
	t.Run("scripts of packages", func(t *testing.T) { scriptsOfPackages(t, address) })
	if err := h.stop(); err != nil {
		t.Error(err)
	}
}

// scriptsOfPackages: what PipInstall installs can be run by its name, by the root
// of agentbox's sessions too.
func scriptsOfPackages(t *testing.T, address string) {
	c := newGRPCClient(t, address)
	c.id = c.create(&sandboxv1.CreateSessionRequest{}).GetSessionId()
	defer c.destroy(c.id)
	if out := c.exec("id -un"); out.GetStdout() != "root\n" {
		t.Fatalf("the session is not root's: %v", out)
	}
	var done sandboxv1.ExecResponse
	c.call("PipInstall", &sandboxv1.PipInstallRequest{SessionId: c.id, Packages: []string{"cubbydemo==1.1.0"}}, &done)
	if done.GetExitCode() != 0 {
		t.Fatalf("PipInstall = %v", &done)
	}
	for _, command := range []string{"cubbydemo", "bash -lc cubbydemo", "env -i sh -lc cubbydemo", "cd /tmp && exec cubbydemo"} {
		if out := c.exec(command); out.GetStdout() != "1.1.0\n" {
			t.Errorf("%s = %v", command, out)
		}
	}
}

// grpcClient does things with a session, over gRPC's own client.
type grpcClient struct {
	t    *testing.T
	conn *grpc.ClientConn
	id   string
}

func newGRPCClient(t *testing.T, address string) *grpcClient {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &grpcClient{t: t, conn: conn}
}

func (c *grpcClient) try(method string, in, out proto.Message) error {
	ctx, cancel := context.WithTimeout(c.t.Context(), 3*time.Minute)
	defer cancel()
	return c.conn.Invoke(ctx, "/sandbox.v1.SandboxService/"+method, in, out)
}

func (c *grpcClient) call(method string, in, out proto.Message) {
	c.t.Helper()
	if err := c.try(method, in, out); err != nil {
		c.t.Fatalf("%s: %v", method, err)
	}
}

func (c *grpcClient) create(in *sandboxv1.CreateSessionRequest) *sandboxv1.SessionInfo {
	c.t.Helper()
	var out sandboxv1.CreateSessionResponse
	c.call("CreateSession", in, &out)
	return out.GetSession()
}

func (c *grpcClient) destroy(id string) bool {
	c.t.Helper()
	var out sandboxv1.DestroySessionResponse
	c.call("DestroySession", &sandboxv1.DestroySessionRequest{SessionId: id}, &out)
	return out.GetSuccess()
}

func (c *grpcClient) exec(command string) *sandboxv1.ExecResponse {
	c.t.Helper()
	return c.execIn(&sandboxv1.ExecRequest{SessionId: c.id, Command: command})
}

func (c *grpcClient) execIn(in *sandboxv1.ExecRequest) *sandboxv1.ExecResponse {
	c.t.Helper()
	var out sandboxv1.ExecResponse
	c.call("Exec", in, &out)
	return &out
}

// stream runs a command and calls next for each of its events.
func (c *grpcClient) stream(ctx context.Context, command string, next func(*sandboxv1.ExecStreamResponse)) error {
	st, err := c.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/sandbox.v1.SandboxService/ExecStream")
	if err != nil {
		return err
	}
	if err := errors.Join(st.SendMsg(&sandboxv1.ExecStreamRequest{SessionId: c.id, Command: command}), st.CloseSend()); err != nil {
		return err
	}
	for {
		var m sandboxv1.ExecStreamResponse
		if err := st.RecvMsg(&m); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		next(&m)
	}
}

func (c *grpcClient) write(path, content, mode string) {
	c.t.Helper()
	var out sandboxv1.WriteFileResponse
	c.call("WriteFile", &sandboxv1.WriteFileRequest{SessionId: c.id, Path: path, Content: content, Mode: mode}, &out)
	if !out.GetSuccess() || out.Error != nil {
		c.t.Errorf("WriteFile(%s) = %v", path, &out)
	}
}

func (c *grpcClient) read(path string) *sandboxv1.ReadFileResponse {
	c.t.Helper()
	var out sandboxv1.ReadFileResponse
	c.call("ReadFile", &sandboxv1.ReadFileRequest{SessionId: c.id, Path: path}, &out)
	return &out
}

func goSnippets(t *testing.T, address, id string) {
	c := newGRPCClient(t, address)
	session := c.create(&sandboxv1.CreateSessionRequest{SessionId: &id})
	c.id = session.GetSessionId()
	want := func(t *testing.T, got *sandboxv1.ExecResponse, stdout, stderr string, code int32) {
		t.Helper()
		if got.GetStdout() != stdout || got.GetStderr() != stderr || got.GetExitCode() != code || got.GetTimedOut() {
			t.Errorf("Exec = %v, want %q, %q, %d", got, stdout, stderr, code)
		}
	}
	snippets := map[string]func(t *testing.T){
		"2.2": func(t *testing.T) {
			if c.id == "" || session.GetContainerId() == "" || !slices.Equal(session.GetAllowedHosts(), sandbox.DefaultAllow()) {
				t.Errorf("CreateSession = %v", session)
			}
		},
		"2.3": func(t *testing.T) {
			want(t, c.execIn(&sandboxv1.ExecRequest{SessionId: c.id, Command: "python3 -c 'print(1+1)'", Timeout: 30}), "2\n", "", 0)
		},
		"2.4": func(t *testing.T) {
			c.write("script.py", "print('hello')", "w")
			want(t, c.exec("python3 script.py"), "hello\n", "", 0)
		},
		"2.5": func(t *testing.T) {
			var out sandboxv1.ExecResponse
			c.call("PipInstall", &sandboxv1.PipInstallRequest{SessionId: c.id, Packages: []string{"cubbydemo==1.1.0", "cubbyneeds"}}, &out)
			if out.GetExitCode() != 0 {
				t.Errorf("PipInstall = %v", &out)
			}
			want(t, c.exec("python3 -c 'import cubbydemo, cubbyneeds; print(cubbydemo.version())'"), "1.1.0\n", "", 0)
			c.call("PipInstall", &sandboxv1.PipInstallRequest{SessionId: c.id, Packages: []string{"nosuchpackage"}}, &out)
			if out.GetExitCode() <= 0 || !strings.Contains(out.GetStderr(), "nosuchpackage") {
				t.Errorf("PipInstall of what is not there = %v", &out)
			}
		},
		"2.6": func(t *testing.T) {
			id := c.create(&sandboxv1.CreateSessionRequest{}).GetSessionId()
			if !c.destroy(id) || c.destroy(id) {
				t.Error("DestroySession is not true and then false")
			}
		},
		"2.7": func(t *testing.T) {
			if out := c.exec("python3 --version"); !strings.HasPrefix(out.GetStdout(), "Python 3.") {
				t.Errorf("python3 --version = %v", out)
			}
			const code = "print('Hello from gRPC!')"
			c.write("test.py", code, "w")
			if got := c.read("test.py"); !got.GetSuccess() || got.GetContent() != code {
				t.Errorf("ReadFile = %v", got)
			}
			want(t, c.exec("python3 test.py"), "Hello from gRPC!\n", "", 0)
			if out := c.exec("uname -r"); out.GetStdout() == "" {
				t.Errorf("uname -r = %v", out)
			}
			var list sandboxv1.ListSessionsResponse
			c.call("ListSessions", &sandboxv1.ListSessionsRequest{}, &list)
			if len(list.GetSessions()) < 1 {
				t.Error("ListSessions has none")
			}
		},
		"2.8": func(t *testing.T) { // the same over HTTP/2, which gRPC always is
			want(t, c.exec("python3 -c 'print(\"same\")'"), "same\n", "", 0)
		},
		"2.9": func(t *testing.T) { // the SDK's calls; what it has beside is ExecStream
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			var got []string
			err := c.stream(ctx, "echo live; until test -e go; do sleep 0.1; done; exit 3", func(m *sandboxv1.ExecStreamResponse) {
				if got = append(got, m.GetType()); m.GetData() == "live\n" {
					c.exec("touch go") // the command goes on only when this was read
				}
			})
			if err != nil || !slices.Equal(got, []string{"stdout", "exit"}) {
				t.Errorf("ExecStream = %v, %v", got, err)
			}
			c.write("_temp_script.py", "print(1 + 1)", "")
			want(t, c.exec("python3 _temp_script.py && rm -f _temp_script.py"), "2\n", "", 0)
		},
		"2.10": func(t *testing.T) {
			s := c.create(&sandboxv1.CreateSessionRequest{AllowedHosts: []string{"example.com"}})
			if c.destroy(s.GetSessionId()); !slices.Equal(s.GetAllowedHosts(), []string{"example.com"}) {
				t.Errorf("allowed_hosts = %v", s.GetAllowedHosts())
			}
		},
		"2.11": func(t *testing.T) {
			s := c.create(&sandboxv1.CreateSessionRequest{AllowedHosts: []string{}})
			if c.destroy(s.GetSessionId()); !slices.Equal(s.GetAllowedHosts(), sandbox.DefaultAllow()) {
				t.Errorf("allowed_hosts = %v", s.GetAllowedHosts())
			}
		},
		"2.12": func(t *testing.T) {
			s := c.create(&sandboxv1.CreateSessionRequest{AllowedHosts: []string{"localhost"}})
			defer c.destroy(s.GetSessionId())
			for _, host := range []string{"http://example.com", "http://pypi.org", "http://192.0.2.1"} {
				out := c.execIn(&sandboxv1.ExecRequest{SessionId: s.GetSessionId(), Command: "curl -sS -w '%{http_code}' " + host})
				if !strings.HasPrefix(out.GetStdout(), "Host not allowed: "+strings.TrimPrefix(host, "http://")) || !strings.HasSuffix(out.GetStdout(), "403") {
					t.Errorf("%s = %v", host, out)
				}
			}
		},
		"2.13": func(t *testing.T) {
			want(t, c.exec("echo hello"), "hello\n", "", 0)
			want(t, c.exec("echo error >&2"), "", "error\n", 0)
			want(t, c.exec("exit 42"), "", "", 42)
			want(t, c.execIn(&sandboxv1.ExecRequest{SessionId: c.id, Command: "pwd", Workdir: "/tmp"}), "/tmp\n", "", 0)
		},
		"2.14": func(t *testing.T) {
			c.write("lines", "line1\n", "w")
			c.write("lines", "line2\n", "a")
			if got := c.read("lines"); !got.GetSuccess() || got.GetContent() != "line1\nline2\n" {
				t.Errorf("ReadFile = %v", got)
			}
		},
		"2.15": func(t *testing.T) {
			if got := c.read("missing"); got.GetSuccess() || got.GetError() == "" {
				t.Errorf("ReadFile = %v", got)
			}
		},
		"2.16": func(t *testing.T) { want(t, c.exec("touch /workspace/test && echo ok"), "ok\n", "", 0) },
		"2.17": func(t *testing.T) {
			err := c.try("GetSession", &sandboxv1.GetSessionRequest{SessionId: "unknown"}, &sandboxv1.GetSessionResponse{})
			if st := status.Convert(err); st.Code() != codes.NotFound || st.Message() != "Session not found" {
				t.Errorf("GetSession = %v", err)
			}
		},
	}
	for _, number := range agentboxSnippets {
		t.Run(number, snippets[number])
	}
}

// callerLeaves cancels a stream whose command has put a child into a session of
// its own: all of it ends.
func callerLeaves(t *testing.T, address, id string) {
	c := newGRPCClient(t, address)
	c.id = id
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	err := c.stream(ctx, "setsid sleep 1234 & echo $! >child; echo begun; wait; sleep 1234", func(m *sandboxv1.ExecStreamResponse) {
		if m.GetData() == "begun\n" {
			cancel()
		}
	})
	if status.Code(err) != codes.Canceled {
		t.Errorf("ExecStream = %v", err)
	}
	out := c.execIn(&sandboxv1.ExecRequest{SessionId: c.id, Command: "while kill -0 $(cat child) || pgrep -f '^sleep 1234'; do sleep 0.2; done", Timeout: 120})
	if out.GetTimedOut() || out.GetExitCode() != 0 {
		t.Errorf("what the command started goes on: %v", out)
	}
}
