package rpc_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	sandboxv1 "github.com/cubbyhq/cubby/api/gen/sandbox/v1"
	"github.com/cubbyhq/cubby/api/gen/sandbox/v1/sandboxv1connect"
	"github.com/cubbyhq/cubby/internal/config"
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

func dial(t *testing.T, d *daemontest.Daemon) service {
	t.Helper()
	conn, err := grpc.NewClient(strings.TrimPrefix(d.URL, "http://"), grpc.WithTransportCredentials(insecure.NewCredentials()))
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
	if err := s.call(s.t.Context(), method, in, out); err != nil {
		s.t.Fatalf("%s: %v", method, err)
	}
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
		err := s.call(t.Context(), "GetSession", &sandboxv1.GetSessionRequest{SessionId: id}, &got)
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
	for code, in := range map[codes.Code]*sandboxv1.CreateSessionRequest{
		codes.InvalidArgument: {AllowedHosts: []string{"http://a.example/"}},
		codes.Unimplemented:   {TenantId: ptr("acme")},
	} {
		if err := s.call(t.Context(), "CreateSession", in, &sandboxv1.CreateSessionResponse{}); status.Code(err) != code {
			t.Errorf("CreateSession(%v) = %v, want %v", in, err, code)
		}
	}
	if err := s.call(t.Context(), "CreateSession", &sandboxv1.CreateSessionRequest{SessionId: ptr("../x")}, &sandboxv1.CreateSessionResponse{}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a malformed id = %v", err)
	}
}

// Calls that create one id at once all get the one session.
func TestCreatesOfOneID(t *testing.T) {
	s := dial(t, daemontest.Start(t, daemontest.Options{}))
	uids := make(chan string)
	const calls = 8
	for range calls {
		go func() {
			var out sandboxv1.CreateSessionResponse
			if err := s.call(t.Context(), "CreateSession", &sandboxv1.CreateSessionRequest{SessionId: ptr("one")}, &out); err != nil {
				uids <- err.Error()
				return
			}
			uids <- out.GetSession().GetContainerId()
		}()
	}
	first := <-uids
	for range calls - 1 {
		if uid := <-uids; uid != first {
			t.Errorf("two creates of one id gave %s and %s", first, uid)
		}
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
		{&sandboxv1.ExecRequest{SessionId: "unknown", Command: "true"}, &sandboxv1.ExecResponse{ExitCode: -1, Stderr: "Session not found"}},
	} {
		if tt.in.SessionId == "" {
			tt.in.SessionId = "a"
		}
		if got := s.exec(tt.in); !proto.Equal(got, tt.want) {
			t.Errorf("Exec(%v) = %v, want %v", tt.in, got, tt.want)
		}
	}
	for _, in := range []*sandboxv1.ExecRequest{{SessionId: "a"}, {SessionId: "a", Command: "true", Timeout: -1}} {
		if err := s.call(t.Context(), "Exec", in, &sandboxv1.ExecResponse{}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("Exec(%v) = %v, want invalid", in, err)
		}
	}
}

// A caller that leaves takes its command along: nobody could find it again.
func TestCallerLeaves(t *testing.T) {
	s := dial(t, daemontest.Start(t, daemontest.Options{}))
	s.create(&sandboxv1.CreateSessionRequest{SessionId: ptr("a")})
	alive := func() bool {
		return s.exec(&sandboxv1.ExecRequest{SessionId: "a", Command: "kill -0 $(cat pid)"}).GetExitCode() == 0
	}
	leave := func(name string, call func(ctx context.Context)) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); call(ctx) }()
		wait(t, name+" to start", func() bool {
			return s.exec(&sandboxv1.ExecRequest{SessionId: "a", Command: "test -s pid"}).GetExitCode() == 0 && alive()
		})
		cancel()
		<-done
		wait(t, name+" to end", func() bool { return !alive() })
		s.exec(&sandboxv1.ExecRequest{SessionId: "a", Command: "rm pid"})
	}
	leave("Exec", func(ctx context.Context) {
		_ = s.call(ctx, "Exec", &sandboxv1.ExecRequest{SessionId: "a", Command: "echo $$ >pid; exec sleep 1000"}, &sandboxv1.ExecResponse{})
	})
	leave("ExecStream", func(ctx context.Context) {
		_ = s.stream(ctx, &sandboxv1.ExecStreamRequest{SessionId: "a", Command: "echo $$ >pid; exec sleep 1000"}, func(*sandboxv1.ExecStreamResponse) {})
	})
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
	err := s.stream(t.Context(), &sandboxv1.ExecStreamRequest{
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
	if err := s.stream(t.Context(), &sandboxv1.ExecStreamRequest{SessionId: "unknown", Command: "true"}, keep); err != nil || last.GetType() != "error" || last.GetData() != "Session not found" {
		t.Errorf("ExecStream in no session = %v, %v", last, err)
	}
	if err := s.stream(t.Context(), &sandboxv1.ExecStreamRequest{SessionId: "a", Command: "kill -9 $$"}, keep); err != nil || last.GetType() != "exit" || last.GetExitCode() != 137 {
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
	var out sandboxv1.ReadFileResponse
	s.must("ReadFile", &sandboxv1.ReadFileRequest{SessionId: "unknown", Path: "x"}, &out)
	if out.GetSuccess() || out.GetError() != "Session not found" {
		t.Errorf("ReadFile in no session = %v", &out)
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
	if out := pip("unknown", "requests"); out.GetExitCode() != -1 || out.GetStderr() != "Session not found" {
		t.Errorf("in no session = %v", out)
	}
	for _, p := range []string{"foo; rm -rf /", "--index-url=http://x", "-r", "a b", "git+https://x/y", "a==", "a @ http://x", "", "a[", "../x", "./x", "a;python_version>'3'"} {
		if out := pip("a", "requests", p); out.GetExitCode() != -1 || out.GetStderr() != "Invalid package specifier: "+p {
			t.Errorf("PipInstall(%q) = %v", p, out)
		}
	}
}

// What clients ask a service about itself.
func TestHealthAndReflection(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{Config: func(c *config.Config) { c.GRPCListen = "127.0.0.1:0" }})
	s := dial(t, d)
	health := healthpb.NewHealthClient(s.conn)
	for service, want := range map[string]codes.Code{"": codes.OK, "sandbox.v1.SandboxService": codes.OK, "other": codes.NotFound} {
		res, err := health.Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
		if status.Code(err) != want || err == nil && res.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("health of %q = %v, %v", service, res, err)
		}
	}
	st, err := reflectionpb.NewServerReflectionClient(s.conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ask := &reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}
	if err := st.Send(ask); err != nil {
		t.Fatal(err)
	}
	res, err := st.Recv()
	if err != nil || len(res.GetListServicesResponse().GetService()) != 1 || res.GetListServicesResponse().GetService()[0].GetName() != "sandbox.v1.SandboxService" {
		t.Errorf("reflection = %v, %v", res, err)
	}
	if err := st.CloseSend(); err != nil {
		t.Error(err)
	}
	for err == nil {
		_, err = st.Recv()
	}
}

// The same service for gRPC-Web and Connect clients, on HTTP/1.1.
func TestOtherProtocols(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	for name, options := range map[string][]connect.ClientOption{
		"gRPC-Web": {connect.WithGRPCWeb()}, "Connect": nil, "Connect with JSON": {connect.WithProtoJSON()},
	} {
		transport := new(http.Transport)
		c := sandboxv1connect.NewSandboxServiceClient(&http.Client{Transport: transport}, d.URL, options...)
		made, err := c.CreateSession(t.Context(), connect.NewRequest(&sandboxv1.CreateSessionRequest{}))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		id := made.Msg.GetSession().GetSessionId()
		out, err := c.Exec(t.Context(), connect.NewRequest(&sandboxv1.ExecRequest{SessionId: id, Command: "echo hello"}))
		if err != nil || out.Msg.GetStdout() != "hello\n" {
			t.Errorf("%s: Exec = %v, %v", name, out, err)
		}
		st, err := c.ExecStream(t.Context(), connect.NewRequest(&sandboxv1.ExecStreamRequest{SessionId: id, Command: "echo live"}))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var types []string
		for st.Receive() {
			types = append(types, st.Msg().GetType())
		}
		if err := errors.Join(st.Err(), st.Close()); err != nil || !slices.Equal(types, []string{"stdout", "exit"}) {
			t.Errorf("%s: ExecStream = %v, %v", name, types, err)
		}
		if _, err := c.GetSession(t.Context(), connect.NewRequest(&sandboxv1.GetSessionRequest{SessionId: "unknown"})); connect.CodeOf(err) != connect.CodeNotFound {
			t.Errorf("%s: GetSession = %v", name, err)
		}
		transport.CloseIdleConnections()
	}
	res, err := http.Post(d.URL+"/sandbox.v1.SandboxService/GetSession", "application/json", strings.NewReader(`{"sessionId":"unknown"}`))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	if body, _ := io.ReadAll(res.Body); res.StatusCode != 404 || !bytes.Contains(body, []byte(`"not_found"`)) {
		t.Errorf("by hand = %d %s", res.StatusCode, body)
	}
}

func TestAuthentication(t *testing.T) {
	s := dial(t, daemontest.Start(t, daemontest.Options{Config: func(c *config.Config) { c.Tokens = "me:secret" }}))
	in, out := &sandboxv1.ListSessionsRequest{}, &sandboxv1.ListSessionsResponse{}
	for _, pairs := range [][]string{nil, {"authorization", "Bearer wrong"}, {"authorization", "Basic secret"}} {
		ctx := metadata.NewOutgoingContext(t.Context(), metadata.Pairs(pairs...))
		if err := s.call(ctx, "ListSessions", in, out); status.Code(err) != codes.Unauthenticated {
			t.Errorf("with %v = %v, want unauthenticated", pairs, err)
		}
	}
	for _, pairs := range [][]string{{"authorization", "Bearer secret"}, {"x-api-key", "secret"}} {
		ctx := metadata.NewOutgoingContext(t.Context(), metadata.Pairs(pairs...))
		if err := s.call(ctx, "ListSessions", in, out); err != nil {
			t.Errorf("with %v = %v", pairs, err)
		}
	}
}
