package rpc_test

import (
	"testing"

	sandboxv1 "github.com/cubbyhq/cubby/api/gen/sandbox/v1"
	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// A session that sleeps goes on for whoever uses it, and for nobody who looks at it.
func TestSleepingSession(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	s, rest := dial(t, d), client.New(d.URL)
	s.create(&sandboxv1.CreateSessionRequest{SessionId: ptr("a")})
	s.exec(&sandboxv1.ExecRequest{SessionId: "a", Command: "echo kept >file"})
	for name, use := range map[string]func(){
		"Exec": func() {
			if out := s.exec(&sandboxv1.ExecRequest{SessionId: "a", Command: "cat file"}); out.GetExitCode() != 0 || out.GetStdout() != "kept\n" {
				t.Errorf("Exec = %v", out)
			}
		},
		"ExecStream": func() {
			var out string
			err := s.stream(bounded(t), &sandboxv1.ExecStreamRequest{SessionId: "a", Command: "cat file"}, func(m *sandboxv1.ExecStreamResponse) { out += m.GetData() })
			if err != nil || out != "kept\n" {
				t.Errorf("ExecStream = %q, %v", out, err)
			}
		},
		"ReadFile": func() {
			var out sandboxv1.ReadFileResponse
			if s.must("ReadFile", &sandboxv1.ReadFileRequest{SessionId: "a", Path: "file"}, &out); !out.GetSuccess() || out.GetContent() != "kept\n" {
				t.Errorf("ReadFile = %v", &out)
			}
		},
		"WriteFile": func() {
			var out sandboxv1.WriteFileResponse
			if s.must("WriteFile", &sandboxv1.WriteFileRequest{SessionId: "a", Path: "file", Content: "kept\n"}, &out); !out.GetSuccess() {
				t.Errorf("WriteFile = %v", &out)
			}
		},
	} {
		box, err := rest.Sleep(t.Context(), "a", false)
		if err != nil || string(box.Status) != string(sandbox.Sleeping) {
			t.Fatalf("before %s: Sleep = %s, %v", name, box.Status, err)
		}
		var got sandboxv1.GetSessionResponse
		s.must("GetSession", &sandboxv1.GetSessionRequest{SessionId: "a"}, &got)
		if got.GetSession().GetStatus() != string(sandbox.Sleeping) {
			t.Errorf("before %s: GetSession = %v", name, got.GetSession())
		}
		if ids := s.list(); len(ids) != 1 {
			t.Errorf("before %s: ListSessions = %v", name, ids)
		}
		if box, err = rest.Get(t.Context(), "a"); err != nil || string(box.Status) != string(sandbox.Sleeping) {
			t.Errorf("before %s, and looked at, it is %s, %v", name, box.Status, err)
		}
		use()
		if box, err = rest.Get(t.Context(), "a"); err != nil || string(box.Status) != string(sandbox.Running) {
			t.Errorf("after %s it is %s, %v", name, box.Status, err)
		}
	}
}
