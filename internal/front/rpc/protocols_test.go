package rpc_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	sandboxv1 "github.com/cubbyhq/cubby/api/gen/sandbox/v1"
	"github.com/cubbyhq/cubby/api/gen/sandbox/v1/sandboxv1connect"
	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
)

// protocols are those beside gRPC that the same port speaks.
func protocols() map[string][]connect.ClientOption {
	return map[string][]connect.ClientOption{
		"gRPC-Web": {connect.WithGRPCWeb()}, "gRPC-Web with JSON": {connect.WithGRPCWeb(), connect.WithProtoJSON()},
		"Connect": nil, "Connect with JSON": {connect.WithProtoJSON()},
	}
}

// Every call in every protocol, over HTTP/1.1 and HTTP/2.
func TestOtherProtocols(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	one, two := new(http.Transport), new(http.Transport)
	two.Protocols = new(http.Protocols)
	two.Protocols.SetUnencryptedHTTP2(true)
	defer one.CloseIdleConnections()
	defer two.CloseIdleConnections()
	for name, options := range protocols() {
		for version, transport := range map[string]http.RoundTripper{"HTTP/1.1": one, "HTTP/2": two} {
			t.Run(name+"/"+version, func(t *testing.T) {
				everyCall(t, sandboxv1connect.NewSandboxServiceClient(&http.Client{Transport: transport}, d.URL, options...))
			})
		}
	}
}

func everyCall(t *testing.T, c sandboxv1connect.SandboxServiceClient) {
	t.Helper()
	ctx := bounded(t)
	made, err := c.CreateSession(ctx, connect.NewRequest(&sandboxv1.CreateSessionRequest{AllowedHosts: []string{"example.com"}}))
	if err != nil {
		t.Fatal(err)
	}
	id := made.Msg.GetSession().GetSessionId()
	if hosts := made.Msg.GetSession().GetAllowedHosts(); !slices.Equal(hosts, []string{"example.com"}) {
		t.Errorf("allowed_hosts = %v", hosts)
	}
	got, err := c.GetSession(ctx, connect.NewRequest(&sandboxv1.GetSessionRequest{SessionId: id}))
	if err != nil || got.Msg.GetSession().GetContainerId() != made.Msg.GetSession().GetContainerId() {
		t.Errorf("GetSession = %v, %v", got, err)
	}
	list, err := c.ListSessions(ctx, connect.NewRequest(&sandboxv1.ListSessionsRequest{}))
	if err != nil || !slices.ContainsFunc(list.Msg.GetSessions(), func(s *sandboxv1.SessionInfo) bool { return s.GetSessionId() == id }) {
		t.Errorf("ListSessions = %v, %v", list, err)
	}
	out, err := c.Exec(ctx, connect.NewRequest(&sandboxv1.ExecRequest{SessionId: id, Command: "echo hello; printf '\\377' >&2; exit 3"}))
	if err != nil || out.Msg.GetStdout() != "hello\n" || out.Msg.GetStderr() != "\uFFFD" || out.Msg.GetExitCode() != 3 {
		t.Errorf("Exec = %v, %v", out, err)
	}
	st, err := c.ExecStream(ctx, connect.NewRequest(&sandboxv1.ExecStreamRequest{SessionId: id, Command: "echo first; until test -e go; do sleep 0.05; done; exit 7"}))
	if err != nil {
		t.Fatal(err)
	}
	var types []string
	var code int32
	for st.Receive() {
		types, code = append(types, st.Msg().GetType()), st.Msg().GetExitCode()
		if st.Msg().GetData() == "first\n" { // the command goes on only now
			wrote, err := c.WriteFile(ctx, connect.NewRequest(&sandboxv1.WriteFileRequest{SessionId: id, Path: "go", Content: "on"}))
			if err != nil || !wrote.Msg.GetSuccess() {
				t.Errorf("WriteFile = %v, %v", wrote, err)
			}
		}
	}
	if err := errors.Join(st.Err(), st.Close()); err != nil || code != 7 || !slices.Equal(types, []string{"stdout", "exit"}) {
		t.Errorf("ExecStream = %v, %d, %v", types, code, err)
	}
	read, err := c.ReadFile(ctx, connect.NewRequest(&sandboxv1.ReadFileRequest{SessionId: id, Path: "go"}))
	if err != nil || !read.Msg.GetSuccess() || read.Msg.GetContent() != "on" {
		t.Errorf("ReadFile = %v, %v", read, err)
	}
	pip, err := c.PipInstall(ctx, connect.NewRequest(&sandboxv1.PipInstallRequest{SessionId: id, Packages: []string{"requests"}}))
	if err != nil || pip.Msg.GetExitCode() != -1 || pip.Msg.GetStderr() != "pip install requires pypi.org and files.pythonhosted.org in allowed_hosts" {
		t.Errorf("PipInstall = %v, %v", pip, err)
	}
	gone, err := c.DestroySession(ctx, connect.NewRequest(&sandboxv1.DestroySessionRequest{SessionId: id}))
	if err != nil || !gone.Msg.GetSuccess() {
		t.Errorf("DestroySession = %v, %v", gone, err)
	}
	_, err = c.GetSession(ctx, connect.NewRequest(&sandboxv1.GetSessionRequest{SessionId: id}))
	var status *connect.Error
	if !errors.As(err, &status) || status.Code() != connect.CodeNotFound || !strings.HasPrefix(status.Message(), "Session not found: destroyed ") {
		t.Errorf("GetSession of a destroyed one = %v", err)
	}
}

// The README's way without any client.
func TestConnectByHand(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	for method, tt := range map[string]struct {
		body string
		code int
		want string
	}{
		"CreateSession": {`{"sessionId":"hand","allowedHosts":["localhost"]}`, 200, `"sessionId":"hand"`},
		"GetSession":    {`{"sessionId":"unknown"}`, 404, `"not_found"`},
		"Exec":          {`{"sessionId":"unknown","command":"true"}`, 200, `"Session not found"`},
		"ListSessions":  {`{`, 400, `"invalid_argument"`},
		"NoSuchCall":    {`{}`, 404, ``},
	} {
		res, err := http.Post(d.URL+"/sandbox.v1.SandboxService/"+method, "application/json", strings.NewReader(tt.body))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode != tt.code || !bytes.Contains(bytes.ReplaceAll(body, []byte(`": "`), []byte(`":"`)), []byte(tt.want)) {
			t.Errorf("%s %s = %d %s, %v", method, tt.body, res.StatusCode, body, err)
		}
	}
}
