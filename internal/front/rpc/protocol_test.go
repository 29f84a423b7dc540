package rpc_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	sandboxv1 "github.com/cubbyhq/cubby/api/gen/sandbox/v1"
)

// agentbox is the interface as agentbox's clients have it: their generated code
// knows nothing but these numbers.
const agentbox = `
rpc CreateSession(CreateSessionRequest) CreateSessionResponse
rpc DestroySession(DestroySessionRequest) DestroySessionResponse
rpc GetSession(GetSessionRequest) GetSessionResponse
rpc ListSessions(ListSessionsRequest) ListSessionsResponse
rpc Exec(ExecRequest) ExecResponse
rpc ExecStream(ExecStreamRequest) stream ExecStreamResponse
rpc WriteFile(WriteFileRequest) WriteFileResponse
rpc ReadFile(ReadFileRequest) ReadFileResponse
rpc PipInstall(PipInstallRequest) ExecResponse
SessionInfo.session_id = 1 string
SessionInfo.container_id = 2 string
SessionInfo.created_at = 3 double
SessionInfo.last_activity = 4 double
SessionInfo.status = 5 string
SessionInfo.tenant_id = 6 optional string
SessionInfo.allowed_hosts = 7 repeated string
CreateSessionRequest.session_id = 1 optional string
CreateSessionRequest.tenant_id = 2 optional string
CreateSessionRequest.allowed_hosts = 3 repeated string
CreateSessionResponse.session = 1 SessionInfo
DestroySessionRequest.session_id = 1 string
DestroySessionResponse.success = 1 bool
GetSessionRequest.session_id = 1 string
GetSessionResponse.session = 1 SessionInfo
ListSessionsResponse.sessions = 1 repeated SessionInfo
ExecRequest.session_id = 1 string
ExecRequest.command = 2 string
ExecRequest.timeout = 3 int32
ExecRequest.workdir = 4 string
ExecResponse.exit_code = 1 int32
ExecResponse.stdout = 2 string
ExecResponse.stderr = 3 string
ExecResponse.timed_out = 4 bool
ExecStreamRequest.session_id = 1 string
ExecStreamRequest.command = 2 string
ExecStreamRequest.workdir = 3 string
ExecStreamResponse.type = 1 string
ExecStreamResponse.data = 2 string
ExecStreamResponse.exit_code = 3 optional int32
WriteFileRequest.session_id = 1 string
WriteFileRequest.path = 2 string
WriteFileRequest.content = 3 string
WriteFileRequest.mode = 4 string
WriteFileResponse.success = 1 bool
WriteFileResponse.error = 2 optional string
ReadFileRequest.session_id = 1 string
ReadFileRequest.path = 2 string
ReadFileResponse.success = 1 bool
ReadFileResponse.content = 2 optional string
ReadFileResponse.error = 3 optional string
PipInstallRequest.session_id = 1 string
PipInstallRequest.packages = 2 repeated string
`

func TestProtocol(t *testing.T) {
	file := sandboxv1.File_sandbox_v1_sandbox_proto
	var got strings.Builder
	got.WriteByte('\n')
	service := file.Services().ByName("SandboxService")
	if service == nil || service.FullName() != "sandbox.v1.SandboxService" || file.Services().Len() != 1 {
		t.Fatal("the service is not sandbox.v1.SandboxService")
	}
	for i := range service.Methods().Len() {
		m := service.Methods().Get(i)
		stream := ""
		if m.IsStreamingServer() {
			stream = "stream "
		}
		if m.IsStreamingClient() {
			t.Errorf("%s takes a stream", m.Name())
		}
		fmt.Fprintf(&got, "rpc %s(%s) %s%s\n", m.Name(), m.Input().Name(), stream, m.Output().Name())
	}
	for i := range file.Messages().Len() {
		m := file.Messages().Get(i)
		for j := range m.Fields().Len() {
			f := m.Fields().Get(j)
			kind := f.Kind().String()
			if f.Kind() == protoreflect.MessageKind {
				kind = string(f.Message().Name())
			}
			switch {
			case f.IsList():
				kind = "repeated " + kind
			case f.HasOptionalKeyword():
				kind = "optional " + kind
			}
			fmt.Fprintf(&got, "%s.%s = %d %s\n", m.Name(), f.Name(), f.Number(), kind)
		}
	}
	if got.String() != agentbox {
		t.Errorf("the protocol is%s\nwant%s", got.String(), agentbox)
	}
}
