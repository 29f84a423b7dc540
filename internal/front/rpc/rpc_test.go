package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	sandboxv1 "github.com/cubbyhq/cubby/api/gen/sandbox/v1"
	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// service calls the daemon with gRPC's own client. agentbox's generated stubs
// do the same.
type service struct {
	t    *testing.T
	conn *grpc.ClientConn
}

func dial(t *testing.T, d *daemontest.Daemon, options ...grpc.DialOption) service {
	t.Helper()
	options = append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))
	conn, err := grpc.NewClient(strings.TrimPrefix(d.URL, "http://"), options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return service{t, conn}
}

func (s service) call(ctx context.Context, method string, in, out proto.Message) error {
	return s.conn.Invoke(ctx, "/sandbox.v1.SandboxService/"+method, in, out)
}

func (s service) must(method string, in, out proto.Message) {
	s.t.Helper()
	if err := s.call(bounded(s.t), method, in, out); err != nil {
		s.t.Fatalf("%s: %v", method, err)
	}
}

// bounded is the test's context with an end that no test of these reaches.
func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func (s service) create(in *sandboxv1.CreateSessionRequest) *sandboxv1.SessionInfo {
	s.t.Helper()
	var out sandboxv1.CreateSessionResponse
	s.must("CreateSession", in, &out)
	return out.GetSession()
}

func (s service) exec(in *sandboxv1.ExecRequest) *sandboxv1.ExecResponse {
	s.t.Helper()
	var out sandboxv1.ExecResponse
	s.must("Exec", in, &out)
	return &out
}

// stream calls next for every event until the stream ends.
func (s service) stream(ctx context.Context, in *sandboxv1.ExecStreamRequest, next func(*sandboxv1.ExecStreamResponse)) error {
	s.t.Helper()
	st, err := s.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/sandbox.v1.SandboxService/ExecStream")
	if err != nil {
		return err
	}
	if err := errors.Join(st.SendMsg(in), st.CloseSend()); err != nil {
		return err
	}
	for {
		var m sandboxv1.ExecStreamResponse
		err := st.RecvMsg(&m)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		next(&m)
	}
}

func ptr[T any](v T) *T { return &v }

func TestSessions(t *testing.T) {
	s := dial(t, daemontest.Start(t, daemontest.Options{}))
	made := s.create(&sandboxv1.CreateSessionRequest{})
	if made.GetSessionId() == "" || made.GetContainerId() == "" || made.GetStatus() != "running" || made.GetCreatedAt() < 1e9 ||
		!slices.Equal(made.GetAllowedHosts(), sandbox.DefaultAllow()) || made.TenantId != nil {
		t.Errorf("CreateSession = %v", made)
	}
	for _, hosts := range [][]string{{"example.com"}, {"localhost"}, {"*.example.com"}} {
		if got := s.create(&sandboxv1.CreateSessionRequest{AllowedHosts: hosts}); !slices.Equal(got.GetAllowedHosts(), hosts) {
			t.Errorf("allowed_hosts = %v, want %v", got.GetAllowedHosts(), hosts)
		}
	}
	// The same id is the same session, whatever else is asked.
	named := s.create(&sandboxv1.CreateSessionRequest{SessionId: ptr("mine")})
	again := s.create(&sandboxv1.CreateSessionRequest{SessionId: ptr("mine"), AllowedHosts: []string{"example.com"}})
	if named.GetContainerId() != again.GetContainerId() || !slices.Equal(again.GetAllowedHosts(), sandbox.DefaultAllow()) {
		t.Errorf("a second create of an id = %v, the first %v", again, named)
	}
	var got sandboxv1.GetSessionResponse
	s.must("GetSession", &sandboxv1.GetSessionRequest{SessionId: "mine"}, &got)
	if got.GetSession().GetContainerId() != named.GetContainerId() || got.GetSession().GetLastActivity() < named.GetLastActivity() {
		t.Errorf("GetSession = %v", got.GetSession())
	}
	for _, id := range []string{"unknown", "../x", ""} {
		err := s.call(bounded(t), "GetSession", &sandboxv1.GetSessionRequest{SessionId: id}, &got)
		if st := status.Convert(err); st.Code() != codes.NotFound || st.Message() != "Session not found" {
			t.Errorf("GetSession(%q) = %v", id, err)
		}
	}
	var list sandboxv1.ListSessionsResponse
	s.must("ListSessions", &sandboxv1.ListSessionsRequest{}, &list)
	if len(list.GetSessions()) != 5 {
		t.Errorf("ListSessions has %d, want 5", len(list.GetSessions()))
	}
	for i, want := range []bool{true, false} {
		var gone sandboxv1.DestroySessionResponse
		s.must("DestroySession", &sandboxv1.DestroySessionRequest{SessionId: "mine"}, &gone)
		if gone.GetSuccess() != want {
			t.Errorf("destroy %d = %v", i+1, gone.GetSuccess())
		}
	}
	for _, in := range []*sandboxv1.CreateSessionRequest{
		{AllowedHosts: []string{"http://a.example/"}}, {SessionId: ptr("../x")}, {TenantId: ptr("../x")}, {TenantId: ptr("a/b")},
	} {
		if err := s.call(bounded(t), "CreateSession", in, &sandboxv1.CreateSessionResponse{}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("CreateSession(%v) = %v, want invalid", in, err)
		}
	}
}

// A session says whose it is, and another tenant does not get it by its id.
func TestTenants(t *testing.T) {
	s := dial(t, daemontest.Start(t, daemontest.Options{}))
	made := s.create(&sandboxv1.CreateSessionRequest{SessionId: ptr("a"), TenantId: ptr("acme")})
	again := s.create(&sandboxv1.CreateSessionRequest{SessionId: ptr("a"), TenantId: ptr("acme")})
	if made.GetTenantId() != "acme" || again.GetTenantId() != "acme" || made.GetContainerId() != again.GetContainerId() {
		t.Errorf("CreateSession = %v, then %v", made, again)
	}
	in := &sandboxv1.CreateSessionRequest{SessionId: ptr("a"), TenantId: ptr("other")}
	if err := s.call(bounded(t), "CreateSession", in, &sandboxv1.CreateSessionResponse{}); status.Code(err) != codes.AlreadyExists {
		t.Errorf("CreateSession of another tenant's id = %v", err)
	}
}

func TestExec(t *testing.T) {
	s := dial(t, daemontest.Start(t, daemontest.Options{}))
	s.create(&sandboxv1.CreateSessionRequest{SessionId: ptr("a")})
	for _, tt := range []struct {
		in   *sandboxv1.ExecRequest
		want *sandboxv1.ExecResponse
	}{
		{&sandboxv1.ExecRequest{Command: "echo hello"}, &sandboxv1.ExecResponse{Stdout: "hello\n"}},
		{&sandboxv1.ExecRequest{Command: "python3 -c 'print(1+1)'", Timeout: 30}, &sandboxv1.ExecResponse{Stdout: "2\n"}},
		{&sandboxv1.ExecRequest{Command: "echo error >&2"}, &sandboxv1.ExecResponse{Stderr: "error\n"}},
		{&sandboxv1.ExecRequest{Command: "exit 42"}, &sandboxv1.ExecResponse{ExitCode: 42}},
		{&sandboxv1.ExecRequest{Command: "pwd", Workdir: "/tmp"}, &sandboxv1.ExecResponse{Stdout: "/tmp\n"}},
		{&sandboxv1.ExecRequest{Command: "touch test && echo ok"}, &sandboxv1.ExecResponse{Stdout: "ok\n"}},
		{&sandboxv1.ExecRequest{Command: "printf 'a\\377b'"}, &sandboxv1.ExecResponse{Stdout: "a\uFFFDb"}},
		{&sandboxv1.ExecRequest{Command: "echo part; exec sleep 100", Timeout: 1}, &sandboxv1.ExecResponse{ExitCode: -1, Stdout: "part\n", Stderr: "Command timed out", TimedOut: true}},
		{&sandboxv1.ExecRequest{Command: "echo why >&2; exec sleep 100", Timeout: 1}, &sandboxv1.ExecResponse{ExitCode: -1, Stderr: "why\nCommand timed out", TimedOut: true}},
		{&sandboxv1.ExecRequest{Command: "mkdir -p sub && cd sub && pwd | grep -o '/sub$'"}, &sandboxv1.ExecResponse{Stdout: "/sub\n"}},
		{&sandboxv1.ExecRequest{Command: "pwd | grep -o '/sub$'", Workdir: "sub"}, &sandboxv1.ExecResponse{Stdout: "/sub\n"}},
		{&sandboxv1.ExecRequest{SessionId: "unknown", Command: "true"}, &sandboxv1.ExecResponse{ExitCode: -1, Stderr: "Session not found"}},
		{&sandboxv1.ExecRequest{SessionId: "unknown", Command: ""}, &sandboxv1.ExecResponse{ExitCode: -1, Stderr: "Session not found"}},
		{&sandboxv1.ExecRequest{SessionId: "../x", Command: "true"}, &sandboxv1.ExecResponse{ExitCode: -1, Stderr: "Session not found"}},
	} {
		if tt.in.SessionId == "" {
			tt.in.SessionId = "a"
		}
		if got := s.exec(tt.in); !proto.Equal(got, tt.want) {
			t.Errorf("Exec(%v) = %v, want %v", tt.in, got, tt.want)
		}
	}
	if out := s.exec(&sandboxv1.ExecRequest{SessionId: "a", Command: "true", Workdir: "/nonexistent"}); out.GetExitCode() == 0 || out.GetStderr() == "" || out.GetTimedOut() {
		t.Errorf("Exec where no directory is = %v", out)
	}
	for _, in := range []*sandboxv1.ExecRequest{{SessionId: "a"}, {SessionId: "a", Command: "true", Timeout: -1}, {SessionId: "a", Command: "true", Timeout: math.MaxInt32}} {
		if err := s.call(bounded(t), "Exec", in, &sandboxv1.ExecResponse{}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("Exec(%v) = %v, want invalid", in, err)
		}
	}
}

func wait(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for until := time.Now().Add(time.Minute); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

func TestExecStreamIsLive(t *testing.T) {
	s := dial(t, daemontest.Start(t, daemontest.Options{}))
	s.create(&sandboxv1.CreateSessionRequest{SessionId: ptr("a")})
	// The command goes on only when its first line was read here.
	var got []string
	err := s.stream(bounded(t), &sandboxv1.ExecStreamRequest{
		SessionId: "a", Command: "echo first; until test -e go; do sleep 0.05; done; echo oops >&2; pwd; exit 7", Workdir: "/tmp",
	}, func(m *sandboxv1.ExecStreamResponse) {
		got = append(got, fmt.Sprintf("%s %q", m.GetType(), m.GetData()))
		switch {
		case m.GetData() == "first\n":
			s.exec(&sandboxv1.ExecRequest{SessionId: "a", Command: "touch go", Workdir: "/tmp"})
		case m.GetType() == "exit" && (m.ExitCode == nil || m.GetExitCode() != 7):
			t.Errorf("exit code = %v", m.ExitCode)
		}
	})
	s.exec(&sandboxv1.ExecRequest{SessionId: "a", Command: "rm go", Workdir: "/tmp"})
	want := []string{`stdout "first\n"`, `stderr "oops\n"`, `stdout "/tmp\n"`, `exit ""`}
	if slices.Sort(got[1:]); err != nil || len(got) != 4 {
		t.Errorf("ExecStream = %v, %v", got, err)
	}
	for _, w := range want {
		if !slices.Contains(got, w) {
			t.Errorf("ExecStream = %v, lacks %s", got, w)
		}
	}
	var last *sandboxv1.ExecStreamResponse
	keep := func(m *sandboxv1.ExecStreamResponse) { last = m }
	if err := s.stream(bounded(t), &sandboxv1.ExecStreamRequest{SessionId: "unknown", Command: "true"}, keep); err != nil || last.GetType() != "error" || last.GetData() != "Session not found" {
		t.Errorf("ExecStream in no session = %v, %v", last, err)
	}
	if err := s.stream(bounded(t), &sandboxv1.ExecStreamRequest{SessionId: "a", Command: "kill -9 $$"}, keep); err != nil || last.GetType() != "exit" || last.GetExitCode() != 137 {
		t.Errorf("a command that kills itself = %v, %v", last, err)
	}
}

func TestFiles(t *testing.T) {
	s := dial(t, daemontest.Start(t, daemontest.Options{}))
	s.create(&sandboxv1.CreateSessionRequest{SessionId: ptr("a")})
	write := func(path, content, mode string) *sandboxv1.WriteFileResponse {
		var out sandboxv1.WriteFileResponse
		s.must("WriteFile", &sandboxv1.WriteFileRequest{SessionId: "a", Path: path, Content: content, Mode: mode}, &out)
		return &out
	}
	read := func(path string) *sandboxv1.ReadFileResponse {
		var out sandboxv1.ReadFileResponse
		s.must("ReadFile", &sandboxv1.ReadFileRequest{SessionId: "a", Path: path}, &out)
		return &out
	}
	for _, w := range [][3]string{{"dir/f.txt", "old\n", ""}, {"dir/f.txt", "line1\n", "w"}, {"/workspace/dir/f.txt", "line2\n", "a"}, {"script.py", "print('hello')", "w"}} {
		if out := write(w[0], w[1], w[2]); !out.GetSuccess() || out.Error != nil {
			t.Errorf("WriteFile(%q) = %v", w, out)
		}
	}
	if out := read("dir/f.txt"); !out.GetSuccess() || out.GetContent() != "line1\nline2\n" {
		t.Errorf("ReadFile = %v", out)
	}
	s.exec(&sandboxv1.ExecRequest{SessionId: "a", Command: `printf 'a\377' >binary; touch empty`})
	if out := read("empty"); !out.GetSuccess() || out.Content == nil {
		t.Errorf("an empty file = %v", out)
	}
	for _, path := range []string{"missing", "binary", "dir", "", "/etc/passwd", "../etc/passwd", "/workspace-evil/x", "a\x00b"} {
		if out := read(path); out.GetSuccess() || out.GetError() == "" || out.Content != nil {
			t.Errorf("ReadFile(%q) = %v", path, out)
		}
	}
	for _, w := range [][2]string{{"/etc/cubby-test", "w"}, {"/workspace-evil/x", "w"}, {"../x", "w"}, {"", "w"}, {"dir", "w"}, {"x", "r"}, {"/mnt/user-data/uploads/x", "w"}} {
		if out := write(w[0], "x", w[1]); out.GetSuccess() || out.GetError() == "" {
			t.Errorf("WriteFile(%q) = %v", w, out)
		}
	}
	for _, id := range []string{"unknown", "../x", ""} {
		for _, path := range []string{"x", "/etc/passwd", ""} {
			var read sandboxv1.ReadFileResponse
			s.must("ReadFile", &sandboxv1.ReadFileRequest{SessionId: id, Path: path}, &read)
			if read.GetSuccess() || read.GetError() != "Session not found" {
				t.Errorf("ReadFile(%q) in session %q = %v", path, id, &read)
			}
			var wrote sandboxv1.WriteFileResponse
			s.must("WriteFile", &sandboxv1.WriteFileRequest{SessionId: id, Path: path}, &wrote)
			if wrote.GetSuccess() || wrote.GetError() != "Session not found" {
				t.Errorf("WriteFile(%q) in session %q = %v", path, id, &wrote)
			}
		}
	}
}

func TestPipInstallRefuses(t *testing.T) {
	s := dial(t, daemontest.Start(t, daemontest.Options{}))
	s.create(&sandboxv1.CreateSessionRequest{SessionId: ptr("a")})
	s.create(&sandboxv1.CreateSessionRequest{SessionId: ptr("b"), AllowedHosts: []string{"*.pypi.org", "pypi.org"}})
	pip := func(id string, packages ...string) *sandboxv1.ExecResponse {
		var out sandboxv1.ExecResponse
		s.must("PipInstall", &sandboxv1.PipInstallRequest{SessionId: id, Packages: packages}, &out)
		return &out
	}
	if out := pip("b", "requests"); out.GetExitCode() != -1 || out.GetStderr() != "pip install requires pypi.org and files.pythonhosted.org in allowed_hosts" {
		t.Errorf("without the hosts = %v", out)
	}
	for _, id := range []string{"unknown", "../x", ""} {
		if out := pip(id, "requests"); out.GetExitCode() != -1 || out.GetStderr() != "Session not found" {
			t.Errorf("in session %q = %v", id, out)
		}
	}
	for _, p := range []string{"foo; rm -rf /", "--index-url=http://x", "-r", "a b", "git+https://x/y", "a==", "a @ http://x", "", "a[", "../x", "./x", "a;python_version>'3'"} {
		if out := pip("a", "requests", p); out.GetExitCode() != -1 || out.GetStderr() != "Invalid package specifier: "+p {
			t.Errorf("PipInstall(%q) = %v", p, out)
		}
	}
}
